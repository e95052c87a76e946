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
"""The T4 export against the required fields of the schema."""

import json
from pathlib import Path

import pytest

from tvm_droplet_ms import cli
from tvm_droplet_ms.bench.sketch_layout import DecisionLayout, SketchLayout
from tvm_droplet_ms.bench.space import (
    MeasuredModule,
    MeasuredPoint,
    Space,
)
from tvm_droplet_ms.bench.t4 import export_t4, to_t4

SPACE = Space(
    name="small",
    description="a space with every kind of failure",
    definition="dense-4",
    target={"kind": "llvm"},
    machine={"cpu": "a cpu", "cpus": 2},
    versions={"tvm": "0.27"},
    date="2026-11-21T08:00:00",
    sketches=(
        SketchLayout(
            (DecisionLayout("SamplePerfectTile", 0, 2), DecisionLayout("SampleCategorical", 2, 1))
        ),
        SketchLayout((DecisionLayout("Annotate", 0, 1),)),
    ),
    points=(
        MeasuredPoint(0, (4, 1, 0), 0),
        MeasuredPoint(0, (2, 2, 0), 1),
        MeasuredPoint(0, (2, 2, 1), 1),
        MeasuredPoint(0, (1, 4, 0), None),
        MeasuredPoint(1, (8,), 2),
        MeasuredPoint(1, (16,), 3),
        MeasuredPoint(1, (32,), 4),
        MeasuredPoint(1, (64,), 5),
    ),
    modules=(
        MeasuredModule(10, (0.004, 0.002, 0.003), 0.5, 0.3),
        MeasuredModule(11, (0.001, 0.001), 0.25, 0.3),
        MeasuredModule(12, (), 0.1, 0.0, "compile"),
        MeasuredModule(13, (), 0.2, 0.0, "runtime"),
        MeasuredModule(14, (), 0.3, 0.0, "timeout"),
        MeasuredModule(15, (), 0.4, 0.0, "wrong result"),
    ),
)

INVALIDITY = {"timeout", "compile", "runtime", "correctness", "constraints", "correct"}


def check_schema(content):
    """Fields that results-schema.json 1.0.0 requires."""
    major, minor, patch = content["schema_version"].split(".")
    assert major.isdigit() and minor.isdigit() and patch.isdigit()
    assert isinstance(content["results"], list)
    for entry in content["results"]:
        assert isinstance(entry["configuration"], dict)
        assert isinstance(entry["times"], dict)
        assert entry["invalidity"] in INVALIDITY
        assert isinstance(entry["correctness"], (int, float))
        assert isinstance(entry.get("timestamp", ""), str)
        assert isinstance(entry.get("objectives", []), list)
        assert isinstance(entry["times"].get("runtimes", []), list)
        for part in ("compilation", "framework", "search_algorithm", "validation"):
            assert isinstance(entry["times"].get(part, 0), (int, float))
        for measurement in entry.get("measurements", []):
            assert isinstance(measurement["name"], str)
            assert isinstance(measurement["value"], (int, float, str, list))
            assert isinstance(measurement["unit"], str)


def test_export_has_required_fields(tmp_path):
    export_t4(SPACE, tmp_path / "small_T4.json")
    # Not even infinity is a JSON number.
    content = json.loads((tmp_path / "small_T4.json").read_text(), parse_constant=pytest.fail)
    check_schema(content)
    assert len(content["results"]) == len(SPACE.points)


def test_result_is_point_with_measurements_of_its_module():
    first, _, _, refused, annotated, *_ = to_t4(SPACE)["results"]
    assert first["configuration"] == {
        "sketch": 0,
        "0_SamplePerfectTile_0": 4,
        "0_SamplePerfectTile_1": 1,
        "1_SampleCategorical": 0,
    }
    assert first["times"]["runtimes"] == [4.0, 2.0, 3.0]
    assert first["times"]["compilation"] == 500.0
    assert first["measurements"] == [{"name": "time", "value": 3.0, "unit": "ms"}]
    assert refused["measurements"][0]["value"] == "InvalidConfig"
    assert annotated["configuration"] == {"sketch": 1, "0_Annotate": 8}


def test_failures_have_the_words_of_the_format():
    results = to_t4(SPACE)["results"]
    assert [(r["invalidity"], r["correctness"]) for r in results] == [
        ("correct", 1),
        ("correct", 1),
        ("correct", 1),
        ("constraints", 0),
        ("compile", 0),
        ("runtime", 0),
        ("timeout", 0),
        ("correctness", 0),
    ]


def test_command_writes_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    SPACE.save(tmp_path / "small.json.gz")
    out = tmp_path / "small_T4.json"
    command = ["space", "export", str(tmp_path / "small.json.gz"), "--format", "t4"]
    assert cli.main([*command, "--out", str(out)]) == 0
    written = json.loads(out.read_text())
    assert written["schema_version"] == "1.0.0"
    configurations = [tuple(r["configuration"].values()) for r in written["results"][:4]]
    assert configurations == [(0, 4, 1, 0), (0, 2, 2, 0), (0, 2, 2, 1), (0, 1, 4, 0)]
    assert [r["invalidity"] for r in written["results"][:4]] == [*["correct"] * 3, "constraints"]
    assert cli.main(["space", "export", "no-such", "--out", str(out)]) == 1
    assert "no-such" in capsys.readouterr().err
