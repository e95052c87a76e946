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
"""TVM's droplet, fixed, by brute force on small spaces."""

import itertools
import math
import random

import pytest

from tvm_droplet_ms.bench.baselines.post_opt import FactorAxis, ListedAxis, PostOptDroplet

EXTENTS, LIMIT = (12, 18), 6


def tiles(extent):
    """All tiles of three positions of an extent, the innermost limited."""
    return [
        tile
        for tile in itertools.product(range(1, extent + 1), repeat=3)
        if math.prod(tile) == extent and tile[-1] <= LIMIT
    ]


ALL_POINTS = {
    (*a, *b, choice)
    for a in map(tuple, tiles(EXTENTS[0]))
    for b in tiles(EXTENTS[1])
    for choice in range(3)
}


def adjacent(point, other):
    """Whether two points differ by the least there is in one free coordinate, by brute force."""
    free = [slot for slot in (1, 2, 4, 5, 6) if point[slot] != other[slot]]
    if len(free) != 1:
        return False
    (slot,) = free
    between = [
        third
        for third in ALL_POINTS
        if all(third[s] == point[s] for s in (1, 2, 4, 5, 6) if s != slot)
        and min(point[slot], other[slot]) < third[slot] < max(point[slot], other[slot])
    ]
    return not between


AXES = [
    FactorAxis(0, 1),
    FactorAxis(0, 2, LIMIT),
    FactorAxis(3, 1),
    FactorAxis(3, 2, LIMIT),
    ListedAxis(6, (0, 1, 2)),
]


def descend(start, cost, *, batch_size=1, max_trials=10_000, realise=lambda point: point):
    """The rounds of a descent, and where it ends."""
    droplet = PostOptDroplet(
        start,
        [cost(start)],
        lambda _: AXES,
        realise,
        batch_size=batch_size,
        max_trials=max_trials,
    )
    rounds = []
    while points := droplet.ask():
        rounds.append(points)
        droplet.tell([[cost(point)] for point in points])
    return droplet.best, rounds


def rugged(point):
    return random.Random(f"{point}").uniform(1.0, 2.0)


def bowl(point):
    ideal = (2, 3, 2, 1, 6, 3, 2)
    return (
        1.0
        + sum((math.log(a) - math.log(b)) ** 2 for a, b in zip(point[:6], ideal))
        + abs(point[6] - ideal[6])
    )


STARTS = [(12, 1, 1, 18, 1, 1, 0), (1, 2, 6, 1, 3, 6, 2), (3, 4, 1, 3, 2, 3, 1)]


@pytest.mark.parametrize("batch_size", [1, 40])
@pytest.mark.parametrize("cost", [bowl, rugged])
@pytest.mark.parametrize("start", STARTS)
def test_ends_in_a_local_optimum(start, cost, batch_size):
    best, rounds = descend(start, cost, batch_size=batch_size)
    neighbours = [point for point in ALL_POINTS if adjacent(best, point)]
    assert len(neighbours) >= 5
    assert all(cost(best) <= cost(point) for point in neighbours)
    asked = [point for points in rounds for point in points]
    assert len(asked) == len(set(asked))
    assert set(asked) <= ALL_POINTS - {start}
    assert cost(best) == min(map(cost, [start, *asked]))


@pytest.mark.parametrize("place", range(24))
def test_reaches_the_optimum_of_a_bowl(place):
    """From each of the 24 tiles of two positions of 360, in a space without inner minima."""
    divisors = [value for value in range(1, 361) if 360 % value == 0]
    best = {"tile": divisors.index(20), "choice": 5}
    droplet = PostOptDroplet(
        (360 // divisors[place], divisors[place], 0),
        [99.0],
        lambda _: [FactorAxis(0, 1), ListedAxis(2, tuple(range(9)))],
        lambda point: point,
        batch_size=1,
        max_trials=10_000,
    )
    while points := droplet.ask():
        far = [
            (abs(divisors.index(p[1]) - best["tile"]), abs(p[2] - best["choice"])) for p in points
        ]
        droplet.tell([[1.0 + tile + choice] for tile, choice in far])
    assert droplet.best == (18, 20, 5)


@pytest.mark.parametrize("start", STARTS)
def test_first_round_is_the_whole_neighbourhood(start):
    _, rounds = descend(start, rugged)
    assert set(rounds[0]) == {point for point in ALL_POINTS if adjacent(start, point)}


def test_longer_steps_fill_a_round():
    _, small = descend(STARTS[2], rugged)
    _, large = descend(STARTS[2], rugged, batch_size=len(small[0]) + 1)
    assert large[0][: len(small[0])] == small[0]
    further = large[0][len(small[0]) :]
    assert further and not any(adjacent(STARTS[2], point) for point in further)


def test_keeps_to_its_trials():
    _, rounds = descend(STARTS[0], bowl, max_trials=7)
    assert sum(map(len, rounds)) == 7


def test_points_that_cannot_be_realised_are_not_asked():
    _, rounds = descend(STARTS[0], bowl, realise=lambda point: point if point[6] == 0 else None)
    assert {point[6] for points in rounds for point in points} == {0}


def make_droplet(secs):
    return PostOptDroplet(
        (0,),
        secs,
        lambda _: [ListedAxis(0, tuple(range(9)))],
        lambda p: p,
        batch_size=1,
        max_trials=99,
    )


def test_noise_is_no_step():
    """A better mean within the noise is no step; one beyond it is."""
    for faster, moved in (([0.8, 1.1, 0.95], False), ([0.5, 0.51, 0.52], True)):
        droplet = make_droplet([0.9, 1.0, 1.1])
        droplet.tell([faster])
        assert (droplet.best == (1,)) is moved
        assert bool(droplet.ask()) is moved


def test_a_round_of_failures_is_followed_by_longer_steps():
    droplet = make_droplet([1.0])
    assert droplet.ask() == [(1,)]
    droplet.tell([()])
    assert droplet.ask() == [(2,)]
    droplet.tell([[0.5]])
    assert droplet.best == (2,)
    assert droplet.ask() == [(3,)]
