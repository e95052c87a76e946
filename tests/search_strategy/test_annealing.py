# Licensed to the Apache Software Foundation (ASF) under one
# or more contributor license agreements.  See the NOTICE file
# distributed with this work for additional information
# regarding copyright ownership.  The ASF licenses this file
# to you under the Apache License, Version 2.0 (the
# "License"); you may not use this file except in compliance
# with the License.  You may obtain a copy of the License at
#
#   http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing,
# software distributed under the License is distributed on an
# "AS IS" BASIS, WITHOUT WARRANTIES OR CONDITIONS OF ANY
# KIND, either express or implied.  See the License for the
# specific language governing permissions and limitations
# under the License.
"""Annealing, on states small enough to know all of."""

import random
from collections import Counter

import pytest

from tvm_droplet_ms.search_strategy.annealing import anneal

HEIGHTS = [0.0, 0.6, 0.1, 0.2, 1.0, 0.3]
"""Two hills on a line: a chain must go down from the lower to reach the higher."""


def near(generator):
    def mutate(state):
        other = state + generator.choice([-1, 1])
        return other if 0 <= other < len(HEIGHTS) else None

    return mutate


def walk(start, steps, seed=0, heights=HEIGHTS, mutate=None):
    generator = random.Random(seed)
    return anneal(
        [start] * 200,
        [heights[start]] * 200,
        mutate or near(generator),
        lambda states: [heights[state] for state in states],
        steps=steps,
        generator=generator,
    )


def test_leaves_a_lower_hill():
    """A hill climber stays on it."""
    ended = Counter(walk(1, 400))
    assert ended[4] > 150
    steep = [100 * height for height in HEIGHTS]
    assert Counter(walk(1, 400, heights=steep))[1] == 200


def test_the_last_steps_only_climb():
    """From the last step but one, the temperature is too low for any but the smallest loss."""
    assert all(HEIGHTS[state] in (0.6, 1.0) for state in walk(0, 2000))


def test_the_first_step_accepts_as_metropolis_does():
    """At temperature 1 a loss of 0.5 is accepted with a probability of exp(-0.5), 0.61."""
    heights = {0: 0.5, 1: 0.0}
    ended = [walk(0, 1, seed, heights, lambda state: 1) for seed in range(20)]
    share = sum(state for chains in ended for state in chains) / 4000
    assert share == pytest.approx(0.6065, abs=0.03)


def test_a_chain_without_a_move_stays():
    assert walk(3, 50, mutate=lambda state: None) == [3] * 200


def test_all_moves_are_scored_at_once():
    asked = []

    def score(states):
        asked.append(len(states))
        return [0.0] * len(states)

    generator = random.Random(0)
    anneal([0, 1, 2], [0.0] * 3, lambda s: s if s else None, score, steps=4, generator=generator)
    assert asked == [2] * 4
