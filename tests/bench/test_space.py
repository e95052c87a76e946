# SPDX-License-Identifier: Apache-2.0
"""A space as data: saving and loading."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tvm_droplet_ms.bench.space import (
    DecisionLayout,
    MeasuredModule,
    MeasuredPoint,
    Space,
    SpaceError,
)


def make_space() -> Space:
    """A tile of 4, a category of three without order, a compute location that not all points have.

    Modules 0 and 1 have two points each; the last point was refused.
    """
    layout = (
        DecisionLayout("SamplePerfectTile", 0, 2, 4),
        DecisionLayout("SampleCategorical", 2, 1, candidates=(4.0, 1.0, 2.0)),
        DecisionLayout("SampleComputeLocation", 3, 1),
    )
    points = (
        MeasuredPoint(0, (4, 1, 0, -1), 0),
        MeasuredPoint(0, (2, 2, 0, -1), 1),
        MeasuredPoint(0, (2, 2, 2, -1), 1),
        MeasuredPoint(0, (2, 2, 0, 3), 2),
        MeasuredPoint(0, (1, 4, 0, 3), 0),
        MeasuredPoint(0, (1, 4, 0, 1), None),
    )
    modules = (
        MeasuredModule(2**64 - 1, (3e-6, 1e-6, 2e-6), 0.25, 0.02),
        MeasuredModule(0, (), 30.0, 0.0, "timeout"),
        MeasuredModule(7, (5e-6, 4e-6), 0.5, 0.01),
    )
    return Space(
        name="small",
        description="a small one",
        definition="dense",
        target={"kind": "llvm", "num-cores": 2},
        machine={"cpu": "a processor", "cpus": 2},
        versions={"apache-tvm": "0.27"},
        date="2026-11-21",
        sketches=(layout,),
        points=points,
        modules=modules,
    )


def test_module_has_its_first_point():
    first = make_space().first_points
    assert {module: point.decisions for module, point in first.items()} == {
        0: (4, 1, 0, -1),
        1: (2, 2, 0, -1),
        2: (2, 2, 0, 3),
    }


def test_time_of_module_is_median_of_its_passes():
    assert make_space().times == [2e-6, float("inf"), 4.5e-6]
    assert make_space().optimum == 2e-6


@pytest.mark.parametrize("name", ["space.json", "space.json.gz"])
def test_file_keeps_everything(tmp_path: Path, name: str):
    space = make_space()
    space.save(tmp_path / name)
    loaded = Space.load(tmp_path / name)
    for kept, given in zip(loaded.modules, space.modules, strict=True):
        assert kept.secs == pytest.approx(given.secs)
        assert kept.build_secs == pytest.approx(given.build_secs)
        assert kept.run_secs == pytest.approx(given.run_secs)
        assert (kept.structural_hash, kept.failure) == (given.structural_hash, given.failure)
    assert replace(loaded, modules=()) == replace(space, modules=())


def test_one_space_is_one_file(tmp_path: Path):
    for name in ("a.json.gz", "b.json.gz"):
        make_space().save(tmp_path / name)
    assert (tmp_path / "a.json.gz").read_bytes() == (tmp_path / "b.json.gz").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.json.gz", "b.json.gz"]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": "another"}', "{"])
def test_another_file_is_named(tmp_path: Path, text: str):
    path = tmp_path / "other.json"
    path.write_text(text)
    with pytest.raises(SpaceError, match=r"other\.json"):
        Space.load(path)


def test_missing_file_is_named(tmp_path: Path):
    with pytest.raises(SpaceError, match=r"none\.json"):
        Space.load(tmp_path / "none.json")


def test_columns_of_unequal_length_are_an_error(tmp_path: Path):
    path = tmp_path / "torn.json"
    make_space().save(path)
    content = json.loads(path.read_text())
    content["modules"]["nanosecs"].pop()
    path.write_text(json.dumps(content))
    with pytest.raises(SpaceError, match=r"torn\.json"):
        Space.load(path)
