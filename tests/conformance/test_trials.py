# SPDX-License-Identifier: Apache-2.0
"""The number of trials, their candidates and their outcomes."""

import math

import pytest

from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.runner import RunnerResult

from .driving import drive
from .objectives import (
    Noisy,
    bowl,
    constant,
    decisions_of,
    fail,
    goes_wrong,
    rugged,
    sometimes,
    spread,
    timed,
)
from .strategies import make_droplet
from .watching import follow
from .workloads import make_context

FAILURE = RunnerResult(None, "made-up run error")
NAN = RunnerResult([math.nan], None)
ZERO = RunnerResult([0.0], None)
UNMEASURED = RunnerResult([], "made-up: the disk is full")


def one_or_three(candidate):
    """The same time, once or three times over."""
    repeats = 1 if goes_wrong(decisions_of(candidate.sch)) else 3
    return timed(bowl, repeats)(candidate)


OBJECTIVES = {
    "one basin": timed(bowl),
    "one basin, three times": spread(bowl),
    "no structure": timed(rugged),
    "constant": timed(constant),
    "constant, three times": spread(constant),
    "all fail": fail,
    "all NaN": lambda _: NAN,
    "all zero": lambda _: ZERO,
    "some fail": sometimes(FAILURE, timed(bowl)),
    "some fail, noise": sometimes(FAILURE, Noisy(bowl, 0.2)),
    "some NaN": sometimes(NAN, timed(bowl)),
    "some NaN among three": sometimes(RunnerResult([1e-3, math.nan, 1e-3], None), spread(bowl)),
    "some zero": sometimes(ZERO, timed(bowl)),
    "some infinite": sometimes(RunnerResult([math.inf], None), timed(bowl)),
    "some negative": sometimes(RunnerResult([-1.0], None), timed(bowl)),
    "one time or three": one_or_three,
    "some could not be measured": sometimes(UNMEASURED, timed(bowl)),
}


@pytest.mark.parametrize("objective", OBJECTIVES.values(), ids=OBJECTIVES)
def test_contract(case, objective):
    """Batches and trials keep their limits, all trials are spent, no module is measured twice.

    A candidate that could not be measured is none: it may be proposed again.
    """
    driven = drive(
        make_context(case.make()),
        objective,
        max_trials=40,
        num_trials_per_iter=7,
        database=ms.database.MemoryDatabase(),
    )
    assert driven.ended
    assert all(0 < len(batch) <= 7 for batch in driven.batches)
    assert case.has_spent(len(driven.trials), 40)
    if "measure once" not in case.deviations:
        unmeasured = {trial.module for trial in driven.trials if trial.secs == ()}
        assert driven.repeated <= unmeasured


@pytest.mark.parametrize(
    ("max_trials", "num_trials_per_iter"), [(20, 7), (3, 7), (1, 1), (30, 1), (13, 13), (2, 64)]
)
def test_limits(case, max_trials, num_trials_per_iter):
    driven = drive(
        make_context(case.make()),
        timed(bowl),
        max_trials=max_trials,
        num_trials_per_iter=num_trials_per_iter,
    )
    assert driven.ended
    assert all(0 < len(batch) <= num_trials_per_iter for batch in driven.batches)
    assert len(driven.trials) == max_trials


def test_no_trials(case):
    driven = drive(make_context(case.make()), timed(bowl), max_trials=0)
    assert driven.ended
    assert driven.trials == []


def test_ended_stays_ended(case):
    context = make_context(case.make())
    assert drive(context, timed(bowl), max_trials=20, finish=False).ended
    for _ in range(3):
        assert context.search_strategy.generate_measure_candidates() is None
    context.search_strategy.post_tuning()


@pytest.mark.parametrize("relative", [0.001, 0.05, 0.5])
def test_noisy_times_cause_no_duplicate_measurements(relative):
    driven = drive(make_context(make_droplet()), Noisy(bowl, relative), max_trials=80)
    assert len(driven.trials) == 80
    assert not driven.repeated


def test_noisy_times_do_not_hide_slope():
    """A noise of a twentieth, on costs that differ by far more."""
    driven = drive(make_context(make_droplet()), Noisy(bowl, 0.05), max_trials=80)
    explored, descended = driven.trials[:12], driven.trials[40:]
    best = min(bowl(trial.decisions) for trial in explored)
    assert sum(bowl(trial.decisions) < best for trial in descended) > 10


def test_exploration_after_failures_keeps_batch_size():
    """The next batches are as large where the first ``explore_trials`` all fail."""
    context = make_context(make_droplet(explore_trials=12))
    driven = drive(context, fail, max_trials=40, num_trials_per_iter=64)
    assert [len(batch) for batch in driven.batches] == [12, 12, 12, 4]


@pytest.mark.parametrize("num_trials_per_iter", [5, 64])
def test_exploration_after_failures_of_a_database_is_in_batches_of_its_size(num_trials_per_iter):
    database = ms.database.MemoryDatabase()
    limits = {"database": database, "num_trials_per_iter": num_trials_per_iter}
    drive(make_context(make_droplet(explore_trials=8)), fail, max_trials=8, **limits)
    again = drive(make_context(make_droplet(explore_trials=8)), fail, max_trials=20, **limits)
    size = min(8, num_trials_per_iter)
    assert [len(batch) for batch in again.batches] == [size] * (20 // size) + [20 % size] * (
        20 % size > 0
    )


def test_several_threads(case):
    driven = drive(make_context(case.make(), num_threads=2), timed(bowl, repeats=2))
    assert len(driven.trials) == 40
    if "measure once" not in case.deviations:
        assert not driven.repeated


@pytest.mark.parametrize("bad", [FAILURE, NAN, ZERO], ids=["failure", "NaN", "zero"])
def test_bad_time_is_never_best(caplog, bad):
    with follow(caplog) as followed:
        driven = drive(make_context(make_droplet()), sometimes(bad, timed(bowl)), max_trials=80)
    well = [trial for trial in driven.trials if not goes_wrong(trial.decisions)]
    assert 0 < len(well) < len(driven.trials)
    assert followed.last.best_secs == pytest.approx(min(trial.secs[0] for trial in well))
    assert not any(goes_wrong(decisions) for decisions in followed.incumbents())


def test_candidates_describe_the_arguments(case):
    """A runner makes its arguments from ``args_info``."""
    context = make_context(case.make())
    context.pre_tuning(7, 7, database=ms.database.MemoryDatabase())
    for candidate in context.search_strategy.generate_measure_candidates():
        assert [list(info.shape) for info in candidate.args_info] == [[32, 32]] * 3
        assert decisions_of(candidate.sch)
