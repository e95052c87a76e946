# SPDX-License-Identifier: Apache-2.0
"""Which tiles are offered, beside hand-worked numbers."""

import pytest

from tvm_droplet_ms.design_space.register_tiles.tile_rule import (
    fits,
    offered_tiles,
    share_of_peak,
)


def test_share_is_that_of_busy_steps():
    # 12 sums take 12.8 steps; nine tiles of six and one of two, which takes as long as 8 sums.
    assert share_of_peak(54, 6, 2) == pytest.approx(12 / 12.8)
    assert share_of_peak(56, 6, 2) == pytest.approx(112 / (9 * 12.8 + 8.8))
    assert share_of_peak(7, 7, 1) == pytest.approx(7 / 8.8)


def test_tiles_fit_into_sixteen_registers():
    held = {
        (tall, vectors) for tall in range(1, 9) for vectors in (1, 2, 3) if fits(tall, vectors, 16)
    }
    # Twelve sums, two vectors and a row take fifteen; fourteen sums are spilled.
    assert (6, 2) in held and (7, 2) not in held
    assert (4, 3) in held and (5, 3) not in held
    assert (7, 1) in held and (8, 1) not in held


def test_tiles_need_not_divide_the_rows():
    assert offered_tiles(56, 8, 16)[2] == [4, 5, 6]
    assert 5 in offered_tiles(14, 8, 16)[2]
    assert 6 in offered_tiles(197, 24, 16)[2]
    assert offered_tiles(197, 24, 16)[3][-1] == 4


def test_few_rows_have_tiles_too():
    for rows in range(1, 9):
        for vectors in (1, 2, 3, 5):
            offered = offered_tiles(rows, vectors, 16)
            assert offered
            for length, talls in offered.items():
                assert vectors % length == 0 and talls
                assert all(tall <= rows and fits(tall, length, 16) for tall in talls)
