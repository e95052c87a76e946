# SPDX-License-Identifier: Apache-2.0
"""Packed weights stand for what they were packed from: worked out word by word."""

import numpy as np
import pytest

from tvm_droplet_ms.model.kernels.weights.packing import LANES, Scaled, pack


def matrix(rows, columns, low, high, block, seed=0):
    rng = np.random.default_rng(seed)
    blocks = rows // block
    zeros = rng.integers(low, high, (blocks, columns)).astype("float32")
    scales = rng.standard_normal((blocks, columns)).astype("float32")
    numbers = rng.integers(low, high, (rows, columns))
    numbers[0, :2] = low, high - 1
    return Scaled(numbers, np.repeat(zeros, block, 0), np.repeat(scales, block, 0))


def value(packed, row, column):
    """An element, from its word, scale and zero point."""
    panel, lane = divmod(column, LANES)
    block, place = divmod(row, packed.block)
    word, number = divmod(place, 32 // packed.bits)
    shift = 8 * (number % 4) + packed.bits * (number // 4)
    bits = int(packed.words[panel, block, word, lane]) >> shift
    found = bits & ((1 << packed.bits) - 1)
    return (found - packed.zeros[panel, block, lane]) * packed.scales[panel, block, lane]


@pytest.mark.parametrize(
    ("low", "high", "bits"),
    [(0, 4, 2), (-2, 2, 2), (0, 16, 4), (-8, 8, 4), (0, 256, 8), (-128, 128, 8)],
)
@pytest.mark.parametrize("block", [16, 32])
def test_each_element_is_found_again(low, high, bits, block):
    given = matrix(64, 20, low, high, block)
    packed = pack(given)
    assert (packed.bits, packed.block) == (bits, block)
    expected = (given.numbers - given.zeros) * given.scales
    for row, column in np.ndindex(expected.shape):
        found = value(packed, row, column)
        assert found == pytest.approx(expected[row, column], rel=1e-6)
    assert not packed.scales[1, :, 4:].any()


def test_scales_of_whole_columns_are_one_block():
    given = matrix(40, 16, -128, 128, 40)
    assert pack(given).block == 40


@pytest.mark.parametrize(
    "given",
    [
        pytest.param(matrix(64, 16, 0, 16, 8), id="blocks of 8 rows"),
        pytest.param(matrix(62, 16, 0, 16, 62), id="rows that fill no words"),
        pytest.param(matrix(64, 16, 0, 300, 32), id="nine bits"),
    ],
)
def test_other_matrices_are_not_packed(given):
    assert pack(given) is None
