# SPDX-License-Identifier: Apache-2.0
"""The adjacent neighborhood, against brute force over all factorizations and all values."""

import random
from itertools import product
from math import prod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tvm_droplet_ms.search_strategy.descents.points import redraw, redraw_axis
from tvm_droplet_ms.search_strategy.published.neighborhood import (
    ChoiceAxis,
    Direction,
    Neighborhood,
    OrderedAxis,
    TileAxis,
    prime_factors,
)

EXTENTS = [1, 2, 8, 12, 36, 97, 210, 243, 257, 1024, 1470]


def is_prime(number):
    return number > 1 and all(number % divisor for divisor in range(2, number))


def divisors(number):
    return [divisor for divisor in range(1, number + 1) if number % divisor == 0]


def factorizations(extent, length):
    """Every way to write an extent as an ordered product."""
    if length == 1:
        return [(extent,)]
    return [
        (first, *rest)
        for first in divisors(extent)
        for rest in factorizations(extent // first, length - 1)
    ]


def one_prime_moved(before, after):
    """True of two tiles that differ by one prime, which left one position for another."""
    changed = [place for place in range(len(before)) if before[place] != after[place]]
    if len(changed) != 2:
        return False
    ratios = sorted(after[place] / before[place] for place in changed)
    return is_prime(round(ratios[1])) and ratios[1] == round(ratios[1])


def limited(tile, limit):
    return limit == -1 or tile[-1] <= limit


def neighbors(axis, point):
    return [axis.apply(point, move) for move in axis.moves(point)]


@st.composite
def tiles(draw):
    """A tile of any extent and number of positions, and an innermost limit that it may exceed."""
    extent = draw(st.sampled_from(EXTENTS) | st.integers(1, 400))
    length = draw(st.integers(1, 4))
    tile = draw(st.sampled_from(factorizations(extent, length)))
    limit = draw(st.sampled_from([-1, 1, 4, 16, 64]))
    return tile, limit


def test_prime_factors_against_trial_division():
    for number in range(1, 1500):
        expected = [divisor for divisor in divisors(number) if is_prime(divisor)]
        assert list(prime_factors(number)) == expected


@pytest.mark.parametrize("number", [0, -1, -12])
def test_prime_factors_of_no_positive_number(number):
    with pytest.raises(ValueError, match=f"number is {number}"):
        prime_factors(number)


@settings(deadline=None, max_examples=150, derandomize=True)
@given(tiles())
def test_tile_neighbors_are_those_of_brute_force(drawn):
    tile, limit = drawn
    axis = TileAxis(0, len(tile), limit)
    found = neighbors(axis, tile)
    expected = {
        other
        for other in factorizations(prod(tile), len(tile))
        if one_prime_moved(tile, other) and (limited(other, limit) or other[-1] <= tile[-1])
    }
    assert len(found) == len(set(found))
    assert set(found) == expected


@settings(deadline=None, max_examples=150, derandomize=True)
@given(tiles(), st.lists(st.integers(-9, 9), max_size=3), st.lists(st.integers(-9, 9), max_size=3))
def test_tile_moves_keep_the_extent_the_limit_and_the_rest_of_the_point(drawn, before, after):
    tile, limit = drawn
    axis = TileAxis(len(before), len(tile), limit)
    point = (*before, *tile, *after)
    for move in axis.moves(point):
        moved = axis.apply(point, move)
        moved_tile = moved[len(before) : len(before) + len(tile)]
        assert moved[: len(before)] == tuple(before)
        assert moved[len(before) + len(tile) :] == tuple(after)
        assert prod(moved_tile) == prod(tile)
        assert all(factor >= 1 for factor in moved_tile)
        assert limited(moved_tile, limit) or moved_tile[-1] <= tile[-1]
        if limited(tile, limit):
            prime, source, target = move
            assert axis.apply(moved, (prime, target, source)) == point


@pytest.mark.parametrize("extent", EXTENTS)
@pytest.mark.parametrize("limit", [-1, 1, 16])
@pytest.mark.parametrize("length", [1, 2, 3, 4])
def test_tile_moves_connect_the_lattice(extent, limit, length):
    if length == 1:
        limit = -1
    axis = TileAxis(0, length, limit)
    start = (extent, *[1] * (length - 1))
    reached, frontier = {start}, [start]
    while frontier:
        fresh = set(neighbors(axis, frontier.pop())) - reached
        reached |= fresh
        frontier.extend(fresh)
    legal = {tile for tile in factorizations(extent, length) if limited(tile, limit)}
    assert reached == legal


def test_tile_move_without_factor_raises():
    axis = TileAxis(0, 3, 4)
    assert axis.apply((6, 1, 4), (5, 0, 1)) is None
    assert axis.apply((6, 1, 4), (2, 1, 0)) is None
    assert axis.apply((6, 1, 4), (2, 0, 0)) is None
    assert axis.apply((6, 1, 4), (2, 0, 2)) is None
    assert axis.apply((6, 1, 4), (2, 2, 0)) == (12, 1, 2)


@settings(deadline=None, max_examples=200, derandomize=True)
@given(st.sets(st.integers(-5, 20), max_size=8), st.integers(-7, 22))
def test_ordered_axis_against_brute_force(values, value):
    """Also where the value is not in the list: its neighbors are the nearest on either side."""
    axis = OrderedAxis(1, tuple(sorted(values)))
    above = (
        [(7, min(other for other in values if other > value), 9)]
        if any(other > value for other in values)
        else []
    )
    below = (
        [(7, max(other for other in values if other < value), 9)]
        if any(other < value for other in values)
        else []
    )
    point = (7, value, 9)
    assert neighbors(axis, point) == above + below
    assert axis.apply(point, (1,)) == (above[0] if above else None)
    assert axis.apply(point, (-1,)) == (below[0] if below else None)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_choice_axis_moves_to_every_other_choice(count):
    axis = ChoiceAxis(1, count)
    for value in range(count):
        others = [(7, other) for other in range(count) if other != value]
        assert neighbors(axis, (7, value)) == others
        assert axis.apply((7, value), (value,)) is None


def mixed():
    return Neighborhood(
        (TileAxis(0, 3, 4), OrderedAxis(3, (-1, 2, 5)), ChoiceAxis(4, 3), TileAxis(5, 2))
    )


def test_neighborhood_is_one_step_of_one_axis():
    """Against all points of the product space."""
    neighborhood = mixed()
    left, right = factorizations(12, 3), factorizations(6, 2)
    space = [
        (*first, location, choice, *second)
        for first, location, choice, second in product(left, (-1, 2, 5), range(3), right)
        if first[-1] <= 4
    ]

    def adjacent(before, after):
        steps = [
            one_prime_moved(before[:3], after[:3]),
            {before[3], after[3]} in ({-1, 2}, {2, 5}),
            before[4] != after[4],
            one_prime_moved(before[5:], after[5:]),
        ]
        parts = (slice(0, 3), slice(3, 4), slice(4, 5), slice(5, 7))
        same = [before[part] == after[part] for part in parts]
        return sum(same) == 3 and steps[same.index(False)]

    for point in space[:: len(space) // 60]:
        found = [
            neighborhood.step(point, direction) for direction in neighborhood.directions(point)
        ]
        assert len(found) == len(set(found))
        assert set(found) == {other for other in space if adjacent(point, other)}


def test_directions_come_axis_by_axis():
    axes = [direction.axis for direction in mixed().directions((12, 1, 1, 2, 0, 6, 1))]
    assert axes == sorted(axes)
    assert set(axes) == {0, 1, 2, 3}


def test_steps_are_taken_one_after_the_other():
    neighborhood = mixed()
    point = (12, 1, 1, 2, 0, 6, 1)
    tile, location = Direction(0, (2, 0, 2)), Direction(1, (1,))
    assert neighborhood.step(point) == point
    assert neighborhood.step(point, tile, location) == (6, 1, 2, 5, 0, 6, 1)
    assert neighborhood.step(point, tile, tile) == (3, 1, 4, 2, 0, 6, 1)
    assert neighborhood.step(point, tile, tile, tile) is None
    assert neighborhood.step(point, location, location, tile) is None


SPACE = Neighborhood(
    (TileAxis(0, 3, max_innermost_factor=4), OrderedAxis(3, (-2, 1, 5)), ChoiceAxis(4, 3))
)


def everything(extent: int) -> set[tuple[int, ...]]:
    return {
        (*tile, location, choice)
        for tile in factorizations(extent, 3)
        if tile[-1] <= 4
        for location in (-2, 1, 5)
        for choice in range(3)
    }


@pytest.mark.parametrize("extent", [1, 12, 36])
def test_redrawn_point_is_any_point(extent):
    generator = random.Random(0)
    drawn = {redraw(SPACE, (extent, 1, 1, 1, 0), generator) for _ in range(6000)}
    assert drawn == everything(extent)


def test_axis_without_values_is_not_redrawn():
    axis = OrderedAxis(0, ())
    assert redraw_axis(axis, (7,), random.Random(0)) == (7,)


def test_adjacent_points_are_one_step_away():
    point = (3, 4, 1, 1, 0)
    stepped = [SPACE.step(point, direction) for direction in SPACE.directions(point)]
    assert list(SPACE.steps(point, 1)) == stepped
    assert point not in stepped
