# SPDX-License-Identifier: Apache-2.0
"""Weights of 4 and 8 bits in blocks stand for what ONNX Runtime takes them for."""

import numpy as np
import pytest
from test_contrib_operators import GENERATOR, assert_same_of, contrib, normal


def packed(*shape):
    return GENERATOR.integers(0, 256, shape).astype("uint8")


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("rows, depth, block", [(1, 64, 32), (5, 96, 32), (3, 48, 16), (2, 40, 32)])
@pytest.mark.parametrize("zeros", [False, True])
def test_products_with_packed_weights(bits, rows, depth, block, zeros):
    blocks, columns = -(-depth // block), 24
    constants = {
        "b": packed(columns, blocks, block * bits // 8),
        "s": np.abs(normal(columns * blocks)) / 8,
    }
    names = "x b s"
    if zeros:
        constants["z"] = packed(columns * -(-blocks * bits // 8))
        names += " z"
    made = contrib("MatMulNBits", names, K=depth, N=columns, bits=bits, block_size=block)
    assert_same_of([made], {"x": normal(rows, depth)}, tolerance=1e-4, **constants)


def test_a_product_with_packed_weights_and_a_bias():
    constants = {"b": packed(16, 2, 16), "s": normal(32), "c": normal(16)}
    made = contrib("MatMulNBits", "x b s   c", K=64, N=16, bits=4, block_size=32)
    assert_same_of([made], {"x": normal(2, 64)}, tolerance=1e-4, **constants)


@pytest.mark.parametrize("zeros", [False, True])
def test_rows_of_a_packed_table(zeros):
    constants = {"t": packed(20, 32), "s": normal(20, 4)}
    if zeros:
        constants["z"] = packed(20, 2)
    made = contrib(
        "GatherBlockQuantized",
        "t i s z" if zeros else "t i s",
        gather_axis=0,
        quantize_axis=1,
        block_size=16,
        bits=4,
    )
    assert_same_of([made], {"i": np.array([[3, 0, 19]])}, **constants)
