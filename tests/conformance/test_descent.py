# SPDX-License-Identifier: Apache-2.0
"""The descent of DropletStrategy as a black box: its end point and its log."""

import itertools
import re
from collections.abc import Callable, Iterator
from itertools import pairwise

import pytest
import tvm_ffi

from tvm.s_tir.meta_schedule.database import MemoryDatabase
from tvm.s_tir.meta_schedule.runner import RunnerResult

from .driving import Drive, drive
from .objectives import Decisions, bowl, decisions_of, rugged, spread, timed
from .strategies import make_droplet
from .watching import follow
from .workloads import Reject, make_context, tile_two

INNERMOST_LIMITS = (32, 32, 16)
"""Neighbors in ``tile_all``, whose extents are powers of two."""


def neighbors(decisions: Decisions) -> Iterator[Decisions]:
    """One factor of two moved from one position of a tile to another, counted afresh here."""
    for which, tile in enumerate(decisions):
        for source in range(len(tile)):
            for target in range(len(tile)):
                moved = list(tile)
                if source == target or moved[source] % 2:
                    continue
                moved[source] //= 2
                moved[target] *= 2
                if moved[-1] <= INNERMOST_LIMITS[which]:
                    yield (*decisions[:which], tuple(moved), *decisions[which + 1 :])


def assert_optimum(*runs: Drive, cost: Callable[[Decisions], float] = bowl) -> set[Decisions]:
    """The best of what was measured has no better neighbor."""
    measured = {trial.decisions for run in runs for trial in run.trials}
    best = min(measured, key=cost)
    assert all(cost(best) <= cost(neighbor) for neighbor in neighbors(best))
    return measured


@pytest.mark.parametrize("measure", [timed, spread], ids=["single", "three times"])
def test_ends_at_an_optimum_when_little_is_expected(measure):
    driven = drive(make_context(make_droplet(stop="auto")), measure(bowl), max_trials=2000)
    assert driven.ended
    assert 32 < len(driven.trials) < 400
    assert_optimum(driven)


def test_ends_earlier_near_the_roofline(caplog):
    """The same search, of a kernel at its roofline and of one that has room."""
    context = make_context(make_droplet())
    bound = tvm_ffi.get_global_func("tvm_droplet_ms.roofline")(context.mod, context.target)
    ends = []
    for share in (1.0, 0.9, 0.5):
        with follow(caplog) as followed:
            strategy = make_droplet(stop=0.02)
            driven = drive(make_context(strategy), timed(lambda _: bound / share), max_trials=999)
        ends.append(len(driven.trials))
        ((converged, message),) = followed.events("converged")
        assert converged.forecast.gain < 0.02 and str(converged.forecast) in message
    assert ends[0] < ends[1] < ends[2]


def test_smooth_cost_is_descended_to_its_optimum_in_few_trials():
    driven = drive(make_context(make_droplet()), timed(bowl), max_trials=60)
    assert_optimum(driven)


def test_search_continues_without_stopping_rule(caplog):
    with follow(caplog) as followed:
        driven = drive(make_context(make_droplet(stop=None)), timed(bowl), max_trials=200)
    assert len(driven.trials) == 200
    phases = [progress.phase for progress, _ in followed.events("phase")]
    assert phases == ["explore", "descend"]


def test_log_follows_search(caplog):
    """Phases, batches and steps; and the best so far in each."""
    with follow(caplog) as followed:
        driven = drive(
            make_context(make_droplet(), task_name="the task"), timed(bowl), max_trials=120
        )
    events = {progress.event for progress, _ in followed.events()}
    assert events == {"phase", "batch", "step", "finished"}
    assert all("the task" in message for _, message in followed.events())
    assert all(progress.task == "the task" for progress, _ in followed.events())

    batches = [progress for progress, _ in followed.events("batch")]
    measured = 0
    assert len(batches) == len(driven.batches)
    for progress, batch in zip(batches, driven.batches):
        measured += len(batch)
        assert progress.trials == measured
        best = min(bowl(trial.decisions) for trial in driven.trials[:measured])
        assert progress.best_secs == pytest.approx(best)
    assert decisions_of_best(batches[-1], driven) == best

    for _, message in followed.events("step"):
        assert "->" in message
        assert "%" in message
    assert [progress.event for progress, _ in followed.events()][-1] == "finished"


def decisions_of_best(progress, driven) -> float:
    """The cost of the trace that a progress calls the best."""
    best = str(progress.best_trace)
    return next(bowl(trial.decisions) for trial in driven.trials if str(trial.trace) == best)


def test_every_step_is_logged_also_that_of_the_last_batch(caplog):
    """Each candidate is faster than all before it, so that each batch of a descent is a step."""
    fallen = itertools.count(1)
    with follow(caplog) as followed:
        drive(make_context(make_droplet()), timed(lambda _: 1.0 / next(fallen)), max_trials=60)
    descended = [each for each, _ in followed.events("batch") if each.phase == "descend"]
    steps = [each for each, _ in followed.events("step")]
    assert len(descended) > 1
    assert [each.best_secs for each in steps] == [each.best_secs for each in descended]


def test_steps_of_the_log_improve(caplog):
    with follow(caplog) as followed:
        drive(make_context(make_droplet()), timed(rugged), max_trials=200)
    best = [progress.best_secs for progress, _ in followed.events("step")]
    assert len(best) > 1
    assert all(after < before for before, after in pairwise(best))


def test_dropped_proposals_are_counted_by_postprocessor(caplog):
    calls = [0]

    def is_narrow(sch) -> bool:
        narrow = any(tile[-1] < 2 for tile in decisions_of(sch))
        calls[0] += narrow
        return narrow

    strategy = make_droplet(stop="auto")
    with follow(caplog) as followed:
        drive(make_context(strategy, postprocs=[Reject(is_narrow)]), timed(bowl), max_trials=500)
    ((converged, message),) = followed.events("converged")
    dropped = re.search(r"proposals dropped: (\d+) by \S*PyPostproc", message)
    assert dropped
    assert int(dropped[1]) == calls[0] > 0
    (count,) = converged.dropped.values()
    assert count == calls[0]
    counts = [sum(progress.dropped.values()) for progress, _ in followed.events()]
    assert counts == sorted(counts), "each record has the count of its time"
    assert counts[0] < counts[-1]


def test_all_failing_shows_the_first_error_and_the_count_and_no_best(caplog):
    errors = iter(range(1000))
    with follow(caplog) as followed:
        drive(
            make_context(make_droplet()),
            lambda _: RunnerResult(None, f"build error {next(errors)}"),
            max_trials=20,
        )
    assert any("20" in text and "build error 0" in text for text in followed.warnings)
    assert followed.last.best_secs == float("inf")
    assert followed.last.best_trace is None


def test_descends_although_the_best_record_is_of_another_design_space(caplog):
    """After a change of the schedule rules, a database's best may be no point of the space."""
    database = MemoryDatabase()
    context = make_context(make_droplet(), space=tile_two)
    drive(context, timed(lambda _: 1e-9), max_trials=1, database=database)
    strategy = make_droplet(stop="auto")
    with follow(caplog) as followed:
        driven = drive(make_context(strategy), timed(bowl), max_trials=500, database=database)
    assert driven.ended and [p.event for p, _ in followed.events("converged")] == ["converged"]
    assert_optimum(driven)
