# SPDX-License-Identifier: Apache-2.0
"""Seeds are explored first; the other explorer fills the batch and goes on."""

import random
from functools import partial

import pytest
from conformance.driving import drive
from conformance.objectives import bowl, timed
from conformance.strategies import make_droplet
from conformance.workloads import LLVM, make_context, matmul, tile_all, tile_two

from tvm.s_tir.meta_schedule.database import MemoryDatabase
from tvm.s_tir.meta_schedule.runner import RunnerResult
from tvm_droplet_ms.search_strategy import RandomExplorer
from tvm_droplet_ms.search_strategy.candidates import ScreenedReplayer, TaskHistory
from tvm_droplet_ms.search_strategy.design_spaces import EncodedSpaces
from tvm_droplet_ms.search_strategy.explorers.base import Explorer, ExplorerRun, SearchContext
from tvm_droplet_ms.search_strategy.explorers.seeded import SeededExplorer, is_point_of

SEEDS = [(0, (4, 2, 2, 2, 1, 4, 4, 2, 8, 4)), (0, (1, 1, 1, 32, 32, 1, 1, 1, 32, 1))]


def search_context(space=tile_all, mod=None):
    mod = matmul() if mod is None else mod
    context = make_context(make_droplet(), mod, space)
    schedules = context.generate_design_space()
    return SearchContext(
        replayer=ScreenedReplayer(mod, [], random.Random(0)),
        history=TaskHistory(mod, LLVM),
        schedules=schedules,
        spaces=EncodedSpaces([schedule.trace for schedule in schedules]),
        generator=random.Random(0),
        prior=None,
        cost_model=None,
        seed=1,
    )


class Watched(Explorer):
    """A random explorer that counts what it is asked."""

    def __init__(self, log=None):
        self.log = [] if log is None else log

    def begin(self, search):
        return WatchedExploration(RandomExplorer().begin(search), self.log)

    def clone(self):
        return Watched(self.log)


class WatchedExploration(ExplorerRun):
    def __init__(self, exploration: ExplorerRun, log):
        self.exploration = exploration
        self.log = log

    def enter(self, batch_size):
        self.log.append(("enter", batch_size))
        self.exploration.enter(batch_size)

    def leave(self):
        self.exploration.leave()

    def ask(self, count):
        self.log.append(("ask", count))
        return self.exploration.ask(count)

    def tell(self, candidates, results):
        self.log.append(("tell", len(candidates)))
        self.exploration.tell(candidates, results)


def points(search, batch):
    return [search.spaces.find(candidate.trace) for candidate in batch]


def test_seeds_come_first_and_the_rest_is_filled():
    search, inner = search_context(), Watched()
    exploration = SeededExplorer(lambda _: SEEDS, inner).begin(search)
    exploration.enter(6)
    batch = exploration.ask(6)
    assert points(search, batch)[:2] == SEEDS
    assert len({candidate.module for candidate in batch}) == 6
    assert inner.log == [("enter", 6), ("ask", 4)]
    exploration.tell(batch, [RunnerResult([1e-3], None)] * 6)
    assert inner.log[-1] == ("tell", 4)
    assert not set(points(search, exploration.ask(3))) & set(SEEDS)


def test_other_explorer_does_not_begin_before_it_is_needed():
    search, inner = search_context(), Watched()
    exploration = SeededExplorer(lambda _: SEEDS, inner).begin(search)
    exploration.enter(2)
    assert points(search, exploration.ask(1)) == SEEDS[:1]
    exploration.tell([], [])
    assert points(search, exploration.ask(1)) == SEEDS[1:]
    assert inner.log == []
    exploration.ask(1)
    assert inner.log == [("enter", 2), ("ask", 1)]


def test_seeds_are_asked_for_when_the_task_is_explored():
    asked = []
    search = search_context()
    explorer = SeededExplorer(lambda context: asked.append(context) or SEEDS, Watched())
    exploration = explorer.begin(search)
    exploration.enter(4)
    assert asked == []
    exploration.ask(4)
    exploration.ask(4)
    assert asked == [search]


def test_measured_and_equal_seeds_are_left_out():
    search = search_context()
    measured = search.replayer.replay(search.spaces.trace(SEEDS[0]))
    search.history.add(measured, (1e-3,))
    exploration = SeededExplorer(lambda _: [*SEEDS, SEEDS[1]], Watched()).begin(search)
    exploration.enter(3)
    found = points(search, exploration.ask(3))
    assert found[0] == SEEDS[1]
    assert found.count(SEEDS[1]) == 1 and SEEDS[0] not in found


@pytest.mark.parametrize(
    "point",
    [
        (1, SEEDS[0][1]),
        (-1, SEEDS[0][1]),
        (0, SEEDS[0][1][:-1]),
        (0, ()),
        (0, (0, *SEEDS[0][1][1:])),
        (0, (8, *SEEDS[0][1][1:])),
        (0, (-4, -2, *SEEDS[0][1][2:])),
    ],
)
def test_what_is_no_point_of_the_spaces_is_left_out(point):
    search = search_context()
    assert is_point_of(search.spaces, SEEDS[0])
    assert not is_point_of(search.spaces, point)
    exploration = SeededExplorer(lambda _: [point, SEEDS[0]], Watched()).begin(search)
    exploration.enter(1)
    assert points(search, exploration.ask(1)) == SEEDS[:1]


def test_small_space_is_exhausted_with_seeds_in_it():
    search = search_context(tile_two)
    seed = (0, search.spaces.start(0))
    exploration = SeededExplorer(lambda _: [seed], Watched()).begin(search)
    exploration.enter(64)
    batch = exploration.ask(64)
    assert len(batch) == len({candidate.module for candidate in batch}) == 25


def test_strategy_measures_the_seeds_in_its_first_batch():
    context = make_context(make_droplet(explorer=SeededExplorer(lambda _: SEEDS)))
    driven = drive(context, timed(bowl), max_trials=30)
    flat = [tuple(sum(trial.decisions, ())) for trial in driven.batches[0]]
    assert flat[:2] == [values for _, values in SEEDS]
    assert len(driven.trials) == 30
    assert not driven.repeated


def test_resumed_task_measures_new_seeds_before_it_descends():
    database = MemoryDatabase()
    run = partial(drive, objective=timed(bowl), max_trials=12, database=database)
    first = run(make_context(make_droplet(explore_trials=4)))
    (known, *_), *_ = first.batches
    seeds = [(0, tuple(sum(known.decisions, ()))), *SEEDS]
    explorer = SeededExplorer(lambda _: seeds, Watched())
    again = run(make_context(make_droplet(explore_trials=4, explorer=explorer)))
    flat = [tuple(sum(trial.decisions, ())) for trial in again.batches[0]]
    # Its own is measured, and nothing else is explored.
    assert flat == [values for _, values in SEEDS]
    assert len(again.trials) == 12 and not again.repeated
    resumed = run(make_context(make_droplet(explore_trials=4, explorer=explorer.clone())))
    assert not {tuple(sum(trial.decisions, ())) for trial in resumed.batches[0]} & set(flat)
