# SPDX-License-Identifier: Apache-2.0
"""The number of schedules sampled of each kernel, on made-up machines."""

import pytest

from tvm_droplet_ms.tuning.picks.pick_pace import COMPILED, FEWEST, SECS_PER_SAMPLE, SHARE, PickPace

WISH = 64


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
