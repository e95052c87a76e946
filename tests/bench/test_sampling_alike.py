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

"""Timing the points of a measured space again."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from conformance.workloads import LLVM
from replaying import annotated_space, silent

from tvm.target import Target
from tvm_droplet_ms import cli
from tvm_droplet_ms.bench.sampling.alike import rank_correlation, time_alike
from tvm_droplet_ms.bench.space import MeasuredPoint, Space
from tvm_droplet_ms.bench.work_directory import CollectionError

AVX2 = Target({"kind": "llvm", "mcpu": "haswell", "num-cores": 16})


@pytest.fixture(scope="module")
def measured() -> Space:
    """Failures have no time: none of their points is timed again."""
    return annotated_space(failures={2: "runtime"})


def timed(like: Space, directory: Path, target: Target = LLVM, **options) -> Space:
    out = directory / "again.json"
    made = time_alike(like, target, directory / "work", out, passes=2, progress=silent, **options)
    written = Space.load(out)
    assert written.points == made.points
    # The file has whole nanoseconds.
    np.testing.assert_allclose(written.times, made.times, atol=1e-9)
    return written


def test_same_points_are_timed(made_up_times: None, measured: Space, tmp_path: Path):
    """The module of each point is that of the file, and its time is this machine's."""
    again = timed(measured, tmp_path)
    assert len(again.modules) == len(again.points) == len(measured.modules) - 1
    assert not again.closed and again.origins == ()
    assert again.machine["cpu"] and again.versions["apache-tvm"]
    for point in again.points:
        known = measured.points[measured.point_index[point.sketch, point.decisions]]
        assert again.modules[point.module].structural_hash == (
            measured.modules[known.module].structural_hash
        )
        assert len(again.modules[point.module].secs) == 2
    # The stub's times follow from the extents, not from the file.
    assert set(again.times) != set(measured.times)


def test_points_are_drawn_alike_everywhere(made_up_times: None, measured: Space, tmp_path: Path):
    first, other = (timed(measured, tmp_path / name, points=7) for name in ("a", "b"))
    assert [point.decisions for point in first.points] == [p.decisions for p in other.points]
    assert len(first.points) == 7
    drawn = timed(measured, tmp_path / "c", points=7, seed=1)
    assert {p.decisions for p in drawn.points} != {p.decisions for p in first.points}


def test_other_target_is_that_of_the_file(made_up_times: None, measured: Space, tmp_path: Path):
    again = timed(measured, tmp_path, AVX2, points=9)
    assert again.target["mcpu"] == "haswell"
    assert rank_correlation(measured, again)[1] == 9


def test_point_that_is_refused_has_no_module(
    made_up_times: None, measured: Space, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    from tvm_droplet_ms.bench.design_space import DesignSpace

    realise = DesignSpace.realise
    refused = next(point for point in measured.points if point.module == 5)
    monkeypatch.setattr(
        DesignSpace,
        "realise",
        lambda self, place: None if place[1] == refused.decisions else realise(self, place),
    )
    again = timed(measured, tmp_path)
    (without,) = [point for point in again.points if point.module is None]
    assert (without.sketch, without.decisions) == (refused.sketch, refused.decisions)
    assert len(again.modules) == len(measured.modules) - 2


def test_stopped_run_resumes(made_up_times: None, measured: Space, tmp_path: Path):
    whole = timed(measured, tmp_path)
    log = tmp_path / "work/log.jsonl"
    lines = log.read_text().splitlines(keepends=True)
    log.write_text("".join(lines[:-5]) + lines[-5][:7])
    assert timed(measured, tmp_path) == whole


def test_rank_correlation_matches_hand_computed_value(measured: Space):
    """Three points in common: times 1, 2, 4 us against 3, 1, 5 us; ranks 1, 2, 3 and 2, 1, 3."""
    points = tuple(
        MeasuredPoint(0, next(p.decisions for p in measured.points if p.module == number), place)
        for place, number in enumerate((0, 1, 3))
    )
    modules = tuple(
        replace(module, secs=(secs,), failure=None)
        for module, secs in zip(measured.modules[:3], (3e-6, 1e-6, 5e-6), strict=True)
    )
    other = replace(measured, points=points, modules=modules)
    assert rank_correlation(measured, other) == (pytest.approx(0.5), 3)
    assert rank_correlation(other, measured) == (pytest.approx(0.5), 3)
    few = replace(other, points=points[:2])
    assert np.isnan(rank_correlation(measured, few)[0])


def test_other_decisions_are_refused(made_up_times: None, measured: Space, tmp_path: Path):
    other = replace(measured, sketches=measured.sketches * 2)
    with pytest.raises(CollectionError, match="annotated has other decisions for target .*llvm"):
        timed(other, tmp_path)


def test_space_without_times_is_refused(made_up_times: None, measured: Space, tmp_path: Path):
    failed = tuple(replace(m, secs=(), failure="runtime") for m in measured.modules)
    with pytest.raises(CollectionError, match="no module of annotated has a time"):
        timed(replace(measured, modules=failed), tmp_path)


def test_command_times_file_and_prints_correlation(
    made_up_times: None, measured: Space, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    measured.save(tmp_path / "there.json")
    command = ["space", "sample", "--like", str(tmp_path / "there.json"), "--points", "12"]
    command += ["--mcpu", "haswell", "--out", str(tmp_path / "here")]
    assert cli.main(command) == 0
    out = capsys.readouterr().out
    assert "Spearman's rank correlation with" in out and "12 points" in out
    (written,) = (tmp_path / "here").iterdir()
    again = Space.load(written)
    assert len(again.points) == 12 and again.target["mcpu"] == "haswell"
    assert cli.main(command) == 0
    assert "is there already" in capsys.readouterr().out


def test_command_refuses_wrong_arguments(
    tmp_path: Path, measured: Space, capsys: pytest.CaptureFixture[str]
):
    assert cli.main(["space", "sample", "--out", str(tmp_path)]) == 2
    assert "expected either workloads or --like FILE, found neither" in capsys.readouterr().err
    assert cli.main(["space", "sample", "dense_gelu", "--like", "dense"]) == 2
    assert "found both" in capsys.readouterr().err
    assert cli.main(["space", "sample", "--like", str(tmp_path / "none.json")]) == 1
    assert "none.json cannot be read as a space" in capsys.readouterr().err
    untrusted = tmp_path / "other.json"
    measured.save(untrusted)
    content = json.loads(untrusted.read_text()) | {"definition": "other:code"}
    untrusted.write_text(json.dumps(content))
    assert cli.main(["space", "sample", "--like", str(untrusted)]) == 1
    assert "--trust other:code" in capsys.readouterr().err
