# SPDX-License-Identifier: Apache-2.0
"""The descent on a surrogate, on real traces and made-up times."""

import math
import random

import numpy as np
import pytest
from conformance.objectives import bowl, decisions_of
from conformance.workloads import LLVM, make_context, matmul, tile_all, tile_and_annotate

from tvm.ir.utils import derived_object
from tvm.s_tir import Trace
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.database import TuningRecord
from tvm_droplet_ms.search_strategy.candidates import ScreenedReplayer, TaskHistory
from tvm_droplet_ms.search_strategy.descents import surrogate
from tvm_droplet_ms.search_strategy.descents.belief import Belief
from tvm_droplet_ms.search_strategy.descents.surrogate import SurrogateDescent
from tvm_droplet_ms.search_strategy.design_spaces import EncodedSpaces
from tvm_droplet_ms.search_strategy.explorers.base import SearchContext
from tvm_droplet_ms.search_strategy.published.decisions import Prober, largest_parallel_extent
from tvm_droplet_ms.search_strategy.stopping import StopRule


class Search:
    """A descent over the matrix product of the conformance suite."""

    def __init__(self, space=tile_all, postprocs=(), database=None) -> None:
        context = make_context(ms.search_strategy.ReplayTrace(), space=space)
        schedules = list(context.generate_design_space())
        self.traces = [schedule.trace for schedule in schedules]
        self.replayer = ScreenedReplayer(context.mod, list(postprocs), random.Random(1))
        self.history = TaskHistory(context.mod, LLVM)
        if database is not None:
            self.history.load(database, self.replayer)
        search = SearchContext(
            replayer=self.replayer,
            history=self.history,
            schedules=schedules,
            spaces=EncodedSpaces(self.traces),
            generator=random.Random(1),
            prior=None,
            cost_model=None,
            seed=1,
        )
        prober = Prober(self.replayer, largest_parallel_extent(self.traces))
        self.descent = SurrogateDescent(search, prober, lambda: 4, StopRule(None))

    def explore(self, count: int, cost=bowl) -> None:
        while len(self.history) < count:
            candidate = self.replayer.replay(Trace(self.traces[0].insts, {}))
            self.measure([candidate], cost)

    def measure(self, batch, cost=bowl) -> list[float]:
        costs = [cost(decisions_of(candidate.schedule)) for candidate in batch]
        for candidate, secs in zip(batch, costs, strict=True):
            self.history.add(candidate, (secs,) if secs else ())
        return costs


def factors_moved(before, after) -> int:
    """The factors of two that must go from one position of a tile to another."""
    return sum(
        sum(max(0, round(math.log2(old / new))) for old, new in zip(*tiles, strict=True))
        for tiles in zip(before, after, strict=True)
    )


def test_descent_proposes_nothing_before_a_successful_measurement():
    search = Search()
    assert search.descent.propose(4) == []
    search.explore(3, cost=lambda _: 0.0)
    assert search.descent.propose(4) == [], "all of them failed"


def test_proposals_are_new_distinct_and_as_many_as_asked():
    search = Search()
    search.explore(8)
    seen = {module for module, _, _ in search.history.measurements()}
    for count in (1, 5, 12):
        batch = search.descent.propose(count)
        modules = [candidate.module for candidate in batch]
        assert len(set(modules)) == count
        assert not seen & set(modules)
        search.measure(batch)
        seen |= set(modules)


def test_surrogate_beats_chance():
    """On a smooth cost most proposals beat the median of the exploration; of random ones, half."""
    search = Search()
    search.explore(24)
    costs = sorted(secs[0] for _, _, secs in search.history.measurements())
    proposed = search.measure(search.descent.propose(8))
    assert sum(cost < costs[12] for cost in proposed) >= 7


def test_proposal_that_is_not_measured_does_not_count_as_tried(monkeypatch):
    """Only adjacent steps are proposed, so that discarded proposals are neighbors."""
    monkeypatch.setattr(surrogate, "RANDOM_POINTS", 0)
    monkeypatch.setattr(surrogate, "DRAFTED_POINTS", 0)

    def measured_around(discarded: int) -> int:
        search = Search()
        search.explore(1)
        for _ in range(discarded):
            assert len(search.descent.propose(4)) == 4
        while batch := search.descent.propose(5):
            search.measure(batch, cost=lambda _: 1.0)
        return len(search.history)

    assert measured_around(3) == measured_around(0) > 5


def test_point_that_a_postprocessor_rejects_is_not_tried_again():
    rejected: list[object] = []

    @derived_object
    class Reject(ms.postproc.PyPostproc):
        def _initialize_with_tune_context(self, context) -> None:
            pass

        def apply(self, schedule) -> bool:
            decisions = decisions_of(schedule)
            if decisions[0][-1] > 1:
                rejected.append(decisions)
                return False
            return True

        def clone(self):
            return Reject()

    search = Search(postprocs=[Reject()])
    while len(search.history) < 6:
        candidate = search.replayer.replay(Trace(search.traces[0].insts, {}))
        if candidate:
            search.measure([candidate])
    rejected.clear()
    for _ in range(6):
        search.measure(search.descent.propose(4))
    assert rejected
    assert len(set(rejected)) == len(rejected)


def test_simplified_trace_of_a_record_is_the_same_point():
    """A database holds traces without their dead instructions."""
    search = Search(space=tile_and_annotate)
    candidate = search.replayer.replay(Trace(search.traces[0].insts, {}))
    spaces = EncodedSpaces(search.traces)
    point = spaces.find(candidate.trace)
    assert point is not None
    assert spaces.find(candidate.trace.simplified(remove_postproc=True)) == point


def test_trace_of_another_space_has_no_point():
    other = Search(space=tile_and_annotate)
    assert EncodedSpaces(Search().traces).find(other.traces[0]) is None


@pytest.mark.parametrize("count", [10, 300])
def test_surrogate_is_fitted_to_the_best_half_and_the_latest(count, monkeypatch):
    monkeypatch.setattr(surrogate, "MAX_FIT_POINTS", 100)
    secs = {(0, (value,)): float((value * 37) % count + 1) for value in range(count)}
    kept = surrogate._fit_points(secs)
    if count == 10:
        assert kept == secs
        return
    assert len(kept) <= 100
    assert set(list(secs)[-50:]) <= set(kept)
    assert set(sorted(secs, key=secs.get)[:50]) <= set(kept)
    assert list(kept) == [point for point in secs if point in kept]


def test_of_earlier_runs_more_than_the_extremes_are_fitted(monkeypatch, tmp_path):
    """A database gives its records by their times, whenever they were measured."""
    monkeypatch.setattr(surrogate, "MAX_FIT_POINTS", 40)
    first, fitted = Search(), []
    database = ms.database.JSONDatabase(work_dir=str(tmp_path))
    first.explore(120)
    workload = database.commit_workload(matmul())
    for _, trace, secs in first.history.measurements():
        database.commit_tuning_record(TuningRecord(trace, workload, list(secs), LLVM, []))

    def belief(spaces, values, *means):
        fitted.append(dict(values))
        return Belief(spaces, values, *means)

    monkeypatch.setattr(surrogate, "Belief", belief)
    for _ in range(2):
        search = Search(database=database)
        search.measure(search.descent.propose(8))
        search.descent.propose(1)
    before, after, *again = fitted
    assert again == [before, after] and 30 <= len(before) <= 40
    ranks = sorted(secs for _, _, (secs,) in first.history.measurements())
    found = sorted(ranks[0] / -value for value in before.values())
    assert found[:20] == pytest.approx(ranks[:20])
    # The others are drawn from all: the slowest alone would say little.
    assert ranks[50] < np.median(found[20:]) < ranks[90]
    # What this run has measured takes the place of what was drawn.
    assert len(after.keys() - before.keys()) == 8 and len(after) <= 40


def test_adjacent_steps_change_one_factor(monkeypatch):
    """Without other points, every proposal is a neighbor of the point that is believed best."""
    monkeypatch.setattr(surrogate, "RANDOM_POINTS", 0)
    monkeypatch.setattr(surrogate, "DRAFTED_POINTS", 0)
    search = Search()
    search.explore(8)
    proposed = [decisions_of(found.schedule) for found in search.descent.propose(4)]
    measured = [
        decisions_of(search.replayer.restore(trace).schedule)
        for _, trace, _ in search.history.measurements()
    ]
    assert any(
        all(factors_moved(start, decisions) == 1 for decisions in proposed) for start in measured
    )
