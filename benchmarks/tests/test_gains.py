# SPDX-License-Identifier: Apache-2.0
"""Where the gain of a run comes from, by hand-worked records."""

import json
import math
from pathlib import Path

import pytest

from benchmarks.searches import gains


def record(tile: list[int], unroll: int, parallel: int, secs: float | None, kind="Split") -> str:
    """A line of TVM's database: two decisions, and a constant that is one in all but name."""
    insts = [
        ["SamplePerfectTile", ["l0"], [2, 64], ["v0", "v1"]],
        [kind, ["l0", "v0", "v1"], [1, 0], ["l1", "l2"]],
        ["SampleCategorical", [], [[0, 16], [0.5, 0.5]], ["v2"]],
        ["Annotate", ["b0", parallel], ["meta_schedule.parallel"], []],
        ["EnterPostproc", [], [], []],
        ["SampleCategorical", [], [[0, 16], [0.5, 0.5]], ["v3"]],
    ]
    decisions = [[0, tile], [2, unroll], [5, 0 if secs is None else round(1e6 * secs)]]
    return json.dumps([0, [[insts, decisions], [1e10] if secs is None else [secs], {}, []]])


def test_new_bests_are_counted_by_the_decisions_that_changed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    lines = [
        record([8, 8], 0, 16, 8e-6),
        record([1, 1], 1, 32, None),
        record([4, 8], 0, 16, 4e-6),  # One from the best.
        record([4, 8], 0, 16, 9e-6),
        record([2, 8], 1, 32, 2e-6),  # Three from the best; from the failure one, the tile.
        record([2, 8], 1, 32, 1e-6, kind="LoopPartition"),  # Another sketch.
    ]
    found = gains.gains_of([gains.read_trial(json.loads(line)[1]) for line in lines], 2)
    assert [(step.from_best, step.from_nearest) for step in found] == [
        ("1", "1"),
        ("2 or 3", "1"),
        (gains.OTHER, gains.OTHER),
    ]
    assert [step.gain for step in found] == pytest.approx([math.log(2)] * 3)
    (tmp_path / "database_tuning_record.json").write_text("\n".join(lines) + "\n")
    assert gains.main([str(tmp_path), "--explored", "2"]) == 0
    printed = capsys.readouterr().out
    assert "1 runs; after 2 trials they gain 8.000" in printed
    rows = [line.split("|")[2:5] for line in printed.splitlines() if "%" in line]
    assert [[cell.strip() for cell in row] for row in rows] == [
        ["1", "33%", "67%"],
        ["1", "33%", "0%"],
        ["0", "0%", "0%"],
        ["1", "33%", "33%"],
    ]


def test_what_is_no_run_of_one_kernel_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    with pytest.raises(SystemExit):
        gains.main([str(tmp_path)])
    assert "database_tuning_record.json cannot be read as a database" in capsys.readouterr().err
    lines = [record([8, 8], 0, 16, 8e-6), record([8, 8], 1, 16, 8e-6).replace("[0, [", "[1, [", 1)]
    (tmp_path / "database_tuning_record.json").write_text("\n".join(lines) + "\n")
    with pytest.raises(SystemExit):
        gains.main([str(tmp_path)])
    assert "the database of several kernels" in capsys.readouterr().err
