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
"""Coordinate descent on spaces small enough to enumerate."""

import random
from itertools import pairwise, product
from math import inf, prod

import pytest

from tvm_droplet_ms.search_strategy.coordinate_descent import CoordinateDescent, Tier
from tvm_droplet_ms.search_strategy.neighbourhood import (
    ChoiceAxis,
    Neighbourhood,
    OrderedAxis,
    TileAxis,
)


def tilings(extent, length):
    if length == 1:
        return [(extent,)]
    return [
        (first, *rest)
        for first in range(1, extent + 1)
        if extent % first == 0
        for rest in tilings(extent // first, length - 1)
    ]


class Space:
    """A product of parts, each with its points, its axis, and what is adjacent in it."""

    def __init__(self, *parts):
        self.slices, axes, start = [], [], 0
        for _, axis, width, _ in parts:
            axes.append(axis(start))
            self.slices.append(slice(start, start + width))
            start += width
        self.parts = parts
        self.neighbourhood = Neighbourhood(tuple(axes))
        self.points = [sum(point, ()) for point in product(*(values for values, *_ in parts))]

    def adjacent(self, before, after):
        changed = [
            index for index, place in enumerate(self.slices) if before[place] != after[place]
        ]
        if len(changed) != 1:
            return False
        place = self.slices[changed[0]]
        return self.parts[changed[0]][3](before[place], after[place])

    def neighbours(self, point):
        return [other for other in self.points if self.adjacent(point, other)]


def tile(extent, length, limit=-1):
    values = [t for t in tilings(extent, length) if limit == -1 or t[-1] <= limit]
    primes = [
        p for p in range(2, extent + 1) if extent % p == 0 and all(p % q for q in range(2, p))
    ]

    def adjacent(before, after):
        ratios = [b / a for a, b in zip(before, after) if a != b]
        return len(ratios) == 2 and prod(ratios) == pytest.approx(1) and max(ratios) in primes

    return values, lambda start: TileAxis(start, length, limit), length, adjacent


def ordered(*values):
    def adjacent(before, after):
        return abs(values.index(before[0]) - values.index(after[0])) == 1

    return [(value,) for value in values], lambda start: OrderedAxis(start, values), 1, adjacent


def choice(count):
    values = [(value,) for value in range(count)]
    return values, lambda start: ChoiceAxis(start, count), 1, lambda before, after: before != after


SPACES = {
    "tiles": Space(tile(36, 3), tile(30, 2, 6)),
    "ordered": Space(ordered(-1, 2, 3, 7), ordered(0, 1, 2, 3, 4), ordered(1, 8, 64)),
    "mixed": Space(tile(24, 2, 8), ordered(-1, 1, 4), choice(4), tile(7, 2)),
    "one axis": Space(tile(64, 4)),
}


class Run:
    """Drives a descent as its caller does, and checks every proposal on the way."""

    def __init__(self, space, start, cost, batch_size):
        self.descent = CoordinateDescent(start, space.neighbourhood)
        self.space, self.cost, self.batch_size = space, cost, batch_size
        self.told = [start]
        self.incumbents = [start]

    def batch(self):
        proposals = self.descent.ask()
        points = [proposal.point for proposal in proposals]
        assert proposals, "not converged, yet nothing to evaluate"
        assert len(points) == len(set(points))
        assert not set(points) & set(self.told)
        assert set(points) <= set(self.space.points)
        for proposal in proposals:
            assert proposal.point == self.space.neighbourhood.step(
                self.descent.incumbent, *proposal.directions
            )
        tiers = [proposal.tier for proposal in proposals]
        assert tiers == sorted(tiers)
        batch = proposals[: self.batch_size]
        self.told += [proposal.point for proposal in batch]
        threshold = self.cost(self.descent.incumbent)
        improvements = [p for p in batch if self.cost(p.point) < threshold]
        for proposal in batch:
            if proposal not in improvements:
                self.descent.reject(proposal)
        if improvements:
            best = min(improvements, key=lambda proposal: self.cost(proposal.point))
            self.descent.accept(best, improvements, best.point, self.space.neighbourhood)
            assert self.descent.incumbent == best.point
            self.incumbents.append(best.point)

    def run(self):
        while not self.descent.converged:
            self.batch()
        assert self.descent.ask() == []
        return self.descent.incumbent


def smooth(space, generator):
    """A bowl around a point of the space, with a little roughness."""
    centre = generator.choice(space.points)
    weights = [generator.uniform(0.1, 2.0) for _ in centre]
    return {
        point: sum(w * (a - b) ** 2 for w, a, b in zip(weights, point, centre))
        + generator.uniform(0.0, 0.5)
        for point in space.points
    }


def rugged(space, generator):
    return {point: generator.random() for point in space.points}


def ties(space, generator):
    """Few distinct values, and points that cannot be evaluated."""
    return {point: generator.choice([1.0, 2.0, 3.0, inf]) for point in space.points}


@pytest.mark.parametrize("table", [smooth, rugged, ties])
@pytest.mark.parametrize("name", SPACES)
@pytest.mark.parametrize("batch_size", [1, 2, 5, 1000])
def test_ends_in_a_local_optimum(name, table, batch_size):
    space = SPACES[name]
    for seed in range(8):
        generator = random.Random(f"{name} {table.__name__} {seed}")
        costs = table(space, generator)
        start = generator.choice(space.points)
        run = Run(space, start, costs.__getitem__, batch_size)
        found = run.run()
        assert all(costs[found] <= costs[other] for other in space.neighbours(found))
        assert costs[found] == min(costs[point] for point in run.told)
        assert len(run.told) == len(set(run.told))
        improving = [costs[point] for point in run.incumbents]
        assert all(later < earlier for earlier, later in pairwise(improving))


@pytest.mark.parametrize("batch_size", [1, 4, 100])
def test_reaches_the_global_optimum_of_a_convex_bowl(batch_size):
    space = Space(ordered(*range(6)), ordered(*range(-3, 4)), ordered(*range(5)))
    for centre in [(0, -3, 4), (5, 3, 0), (2, 0, 2)]:

        def cost(point, centre=centre):
            return sum((a - b) ** 2 for a, b in zip(point, centre))

        assert Run(space, (3, 1, 1), cost, batch_size).run() == centre


@pytest.mark.parametrize("batch_size", [1, 7, 100])
def test_reaches_the_global_optimum_of_a_convex_bowl_of_tiles(batch_size):
    """A separable convex function of the exponents has no local optimum but the global one.

    It is M-convex (Murota 2003), and a prime's transfer is the exchange of that theory.
    """
    space = Space(tile(256, 4))
    for centre in [(1, 1, 1, 256), (16, 1, 2, 8), (4, 4, 4, 4)]:

        def cost(point, centre=centre):
            return sum((a.bit_length() - b.bit_length()) ** 2 for a, b in zip(point, centre))

        for start in [(256, 1, 1, 1), (1, 128, 2, 1)]:
            assert Run(space, start, cost, batch_size).run() == centre


@pytest.mark.parametrize("name", SPACES)
@pytest.mark.parametrize("batch_size", [1, 3, 1000])
def test_a_constant_objective_ends_at_the_start_after_its_neighbours(name, batch_size):
    space = SPACES[name]
    for start in space.points[:: len(space.points) // 5]:
        run = Run(space, start, lambda point: 1.0, batch_size)
        assert run.run() == start
        assert sorted(run.told[1:]) == sorted(space.neighbours(start))


def test_a_space_of_one_point_has_converged_at_once():
    space = Space(tile(1, 4), ordered(3), choice(1))
    descent = CoordinateDescent((1, 1, 1, 1, 3, 0), space.neighbourhood)
    assert descent.converged
    assert descent.ask() == []


def test_the_tiers_after_an_improvement():
    """Worked by hand: three axes, three improvements in one batch of six neighbours."""
    space = Space(ordered(*range(6)), ordered(*range(6)), ordered(*range(6)))
    descent = CoordinateDescent((2, 2, 2), space.neighbourhood)
    first = {proposal.point: proposal for proposal in descent.ask()}
    assert {proposal.tier for proposal in first.values()} == {Tier.ADJACENT}
    assert set(first) == {(3, 2, 2), (1, 2, 2), (2, 3, 2), (2, 1, 2), (2, 2, 3), (2, 2, 1)}
    best = first[3, 2, 2]
    improvements = [best, first[2, 1, 2], first[2, 2, 3]]
    for point in [(1, 2, 2), (2, 3, 2), (2, 2, 1)]:
        descent.reject(first[point])
    descent.accept(best, improvements, best.point, space.neighbourhood)
    assert descent.incumbent == (3, 2, 2)
    assert [(proposal.tier, proposal.point) for proposal in descent.ask()] == [
        (Tier.FURTHER, (4, 2, 2)),
        (Tier.FURTHER, (5, 2, 2)),
        (Tier.JOINT, (3, 1, 2)),
        (Tier.JOINT, (3, 2, 3)),
        (Tier.JOINT, (3, 1, 3)),
        (Tier.ADJACENT, (3, 3, 2)),
        (Tier.ADJACENT, (3, 2, 1)),
    ]


def test_further_steps_repeat_the_whole_of_a_joint_step():
    space = Space(ordered(*range(9)), ordered(*range(9)))
    descent = CoordinateDescent((0, 0), space.neighbourhood)
    first = {proposal.point: proposal for proposal in descent.ask()}
    descent.accept(first[1, 0], list(first.values()), (1, 0), space.neighbourhood)
    joint = next(proposal for proposal in descent.ask() if proposal.tier == Tier.JOINT)
    assert joint.point == (1, 1)
    further = next(proposal for proposal in descent.ask() if proposal.point == (3, 0))
    assert further.tier == Tier.FURTHER
    descent.accept(further, [further], (3, 0), space.neighbourhood)
    points = [p.point for p in descent.ask() if p.tier == Tier.FURTHER]
    assert points == [(5, 0), (7, 0)]


def test_the_realised_point_becomes_the_incumbent():
    """Where replay makes another point of the one proposed, neither is proposed again."""
    space = Space(ordered(*range(5)), ordered(*range(5)))
    descent = CoordinateDescent((2, 2), space.neighbourhood)
    proposal = next(p for p in descent.ask() if p.point == (3, 2))
    shorter = Neighbourhood((OrderedAxis(0, (0, 1, 2, 3)), OrderedAxis(1, (0, 4))))
    descent.accept(proposal, [proposal], (3, 4), shorter)
    assert descent.incumbent == (3, 4)
    while not descent.converged:
        proposals = descent.ask()
        assert not {p.point for p in proposals} & {(2, 2), (3, 2), (3, 4)}
        descent.reject(proposals[0])
    assert descent.incumbent == (3, 4)
