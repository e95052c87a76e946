# SPDX-License-Identifier: Apache-2.0
"""Simulated annealing on landscapes small enough for brute force."""

import math
import random
from collections import Counter

import pytest

from tvm_droplet_ms.autotvm.annealing import TopStates, anneal

HEIGHTS = [0.0, 0.6, 0.1, 0.2, 1.0, 0.3]
"""Two hills on a line: a chain must go down from the lower to reach the higher."""

NEVER = 10**9
"""An early stop that no run reaches."""


def top_of(size):
    return TopStates(size, key=lambda state: state, is_excluded=lambda state: False)


def near(generator, states):
    def mutate(state):
        other = state + generator.choice([-1, 1])
        return other if 0 <= other < states else None

    return mutate


def walk(
    start,
    steps,
    seed=0,
    heights=HEIGHTS,
    mutate=None,
    *,
    chains=200,
    early_stop=NEVER,
    top=None,
    scored=None,
):
    """The states in which the chains end; ``scored`` gets the states of each step."""
    generator = random.Random(seed)

    def score(states):
        if scored is not None:
            scored.append(list(states))
        return [heights[state] for state in states]

    starts = [start] * chains if isinstance(start, int) else start
    return anneal(
        starts,
        [heights[state] for state in starts],
        mutate or near(generator, len(heights)),
        score,
        steps=steps,
        early_stop=early_stop,
        top=top or top_of(1),
        generator=generator,
    )


def test_chains_leave_a_lower_hill_for_a_higher_one():
    ended = Counter(walk(1, 400))
    assert ended[4] > 150
    steep = [100 * height for height in HEIGHTS]
    assert Counter(walk(1, 400, heights=steep))[1] == 200


def test_chains_end_on_a_hill_once_the_temperature_is_low():
    """At the last steps the temperature is too low for any but the smallest loss."""
    assert all(HEIGHTS[state] in (0.6, 1.0) for state in walk(0, 2000))


def test_first_step_accepts_as_metropolis_does():
    """At temperature 1 a loss of 0.5 is accepted with a probability of exp(-0.5), 0.61."""
    heights = {0: 0.5, 1: 0.0}
    ended = [walk(0, 1, seed, heights, lambda state: 1) for seed in range(20)]
    share = sum(state for chains in ended for state in chains) / 4000
    assert share == pytest.approx(math.exp(-0.5), abs=0.03)


def test_second_of_two_steps_accepts_at_half_the_temperature():
    """The first step is certain; the step from 1 to 2 has probability exp(-0.5 / 0.5)."""
    heights = {0: 0.0, 1: 0.5, 2: 0.0}
    ended = [walk(0, 2, seed, heights, lambda state: state + 1) for seed in range(20)]
    share = sum(state == 2 for chains in ended for state in chains) / 4000
    assert share == pytest.approx(math.exp(-1.0), abs=0.03)


def test_chain_without_a_move_stays():
    assert walk(3, 50, mutate=lambda state: None) == [3] * 200


def test_moves_of_all_chains_are_scored_at_once():
    scored = []
    walk([0, 1, 2], 4, mutate=lambda state: state if state else None, scored=scored)
    assert scored == [[1, 2]] * 4


def test_annealing_stops_after_steps_without_a_better_state():
    """Only the start is ever seen: the first three moves change nothing, and there is no fourth."""
    scored = []
    walk([3], 100, mutate=lambda state: state, early_stop=3, top=top_of(4), scored=scored)
    assert scored == [[3]] * 3


def test_better_state_puts_off_early_stop():
    """A new state at each of 20 moves, and then none: 3 more moves after the last new one."""
    scored = []
    walk([0], 1000, 0, range(21), lambda state: min(state + 1, 20), early_stop=3, scored=scored)
    # Move 20 is step 19, so that the steps end before step 19 + 3.
    assert len(scored) == 22
    assert max(scored) == [20]


def test_best_of_a_small_landscape_is_found():
    """All 64 states of six bits with heights at random, against brute force."""
    for seed in range(5):
        generator = random.Random(seed)
        heights = [generator.random() for _ in range(64)]
        top = top_of(5)

        def flipped(state, generator=generator):
            return state ^ (1 << generator.randrange(6))

        walk(0, 500, seed, heights, flipped, chains=32, top=top)
        best = sorted(range(64), key=lambda state: -heights[state])[:5]
        assert [state for _, state in top.best()] == best


@pytest.mark.parametrize("seed", range(10))
def test_top_states_equal_the_first_of_a_sorted_list(seed):
    generator = random.Random(seed)
    excluded = set(generator.sample(range(50), 10))
    scores = [generator.random() for _ in range(50)]
    top = TopStates(8, key=lambda state: state, is_excluded=excluded.__contains__)
    offered = [generator.randrange(50) for _ in range(120)]
    for begin in range(0, 120, 6):
        states = offered[begin : begin + 6]
        before = top.best()
        changed = top.add(states, [scores[state] for state in states])
        assert changed == (top.best() != before)
    wanted = sorted(set(offered) - excluded, key=lambda state: -scores[state])[:8]
    assert top.best() == [(scores[state], state) for state in wanted]


def test_top_states_keep_one_state_of_a_key():
    top = TopStates(3, key=lambda state: state % 10, is_excluded=lambda state: False)
    assert top.add([1, 11, 21, 2], [0.1, 0.9, 0.5, 0.3])
    assert top.best() == [(0.3, 2), (0.1, 1)]
    assert not top.add([31], [2.0])
