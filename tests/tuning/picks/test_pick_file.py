# SPDX-License-Identifier: Apache-2.0
"""The small parts of first picks: how many schedules, which of them, and their file."""

import itertools
import json

import pytest

from tvm_droplet_ms.session.errors import last_line
from tvm_droplet_ms.tuning.picks.pick_pace import COMPILED, FEWEST, SECS_PER_SAMPLE, SHARE, PickPace
from tvm_droplet_ms.tuning.picks.pick_sampling import LEAST_DIFFERENCE, choose_different, difference
from tvm_droplet_ms.tuning.picks.picks import FORMAT, PickFile, StoredPick

FIRST = StoredPick("a", "{}", ((0, (1, 2)), (1, ())), (0.5, 0.25))
SECOND = StoredPick("b", "[]", ((2, (3,)),), ())

WISH = 64


def test_a_reason_names_no_class_of_the_package():
    message = "a schedule\ntvm_droplet_ms.tuning.picks.pick_sampling.NoSchedule: all were dropped"
    assert last_line(RuntimeError(message)) == "all were dropped"
    assert last_line(RuntimeError("tvm.error.InternalError: no")) == "tvm.error.InternalError: no"


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


def test_near_twins_are_passed_over():
    best, twin = (0, (1, 2, 3, 4, 5, 6, 7, 8)), (0, (1, 2, 3, 4, 5, 6, 7, 9))
    other_space, far = (1, (1,)), (0, (9, 9, 9, 4, 5, 6, 7, 8))
    assert choose_different([best, twin, other_space, far, twin], 3) == [0, 2, 3]


def test_near_twins_fill_up_and_points_of_no_space_differ():
    best, twin = (0, (1, 2, 3, 4, 5)), (0, (1, 2, 3, 4, 6))
    assert choose_different([best, twin, twin], 2) == [0, 1]
    assert choose_different([best, twin, None, None], 3) == [0, 2, 3]
    assert choose_different([best], 3) == [0] and choose_different([], 3) == []


def test_chosen_differ_wherever_enough_do():
    points = [(0, values) for values in itertools.product((1, 2), repeat=5)]
    chosen = [points[place] for place in choose_different(points, 4)]
    assert len(chosen) == 4 and chosen[0] == points[0]
    for one, other in itertools.combinations(chosen, 2):
        assert difference(one, other) >= LEAST_DIFFERENCE


def pick_all(kernels, budget, slowness=1.0, workers=2):
    """Samples of each kernel, and the seconds after picking and compiling, on a slow machine."""
    now = [0.0]
    pace = PickPace(kernels, workers, lambda: budget - now[0], lambda: now[0])
    counts = []
    for _ in range(kernels):
        count = pace.count(WISH)
        counts.append(count)
        secs = slowness * SECS_PER_SAMPLE * count / workers
        now[0] += secs
        if count:
            pace.done(count, secs)
    return counts, now[0] + slowness * COMPILED * SECS_PER_SAMPLE * kernels / workers


@pytest.mark.parametrize(("kernels", "bar"), [(100, 20.0), (20, 8.0)])
def test_first_executable_is_there_in_time(kernels, bar):
    counts, secs = pick_all(kernels, 60.0)
    # What remains of the bar is for import, starting processes, linking and the check.
    assert secs < 0.8 * bar
    assert min(counts) >= FEWEST


def test_heavy_kernels_get_twice_the_share_of_others():
    counts = [
        PickPace(100, 2, lambda: 60.0, lambda: 0.0).count(WISH, is_heavy=is_heavy)
        for is_heavy in (True, False)
    ]
    assert 2 * counts[1] <= counts[0] <= 2 * counts[1] + 1


def test_few_kernels_get_all_that_is_of_use():
    counts, _ = pick_all(2, 60.0)
    assert counts == [WISH, WISH]


def test_kernels_that_have_picks_leave_their_time_to_the_others():
    pace = PickPace(100, 2, lambda: 60.0, lambda: 0.0)
    before = PickPace(100, 2, lambda: 60.0, lambda: 0.0).count(WISH)
    pace.expect(50)
    assert 2 * before <= pace.count(WISH) <= 2 * before + 1


def test_hurried_picks_are_made_anew_where_that_takes_little_of_the_time():
    assert PickPace(100, 2, lambda: 300.0, lambda: 0.0).is_ample
    assert not PickPace(100, 2, lambda: 60.0, lambda: 0.0).is_ample


@pytest.mark.parametrize("slowness", [3.0, 4.5])
def test_a_busy_machine_takes_its_share_for_the_fewest_samples(slowness):
    counts, secs = pick_all(100, 120.0, slowness)
    assert secs <= 120.0 * SHARE + 120.0 * 0.2
    # Few are better than a random one as long as the share lasts.
    assert sum(count >= 4 for count in counts) > 50


def test_a_clock_that_is_too_short_leaves_kernels_as_they_are():
    counts, _ = pick_all(100, 5.0, slowness=8.0)
    assert counts[-1] == 0 and max(counts) <= FEWEST


def test_without_time_for_asking_one_schedule_is_drawn():
    compiling = 50 * COMPILED * SECS_PER_SAMPLE / 2
    pace = PickPace(50, 2, lambda: compiling + 0.1, lambda: 0.0)
    assert pace.count(WISH) == 1
    assert PickPace(50, 2, lambda: 0.4 * compiling, lambda: 0.0).count(WISH) == 0
