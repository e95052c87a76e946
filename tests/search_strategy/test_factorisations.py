# SPDX-License-Identifier: Apache-2.0
"""Factorisations against brute force and the binomial."""

import time
from itertools import product
from math import comb, prod

import pytest

from tvm_droplet_ms.search_strategy.factorisations import factorisations


@pytest.mark.parametrize(("power", "length"), [(0, 2), (3, 2), (5, 3), (4, 4)])
def test_those_of_a_power_of_two_are_counted_by_the_binomial(power, length):
    tiles = {tuple(tile) for tile in factorisations(2**power, length).tolist()}
    assert len(tiles) == len(factorisations(2**power, length)) == comb(power + length - 1, power)


@pytest.mark.parametrize(("extent", "length", "limit"), [(12, 2, 4), (30, 3, -1), (36, 3, 6)])
def test_they_are_those_of_brute_force(extent, length, limit):
    every = product(range(1, extent + 1), repeat=length)
    expected = [
        tile for tile in every if prod(tile) == extent and (limit == -1 or tile[-1] <= limit)
    ]
    assert list(map(tuple, factorisations(extent, length, limit).tolist())) == expected


def test_one_factor_that_is_too_large_has_none():
    assert factorisations(12, 1, 8).shape == (0, 1)


def test_a_table_cannot_be_changed_by_its_users():
    with pytest.raises(ValueError, match="read-only"):
        factorisations(12, 2)[0, 0] = 5


def test_a_large_prime_takes_the_root_of_its_extent():
    """Counted up to, it took 6.6 s in a search that holds the interpreter's lock."""
    prime = 100_000_007
    start = time.process_time()
    assert factorisations(prime, 2).tolist() == [[1, prime], [prime, 1]]
    assert len(factorisations(2**31, 4)) == comb(34, 3)
    assert time.process_time() - start < 2
