# SPDX-License-Identifier: Apache-2.0
"""The scheduler's rule: hand-made choices, and runs over tables of made-up times."""

import math
from statistics import geometric_mean

import pytest
from made_up_tasks import MadeUpTask, by_gradient, by_priorities, by_turns, make_tasks

from tvm_droplet_ms.tuning.budget.ending import batch_size
from tvm_droplet_ms.tuning.budget.priorities import NEAR_PATIENCE, PATIENCE, Priorities, Stake

KINDS = ("slowing", "steady", "sudden")


def priorities_of(tasks):
    return Priorities([Stake(task.weight, task.bound) for task in tasks])


def visited(*bests, cost=1.0, weights=None, bound=1.0):
    """Tasks of one roofline, each with one batch behind it."""
    weights = weights or [1.0] * len(bests)
    priorities = Priorities([Stake(weight, bound) for weight in weights])
    for task, best in enumerate(bests):
        priorities.tell(task, best, cost)
    return priorities


def test_first_visits_are_in_order_of_weight_times_roofline():
    priorities = Priorities([Stake(1, 5.0), Stake(4, 2.0), Stake(1, 1.0), Stake(2, 2.5)])
    order = []
    for _ in range(4):
        order.append(priorities.next())
        priorities.tell(order[-1], 100.0, 1.0)
    assert order == [1, 0, 3, 2]


def test_next_batch_goes_where_most_is_left():
    assert visited(2.0, 3.0, 1.5).next() == 1
    assert visited(2.0, 3.0, 1.5, weights=[1, 1, 10]).next() == 2


def test_next_batch_goes_where_it_is_cheap():
    priorities = Priorities([Stake(1, 1.0), Stake(1, 1.0)])
    for _ in range(2):
        priorities.tell(0, 2.0, 3.0)
        priorities.tell(1, 2.0, 1.0)
    assert priorities.next() == 1


def test_first_batch_is_left_out_of_the_cost():
    priorities = Priorities([Stake(1, 1.0)] * 4)
    assert priorities.cost(0) == 0.0
    for cost in (90.0, 1.0, 2.0):
        priorities.tell(0, 2.0, cost)
    assert priorities.cost(0) == 1.5
    # A task with one batch is expected to take what second ones take, one without what first ones.
    priorities.tell(1, 2.0, 9.0)
    priorities.tell(2, 2.0, 8.0)
    assert priorities.cost(1) == 1.5
    assert priorities.cost(3) == 9.0


def test_slow_start_of_a_run_does_not_starve_its_first_task():
    priorities = Priorities([Stake(1, 1.0), Stake(1, 1.0)])
    priorities.tell(0, 3.0, 100.0)
    priorities.tell(1, 2.0, 4.0)
    assert priorities.next() == 0


def test_progress_is_followed():
    priorities = visited(2.0, 2.0)
    priorities.tell(0, 2.0, 1.0)
    priorities.tell(1, 1.8, 1.0)
    # Less is left to the second one, but it is the one that improves.
    assert priorities.next() == 1


def test_task_near_its_roofline_rests():
    priorities = visited(1.04, 1.06, weights=[1e6, 1.0])
    for _ in range(NEAR_PATIENCE - 1):
        assert not priorities.rests(0)
        priorities.tell(0, 1.04, 1.0)
    assert priorities.next() == 0, "it is heavy, and rooflines are estimates"
    priorities.tell(0, 1.04, 1.0)
    priorities.tell(1, 1.06, 1.0)
    assert priorities.rests(0) and not priorities.rests(1)
    assert priorities.next() == 1
    # Where all others have ended, its time is not wasted.
    priorities.end(1)
    assert priorities.next() == 0
    priorities.end(0)
    assert priorities.next() is None


def test_task_that_beats_its_roofline_goes_on_while_it_improves():
    priorities = visited(0.99, 1.06, weights=[1e6, 1.0])
    for batch in range(20):
        priorities.tell(0, 0.98 * 0.99**batch, 1.0)
        assert priorities.next() == 0


def test_task_without_progress_rests_until_all_do():
    priorities = visited(50.0, 1.06)
    for _ in range(PATIENCE):
        assert not priorities.rests(0)
        priorities.tell(0, 50.0, 1.0)
    assert priorities.rests(0)
    assert priorities.next() == 1
    priorities.tell(0, 40.0, 1.0)
    assert not priorities.rests(0)


def test_failing_task_is_tried_again_but_gives_way():
    priorities = visited(math.inf, 1.5)
    assert priorities.next() == 0
    chosen = []
    for _ in range(40):
        chosen.append(priorities.next())
        priorities.tell(chosen[-1], math.inf if chosen[-1] == 0 else 1.5, 1.0)
    assert 2 < chosen.count(0) < 38
    assert priorities.best_secs(0) == math.inf
    for _ in range(PATIENCE):
        priorities.tell(0, math.inf, 1.0)
    assert priorities.rests(0)


def test_known_time_counts_as_a_visit():
    priorities = Priorities([Stake(9, 1.0), Stake(1, 1.0)])
    priorities.know(0, 1.5)
    assert priorities.next() == 1
    priorities.tell(1, 1.1, 1.0)
    assert priorities.next() == 0
    assert priorities.best_secs(0) == 1.5


def test_batch_that_does_not_fit_the_clock_is_not_begun():
    priorities = Priorities([Stake(1, 1.0), Stake(1, 1.0)])
    for cost in (9.0, 9.0):
        priorities.tell(0, 5.0, cost)
    for cost in (2.0, 2.0):
        priorities.tell(1, 1.5, cost)
    assert priorities.next(10.0) == 0
    assert priorities.next(5.0) == 1
    assert priorities.next(1.0) is None


def test_busy_task_is_not_chosen():
    priorities = visited(2.0, 3.0, 1.5)
    assert priorities.next(busy={1}) == 0
    assert priorities.next(busy={0, 1, 2}) is None


@pytest.mark.parametrize("stake", [(0.0, 1.0), (1.0, 0.0), (1.0, math.inf), (-1.0, 1.0)])
def test_impossible_stake_is_refused(stake):
    with pytest.raises(ValueError, match="stake of task 1"):
        Priorities([Stake(1.0, 1.0), Stake(*stake)])


def test_no_task_ends_at_once():
    assert Priorities([]).next() is None


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("secs", [20.0, 120.0])
def test_run_is_never_over_its_clock_by_more_than_a_batch(kind, secs):
    for seed in range(3):
        tasks = make_tasks(seed, kind=kind)
        replay = by_priorities(tasks, priorities_of(tasks), secs)
        last = replay.chosen[-1]
        cost = tasks[last].cost[replay.batches[last] - 1]
        assert secs - 5.0 < replay.clock < secs + cost
        assert min(replay.batches) >= (secs > 100.0)


@pytest.mark.parametrize("kind", KINDS)
def test_model_is_faster_than_by_gradient_and_by_turns(kind):
    """At equal clocks; the times of the models relative to those of the rule."""
    gradient, turns = [], []
    for seed in range(12):
        tasks = make_tasks(seed, kind=kind, batches=400)
        for secs in (120.0, 200.0):
            ours = by_priorities(tasks, priorities_of(tasks), secs).latency()
            gradient.append(by_gradient(tasks, secs).latency() / ours)
            turns.append(by_turns(tasks, secs).latency() / ours)
    assert geometric_mean(gradient) > 1.0
    assert geometric_mean(turns) > 1.05


@pytest.mark.parametrize("kind", KINDS)
def test_known_times_of_first_picks_save_visits(kind):
    """Where there is time for a part of the tasks only."""
    ratios = []
    for seed in range(12):
        tasks = make_tasks(seed, kind=kind)
        knowing = priorities_of(tasks)
        for number, task in enumerate(tasks):
            knowing.know(number, task.pick)
        visiting = by_priorities(tasks, priorities_of(tasks), 40.0).latency()
        ratios.append(visiting / by_priorities(tasks, knowing, 40.0).latency())
    assert geometric_mean(ratios) > 1.1


def test_gradient_of_the_comparison_is_the_published_one():
    """Two tasks, each visited once; then the larger weight * 0.8 * best / batches."""
    times = {0: (10.0,) * 9, 1: (6.0,) * 9}
    tasks = [MadeUpTask(1.0, 1.0, 20.0, times[i], (1.0,) * 9) for i in (0, 1)]
    # Batches of the first are worth 10/1, 10/2, 10/3, those of the second 6/1, 6/2.
    assert by_gradient(tasks, 6.0).chosen == [0, 1, 0, 1, 0, 0]


@pytest.mark.parametrize(
    ("secs", "kernels", "trials"),
    [
        (math.inf, 1000, 8),
        (0.0, 1, 2),
        (280.0, 50, 8),  # 16 trials of each
        (279.0, 50, 4),
        (140.0, 50, 4),  # 8 trials of each
        (139.0, 50, 2),
        (1.0, 50, 2),
    ],
)
def test_half_of_what_there_is_time_for(secs, kernels, trials):
    assert batch_size(secs, kernels) == trials
