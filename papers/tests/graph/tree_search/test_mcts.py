# SPDX-License-Identifier: Apache-2.0
"""The tree search on a toy that is small enough to enumerate: a knapsack whose items interact.

As in an e-graph, more items never cost more, and what they gain depends on each other.
"""

from itertools import combinations

import numpy as np

from tvm_droplet_papers.graph.tree_search import mcts
from tvm_droplet_papers.graph.tree_search.mcts import TreeSearch

ITEMS = 11
SEEDS = range(100)


class Toy:
    """One step after the other, and nothing is filled in."""

    def actions(self, state):
        return ["on"]

    def filled(self, state, actions, parts=1, generator=None):
        return state


class Knapsack(Toy):
    """States are sets of items that fit; pairs of some items gain more than both."""

    def __init__(self, seed):
        rng = np.random.default_rng(seed)
        self.weights = rng.uniform(0.5, 1.5, ITEMS)
        self.capacity = self.weights.sum() / 2
        self.gains = rng.uniform(0, 1, ITEMS) * (rng.random(ITEMS) < 0.6)
        pairs = np.maximum(rng.normal(0, 2, (ITEMS, ITEMS)), 0)
        self.pairs = np.triu(pairs * (rng.random((ITEMS, ITEMS)) < 0.15), 1)

    def actions(self, state):
        return [str(item) for item in range(ITEMS)]

    def step(self, state, action):
        after = state | {int(action)}
        fits = self.weights[list(after)].sum() <= self.capacity
        return after if fits and len(after) > len(state) else None

    def cost(self, state):
        items = list(state)
        return 20 - self.gains[items].sum() - self.pairs[np.ix_(items, items)].sum()

    def enumerated(self):
        sets = [frozenset(c) for k in range(ITEMS + 1) for c in combinations(range(ITEMS), k)]
        return [s for s in sets if self.weights[list(s)].sum() <= self.capacity]


def searched(knapsack, seed, budget):
    search = TreeSearch(knapsack, seed)
    return search.run(frozenset(), max_costs=budget, max_simulations=2 * budget)


def random_choice(knapsack, seed, budget):
    rng = np.random.default_rng(seed)
    costs = {}
    for _ in range(budget):
        state = frozenset()
        while True:
            steps = [knapsack.step(state, action) for action in knapsack.actions(state)]
            steps = [after for after in steps if after is not None]
            if not steps:
                break
            state = steps[rng.integers(len(steps))]
        # Priced at the end only, as roll-outs are: the rest cannot be better.
        costs.setdefault(state, knapsack.cost(state))
    return min(costs.values())


def test_finds_the_optimum_at_a_quarter_of_the_enumeration():
    found = drawn = 0
    for seed in SEEDS:
        knapsack = Knapsack(seed)
        states = knapsack.enumerated()
        best, budget = min(map(knapsack.cost, states)), len(states) // 4
        result = searched(knapsack, seed, budget)
        # The simulation under way is finished.
        assert result.costs <= budget + 1
        found += result.cost <= best + 1e-9
        drawn += random_choice(knapsack, seed, budget) <= best + 1e-9
    assert found >= 95
    assert found > drawn


class Sequence(Toy):
    """All letters fit, but each only behind those before it: one order of 120 has them all."""

    def actions(self, state):
        return "abcde"

    def step(self, state, action):
        return state + action if action not in state and all(action > c for c in state) else None

    def cost(self, state):
        return 5.0 - len(state)


def test_the_first_roll_out_is_saturation():
    for seed in range(10):
        assert TreeSearch(Sequence(), seed=seed).run("", max_costs=2).best == "abcde"


def test_one_seed_is_one_search():
    runs = [searched(Knapsack(3), 7, 100) for _ in range(2)]
    assert runs[0] == runs[1]


def test_no_time_is_the_first_state():
    result = TreeSearch(Knapsack(0)).run(frozenset(), time_limit=-1.0)
    assert (result.best, result.simulations) == (frozenset(), 0)


def test_ends_where_everything_was_seen():
    class Line(Toy):
        """Three steps in a row."""

        def step(self, state, action):
            return state + 1 if state < 3 else None

        def cost(self, state):
            return 3.0 - state

    result = TreeSearch(Line()).run(0)
    assert (result.best, result.cost) == (3, 0.0)


def test_the_first_roll_out_looks_at_the_clock(monkeypatch):
    """Of a large graph it may take as long as the whole limit, many times over."""

    class Endless(Toy):
        """A thousand steps of a second each."""

        now = 0.0

        def step(self, state, action):
            self.now += 1.0
            return state + 1 if state < 1000 else None

        def cost(self, state):
            return 1000.0 - state

    line = Endless()
    monkeypatch.setattr(mcts.time, "perf_counter", lambda: line.now)
    result = TreeSearch(line).run(0, time_limit=5.0)
    assert line.now <= 10.0
    assert result.best >= 5
