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
"""Live runs with a cache: a module that was measured once is not measured again."""

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tvm_droplet_ms.bench.live import cached_run, top_up_run
from tvm_droplet_ms.bench.live.environment import this_machine
from tvm_droplet_ms.bench.live.layers import ALL_LAYERS, make_module
from tvm_droplet_ms.bench.live.modules import module_key
from tvm_droplet_ms.bench.live.remeasuring import Rebuilt
from tvm_droplet_ms.bench.live.store import Task
from tvm_droplet_ms.bench.live.timed_passes import TimedPass
from tvm_droplet_ms.bench.live.timing_cache import Measurement, TimingCache

SETTINGS = {"layer": "small_dense", "method": "droplet without either", "trials": 4, "batch": 2}


def test_known_run_is_replayed_and_its_leader_timed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = str(tmp_path / "timings.sqlite")
    settings = {**SETTINGS, "seed": 0, "cache": path}
    first, second = (
        cached_run.tune_cached(Task(settings, tmp_path / label, 0.0)) for label in ("a", "b")
    )
    assert (first["measured"], second["measured"]) == (4, 0)
    records = [[(t["module"], t.get("secs")) for t in run["trials"]] for run in (first, second)]
    assert records[0] == records[1]

    modules = sorted({module for module, _ in records[0]})
    chosen = {"layer": "small_dense", "cache": path, "modules": modules, "passes": 2}
    done = top_up_run.top_up(Task(chosen, tmp_path, 0.0))
    assert done == {"timed": 4, "faults": {}}
    with TimingCache(path, this_machine()) as cache:
        passes = cache.passes(first["workload"])
    for module, secs in records[0]:
        found, *again = passes[module]
        assert found.secs == secs and found.source == "search"
        assert [(len(p.run_secs), p.source) for p in again] == [(5, "top-up")] * 2
        assert found.process != again[0].process == again[1].process


def test_leader_that_is_not_what_it_was_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """One of three modules computes something else, and the trace of one gives another module."""
    path = str(tmp_path / "timings.sqlite")
    workload = module_key(make_module(ALL_LAYERS["small_dense"]))
    timed = TimedPass((1.0,), "1", 0.0)
    with TimingCache(path, this_machine()) as cache:
        cache.add(workload, "small_dense", [Measurement(key, [key], timed) for key in "abc"])

    def rebuild(mod: Any, traces: list[Any]) -> Rebuilt:
        assert traces == [["a"], ["b"], ["c"]]
        timer = SimpleNamespace(
            time_evaluator=lambda *_, **__: lambda *_: SimpleNamespace(mean=2.0)
        )
        return Rebuilt(["a", "b", "other"], {"a": timer, "other": timer}, {"b": "wrong"}, [])

    monkeypatch.setattr(top_up_run, "rebuild", rebuild)
    settings = {"layer": "small_dense", "cache": path, "modules": ["a", "b", "c"], "passes": 3}
    faults = {"b": "wrong", "c": "its trace gives another module, other"}
    assert top_up_run.top_up(Task(settings, tmp_path, 0.0)) == {"timed": 1, "faults": faults}
    with TimingCache(path) as cache:
        assert cache.faults(workload) == faults
        ((first, *again),) = cache.passes(workload).values()
    assert first == timed
    assert [passed.run_secs for passed in again] == [(2.0,) * 5] * 3


def command(folder: Path, *options: str) -> str:
    """The output of the command."""
    program = [sys.executable, "-m", "tvm_droplet_ms.bench.live.cached"]
    shared = ["--out", str(folder), "--cache", str(folder / "timings.sqlite")]
    shared += ["--layers", "small_dense", "--seeds", "0", "--trials", "4", "--batch", "2"]
    done = subprocess.run([*program, *shared, *options], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def result(folder: Path, label: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(
        (folder / label / "small_dense-droplet-0.json").read_text()
    )
    return content


@pytest.mark.slow
def test_second_variant_builds_nothing_that_the_first_has_built(tmp_path: Path):
    command(tmp_path, "--label", "one")
    command(tmp_path, "--label", "two")
    one, two = result(tmp_path, "one"), result(tmp_path, "two")
    assert (one["measured"], two["measured"]) == (4, 0)
    assert [t["module"] for t in one["trials"]] == [t["module"] for t in two["trials"]]
    assert "have too few passes" in command(tmp_path, "--report")

    text = command(tmp_path, "--top-up", "--gains", str(tmp_path / "gains.json"))
    assert "have too few passes" not in text
    gains = json.loads((tmp_path / "gains.json").read_text())
    assert gains == {"4": {"one/droplet": 1.0, "two/droplet": 1.0}}
    before = sorted(tmp_path.rglob("*.json"))
    assert command(tmp_path, "--label", "one", "--top-up").count("\n") > 5
    assert sorted(tmp_path.rglob("*.json")) == before
