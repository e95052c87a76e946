# SPDX-License-Identifier: Apache-2.0
"""The explorer takes evolution's proposals by rank, and a share at random."""

import random
from collections import Counter
from types import SimpleNamespace

import pytest
from conformance.workloads import LLVM, make_context, matmul, tile_two

from tvm.s_tir import Trace
from tvm.s_tir import meta_schedule as ms
from tvm_droplet_ms.search_strategy.candidates import ScreenedReplayer, TaskHistory
from tvm_droplet_ms.search_strategy.explorers.evolutionary import EvolutionaryExploration


class Proposes:
    """Evolution that proposes given candidates at once: TVM's random ones are the last."""

    eps_greedy = 0.25

    def __init__(self, candidates):
        self.rounds = [[SimpleNamespace(sch=one.schedule) for one in candidates]]

    def generate_measure_candidates(self):
        return self.rounds.pop() if self.rounds else None


@pytest.fixture(scope="module")
def candidates():
    mod = matmul()
    context = make_context(ms.search_strategy.ReplayTrace(), mod, tile_two)
    (space,) = context.generate_design_space()
    replayer = ScreenedReplayer(mod, [], random.Random(0))
    found = {}
    while len(found) < 12:
        candidate = replayer.replay(Trace(space.trace.insts, {}))
        found.setdefault(candidate.module, candidate)
    return mod, list(found.values())


@pytest.mark.parametrize(
    ("measured", "count", "expected"),
    [
        # Nothing is known: all that was asked for, as it comes.
        ([], 12, list(range(12))),
        # A surplus for four known ones of which one is proposed: a quarter is of the last.
        ([1], 8, [0, 2, 3, 4, 5, 6, 10, 11]),
        ([], 4, [0, 1, 2, 11]),
        ([0, 1, 2, 3], 8, [4, 5, 6, 7, 8, 9, 10, 11]),
    ],
)
def test_a_share_of_every_batch_is_random(candidates, measured, count, expected):
    mod, proposed = candidates
    history = TaskHistory(mod, LLVM)
    for place in measured:
        history.add(proposed[place], (1e-3,))
    replayer = SimpleNamespace(dropped=Counter())
    search = SimpleNamespace(schedules=[], history=history, replayer=replayer)
    exploration = EvolutionaryExploration(Proposes(proposed), search, None)
    modules = [candidate.module for candidate in proposed]
    batch = exploration.ask(count)
    assert [modules.index(candidate.module) for candidate in batch] == expected
    # What was left out is proposed when evolution has nothing else.
    rest = {modules.index(candidate.module) for candidate in exploration.ask(12)}
    assert rest == set(range(12)) - set(expected) - set(measured)
