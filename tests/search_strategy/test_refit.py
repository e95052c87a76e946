# SPDX-License-Identifier: Apache-2.0
"""Refitted tiles: hand-worked ones, and brute force over all factorisations."""

import math
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tvm_droplet_ms.search_strategy.refit import divisors, extent_distance, refit_tile


@pytest.mark.parametrize(
    ("tile", "extent", "expected"),
    [
        # More input channels: the inner tiles stay.
        ((4, 2, 8), 256, (16, 2, 8)),
        ((1, 4, 16), 64, (1, 4, 16)),
        # 7 rows for 14: of a tile of 2 rows 1 is nearer than 7.
        ((7, 1, 2), 7, (7, 1, 1)),
        ((1, 2, 7), 7, (1, 1, 7)),
        # A tile of 4 * 8 keeps its size where 8 does not divide.
        ((2, 4, 8), 60, (2, 3, 10)),
        ((5,), 12, (12,)),
        ((1, 1, 1), 12, (12, 1, 1)),
        ((8, 8), 1, (1, 1)),
    ],
)
def test_tile_is_refitted_as_by_hand(tile, extent, expected):
    assert refit_tile(tile, extent) == expected


def test_innermost_factor_is_limited():
    assert refit_tile((1, 1, 64), 128, 64) == (2, 1, 64)
    # The tile of 64 is kept in two parts.
    assert refit_tile((1, 1, 64), 128, 16) == (2, 4, 16)


@given(st.lists(st.integers(1, 24), min_size=1, max_size=4), st.integers(1, 96))
@settings(max_examples=200, deadline=None)
def test_inner_tiles_are_nearest_of_all_factorisations(tile, extent):
    refitted = refit_tile(tile, extent)
    assert len(refitted) == len(tile) and math.prod(refitted) == extent

    def distances(factors):
        """From the innermost tile outwards, how far its size is from the old one."""
        pairs = [
            (math.prod(factors[level:]), math.prod(tile[level:]))
            for level in range(len(tile) - 1, 0, -1)
        ]
        return [(round(abs(math.log(new / old)), 9), new) for new, old in pairs]

    every = (
        factors
        for factors in product(divisors(extent), repeat=len(tile))
        if math.prod(factors) == extent
    )
    assert distances(refitted) == min(map(distances, every))


@given(st.lists(st.integers(1, 12), min_size=1, max_size=4))
def test_tile_of_its_own_extent_is_unchanged(tile):
    assert refit_tile(tile, math.prod(tile)) == tuple(tile)


@given(st.integers(1, 500))
def test_divisors_are_all_that_divide(number):
    assert divisors(number) == [factor for factor in range(1, number + 1) if number % factor == 0]


def test_distance_is_in_doublings():
    assert extent_distance((56, 64), (56, 64)) == 0.0
    assert extent_distance((56, 64), (28, 256)) == pytest.approx(3.0)
    assert extent_distance((28, 256), (56, 64)) == pytest.approx(3.0)
    with pytest.raises(ValueError):
        extent_distance((1,), (1, 2))
