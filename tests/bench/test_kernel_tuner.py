# Licensed to the Apache Software Foundation (ASF) under one
# or more contributor license agreements.  See the NOTICE file
# distributed with this work for additional information
# regarding copyright ownership.  The ASF licenses this file
# to you under the Apache License, Version 2.0 (the
# "License"); you may not use this file except in compliance
# with the License.  You may obtain a copy of the License at
#
#   http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing,
# software distributed under the License is distributed on an
# "AS IS" BASIS, WITHOUT WARRANTIES OR CONDITIONS OF ANY
# KIND, either express or implied.  See the License for the
# specific language governing permissions and limitations
# under the License.
"""Kernel Tuner's files, written here as it writes them."""

import gzip
import json
import math

import pytest

from tvm_droplet_ms.bench.kernel_tuner import TunedSpace
from tvm_droplet_ms.bench.score import SpaceScore
from tvm_droplet_ms.bench.space import SpaceError

CACHE = {
    "device_name": "a card",
    "kernel_name": "a kernel",
    "tune_params_keys": ["block", "tile"],
    "tune_params": {"block": [64, 32], "tile": [1, 2]},
    "objective": "time",
    "cache": {
        "64,1": {
            "block": 64,
            "tile": 1,
            "time": 3.5,
            "times": [3.0, 4.0],
            "compile_time": 900.0,
            "verification_time": 0,
            "benchmark_time": 90.0,
            "strategy_time": 1,
            "framework_time": 9.0,
        },
        "32,1": {"tile": 1, "block": 32, "time": "CompilationFailedConfig", "compile_time": 500.0},
        "32,2": {"block": 32, "tile": 2, "time": "RuntimeFailedConfig", "compile_time": 700.0},
        "64,2": {"block": 64, "tile": 2, "time": 2, "compile_time": 400.0, "benchmark_time": 100.0},
    },
}


def result(block, tile, invalidity, value, **times):
    return {
        "configuration": {"block": block, "tile": tile},
        "times": times,
        "invalidity": invalidity,
        "correctness": int(invalidity == "correct"),
        "measurements": [
            {"name": "GFLOP/s", "value": 1.0, "unit": ""},
            {"name": "time", "value": value, "unit": "ms"},
        ],
        "objectives": ["time"],
    }


T4 = {
    "schema_version": "1.0.0",
    "metadata": {"timeunit": "miliseconds"},
    "results": [
        result(64, 1, "correct", 3.5, compilation=993.0, runtimes=[3.0, 4.0], framework=0),
        result(32, 1, "compile", "CompilationFailedConfig", compilation=500.0),
        result(32, 2, "timeout", 1e9, compilation=700.0),
        result(64, 2, "correct", 2.0, compilation=400.0, benchmark=100.0, runtimes=[50.0, 50.0]),
    ],
}


def load(path, content):
    data = json.dumps(content).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return TunedSpace.load(path)


@pytest.mark.parametrize("name", ["space.json", "space.json.gz"])
def test_a_cache_file(tmp_path, name):
    space = load(tmp_path / name, CACHE)
    assert dict(space.parameters) == {"block": (64, 32), "tile": (1, 2)}
    assert space.configurations == ((64, 1), (32, 1), (32, 2), (64, 2))
    assert space.times == (3.5, math.inf, math.inf, 2.0)
    assert space.failures == (None, "compile", "runtime", None)
    assert space.secs == pytest.approx((1.0, 0.5, 0.7, 0.5))
    assert space.index[(32, 2)] == 2


def test_a_t4_file(tmp_path):
    space = load(tmp_path / "space_T4.json", T4)
    assert dict(space.parameters) == {"block": (32, 64), "tile": (1, 2)}
    assert space.configurations == ((64, 1), (32, 1), (32, 2), (64, 2))
    assert space.times == (3.5, math.inf, math.inf, 2.0)
    assert space.failures == (None, "compile", "timeout", None)
    assert space.secs == pytest.approx((1.0, 0.5, 0.7, 0.5))


def test_values_that_are_no_numbers_keep_the_order_of_the_file(tmp_path):
    content = {**T4, "results": [result(b, 1, "correct", 1.0) for b in ("z", "a", "z", "m")]}
    assert load(tmp_path / "a.json", content).parameters["block"] == ("z", "a", "m")


def test_a_cache_that_was_left_open(tmp_path):
    """Kernel Tuner ends each entry with a comma and closes the file at the end of a session."""
    path = tmp_path / "open.json"
    path.write_text(json.dumps(CACHE).removesuffix("}}") + ",\n")
    assert TunedSpace.load(path) == load(tmp_path / "closed.json", CACHE)


def test_the_times_can_be_scored(tmp_path):
    entry = CACHE["cache"]["64,1"]
    entries = {f"{i},1": {**entry, "block": i, "time": float(i)} for i in range(101, 202)}
    space = load(tmp_path / "a.json", {**CACHE, "cache": {**CACHE["cache"], **entries}})
    scored = SpaceScore(space.times)
    assert scored.valid.size == 103
    assert scored.optimum == 2.0
    assert scored.score([[2.0]]) == 1.0


@pytest.mark.parametrize(
    "content, message",
    [
        ({"results": [{**T4["results"][0], "measurements": []}]}, "objective 'time'.*KeyError"),
        ({**T4, "metadata": {"timeunit": "fortnights"}}, "fortnights"),
        ({"tuned": {}}, "neither 'cache' nor 'results'"),
        ({**CACHE, "cache": {"a": {"block": 1, "tile": 1, "time": "Odd"}}}, "Odd"),
    ],
)
def test_other_files_are_refused_by_name(tmp_path, content, message):
    with pytest.raises(SpaceError, match=rf"a\.json.*{message}"):
        load(tmp_path / "a.json", content)


def test_a_file_that_is_no_json_is_refused(tmp_path):
    (tmp_path / "a.json").write_text("block,tile\n1,2\n")
    with pytest.raises(SpaceError, match="a.json cannot be read"):
        TunedSpace.load(tmp_path / "a.json")
