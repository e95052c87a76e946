# SPDX-License-Identifier: Apache-2.0
"""The file of first picks: what is written is read back, and faulty lines are skipped."""

import json

import pytest

from tvm_droplet_ms.tuning.picks.pick_file import FORMAT, PickFile, StoredPick
from tvm_droplet_ms.tuning.picks.sample_sizes import sample_sizes

FIRST = StoredPick("a", "{}", ((0, (1, 2)), (1, ())), (0.5, 0.25))
SECOND = StoredPick("b", "[]", ((2, (3,)),), ())


def test_picks_are_read_back(tmp_path):
    file = PickFile(tmp_path / "new")
    assert file.read() == {}
    file.append([FIRST])
    file.append([SECOND])
    assert file.read() == {"a": FIRST, "b": SECOND}


def test_last_pick_of_a_task_counts(tmp_path):
    file = PickFile(tmp_path)
    later = StoredPick("a", "later", (), ())
    file.append([FIRST, later])
    assert file.read() == {"a": later}


@pytest.mark.parametrize("kept", range(0, 60, 7))
def test_torn_line_loses_its_own_pick_only(kept, tmp_path):
    file = PickFile(tmp_path)
    file.append([FIRST])
    whole = file.path.read_bytes()
    file.path.write_bytes(whole + whole[:kept])
    assert file.read() == {"a": FIRST}
    file.append([SECOND])
    assert file.read() == {"a": FIRST, "b": SECOND}


@pytest.mark.parametrize(
    "fault",
    [
        {"format": FORMAT + 1},
        {"key": 3},
        {"trace": None},
        {"points": [[0, [1.5]], [1, []]]},
        {"points": [[0]]},
        {"points": 7},
        {"predicted": [0.5]},
        {"predicted": [0.5, float("nan")]},
    ],
)
def test_faulty_line_is_skipped(fault, tmp_path):
    file = PickFile(tmp_path)
    file.append([FIRST])
    line = json.loads(file.path.read_text())
    file.path.write_text(json.dumps(line | fault) + "\n\xff\n[]\n7\n")
    assert file.read() == {}


def test_heaviest_tasks_get_most_points():
    # 60 + 30 = 90 of 100.
    assert sample_sizes([4.0, 60.0, 30.0, 6.0], 64, 16) == [16, 64, 64, 16]
    assert sample_sizes([1.0], 64, 16) == [64]
    assert sample_sizes([], 64, 16) == []
    assert sample_sizes([0.0, 0.0], 64, 16) == [16, 16]
