# SPDX-License-Identifier: Apache-2.0
"""Points in bulk, against the definition of each way to make them."""

import numpy as np
import pytest

from tvm_droplet_ms.design_space.factorizations import factorizations
from tvm_droplet_ms.search_strategy.surrogate.encoding import (
    MOST_CHANGES,
    LatentAxis,
    LatentSpace,
)

TILE, CHOICE = factorizations(16, 3), np.array([[-1], [2], [5]])
AXES = [LatentAxis(0, TILE), *(LatentAxis(3 + place, CHOICE) for place in range(6))]


@pytest.fixture
def space():
    return LatentSpace(AXES)


@pytest.fixture
def generator():
    return np.random.default_rng(0)


def parts(points):
    """The coordinates of points, as tuples."""
    return [[tuple(row[:3]), *map(int, row[3:])] for row in points]


def test_draws_are_uniform_over_the_values_of_each_coordinate(space, generator):
    points = space.draw(6000, generator)
    tiles, counts = np.unique(points[:, :3], axis=0, return_counts=True)
    np.testing.assert_array_equal(tiles, np.unique(TILE, axis=0))
    # 15 tiles, 400 draws of each: five standard deviations.
    assert np.abs(counts - 400).max() < 5 * 400**0.5
    for column in (3, 5, 8):
        assert set(points[:, column]) == {-1, 2, 5}


def test_a_changed_point_differs_in_few_coordinates_from_a_parent(space, generator):
    parents = space.draw(3, generator)
    changed = space.change(parents, 500, generator)
    differences = [
        min(sum(a != b for a, b in zip(own, parent, strict=True)) for parent in parts(parents))
        for own in parts(changed)
    ]
    assert max(differences) == MOST_CHANGES
    # A coordinate that is drawn anew may keep its value.
    assert sum(0 < count for count in differences) > 400
    assert {tuple(row[:3]) for row in changed} <= set(map(tuple, TILE))


def test_a_recombined_point_has_each_coordinate_of_one_of_two_parents(space, generator):
    parents = np.array([[16, 1, 1, -1, 2, 2, 2, 2, 2], [2, 2, 4, 5, 5, 5, 5, 5, 5]])
    made = parts(space.recombine(parents, 400, generator))
    one, other = parts(parents)
    assert all(
        value in pair for row in made for value, pair in zip(row, zip(one, other), strict=True)
    )
    # 2^7 combinations, each of 1 in 256 draws and more.
    assert len({tuple(row) for row in made}) > 64


def test_parents_stay_as_they_are(space, generator):
    parents = space.draw(4, generator)
    before = parents.copy()
    space.change(parents, 50, generator)[:] = 0
    space.recombine(parents, 50, generator)[:] = 0
    np.testing.assert_array_equal(parents, before)


def test_a_space_without_decisions_has_one_point(generator):
    space = LatentSpace([])
    assert space.draw(2, generator).shape == (2, 0)
    assert space.change(np.empty((1, 0), dtype=int), 3, generator).shape == (3, 0)
