# SPDX-License-Identifier: Apache-2.0
"""Factorizations against brute force and the binomial, and refitted tiles."""

import math
import time
from itertools import product
from math import comb, prod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tvm_droplet_ms.design_space.factorizations import (
    divisors,
    extent_distance,
    factorizations,
    refit_tile,
)


@pytest.mark.parametrize(("power", "length"), [(0, 2), (3, 2), (5, 3), (4, 4)])
def test_those_of_a_power_of_two_are_counted_by_the_binomial(power, length):
    tiles = {tuple(tile) for tile in factorizations(2**power, length).tolist()}
    assert len(tiles) == len(factorizations(2**power, length)) == comb(power + length - 1, power)


@pytest.mark.parametrize(("extent", "length", "limit"), [(12, 2, 4), (30, 3, -1), (36, 3, 6)])
def test_they_are_those_of_brute_force(extent, length, limit):
    every = product(range(1, extent + 1), repeat=length)
    expected = [
        tile for tile in every if prod(tile) == extent and (limit == -1 or tile[-1] <= limit)
    ]
    assert list(map(tuple, factorizations(extent, length, limit).tolist())) == expected


def test_one_factor_that_is_too_large_has_none():
    assert factorizations(12, 1, 8).shape == (0, 1)


def test_a_table_cannot_be_changed_by_its_users():
    with pytest.raises(ValueError, match="read-only"):
        factorizations(12, 2)[0, 0] = 5


def test_a_large_prime_takes_the_root_of_its_extent():
    """Counted up to, it took 6.6 s in a search that holds the interpreter's lock."""
    prime = 100_000_007
    start = time.process_time()
    assert factorizations(prime, 2).tolist() == [[1, prime], [prime, 1]]
    assert len(factorizations(2**31, 4)) == comb(34, 3)
    assert time.process_time() - start < 2


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
def test_inner_tiles_are_nearest_of_all_factorizations(tile, extent):
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
