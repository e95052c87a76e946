# SPDX-License-Identifier: Apache-2.0
"""Weights of 4 and 8 bits in blocks stand for what ONNX Runtime takes them for."""

import ml_dtypes
import numpy as np
import onnx
import pytest
from operator_runs import model_of, run_here
from test_contrib_operators import GENERATOR, assert_same_of, contrib, normal

from tvm_droplet_ms.frontends.onnx.importing import import_onnx
from tvm_droplet_ms.frontends.onnx.operators.nodes.recurrence import converters


def packed(*shape):
    return GENERATOR.integers(0, 256, shape).astype("uint8")


@pytest.mark.parametrize("kind", ["int4", "uint4"])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("zeros", [False, True])
def test_rows_of_a_table_of_four_bits(kind, axis, zeros):
    """Without zero points they are 0, where bytes that hold two numbers have 8."""
    dtype = getattr(ml_dtypes, kind)
    low = -8 if kind == "int4" else 0
    extents = (2, 32) if axis == 0 else (32, 2)
    constants = {
        "t": GENERATOR.integers(low, low + 16, (32, 32)).astype(dtype),
        "s": normal(*extents),
    }
    if zeros:
        constants["z"] = GENERATOR.integers(low, low + 16, extents).astype(dtype)
    names = "t i s z" if zeros else "t i s"
    sizes = {"gather_axis": 0, "quantize_axis": axis, "block_size": 16}
    made = contrib("GatherBlockQuantized", names, **sizes)
    assert_same_of([made], {"i": np.array([[3, 0, 19, -1]])}, **constants)


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
    assert_same_of([made], {"i": np.array([[3, 0, 19, -1]])}, **constants)


@pytest.mark.parametrize("direction, count", [("forward", 1), ("bidirectional", 2)])
@pytest.mark.parametrize("is_by_column, in_bytes", [(False, True), (True, True), (True, False)])
def test_an_lstm_with_weights_of_bytes(direction, count, is_by_column, in_bytes, monkeypatch):
    """Inputs and states are rounded to bytes in each step; the last tile is not full."""
    if not in_bytes:
        monkeypatch.setattr(converters, "_has_dot", lambda: False)
    hidden, width = 24, 32
    shape = (count, 4 * hidden) if is_by_column else (count,)
    constants = {
        "w": GENERATOR.integers(-127, 128, (count, width, 4 * hidden)).astype("int8"),
        "r": GENERATOR.integers(-127, 128, (count, hidden, 4 * hidden)).astype("int8"),
        "b": normal(count, 8 * hidden),
        "ws": np.full(shape, 0.0015, "float32"),
        "wz": np.zeros(shape, "int8"),
        "rs": np.full(shape, 0.002, "float32"),
        "rz": np.zeros(shape, "int8"),
    }
    made = contrib(
        "DynamicQuantizeLSTM",
        "x w r b     ws wz rs rz",
        "y h c",
        hidden_size=hidden,
        direction=direction,
    )
    fed = {"x": normal(10, 2, width)}
    assert_same_of([made], fed, "y h c", tolerance=1e-5, **constants)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("rows, depth, block", [(1, 64, 32), (8, 96, 32), (3, 48, 16)])
def test_rows_that_may_become_bytes(bits, rows, depth, block):
    """With ``accuracy_level=4``, block by block; one of the blocks is all zeros."""
    blocks, columns = depth // block, 24
    constants = {
        "b": packed(columns, blocks, block * bits // 8),
        "s": np.abs(normal(columns * blocks)) / 8,
        "z": packed(columns * -(-blocks * bits // 8)),
    }
    made = contrib(
        "MatMulNBits",
        "x b s z",
        K=depth,
        N=columns,
        bits=bits,
        block_size=block,
        accuracy_level=4,
    )
    x = normal(rows, depth)
    x[0, :block] = 0
    reference, expected = references({"x": x}, [made], constants)
    np.testing.assert_allclose(reference, expected, rtol=0, atol=1e-5 * np.abs(expected).max())
    assert_same_of([made], {"x": x}, tolerance=1e-4, **constants)


def references(fed, nodes, constants):
    """The outputs of the import's reference, and of ONNX Runtime for the model as it came."""
    model = model_of(nodes, fed, **constants)
    model.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
    reference = import_onnx(model).reference
    assert reference.fastest is not None
    return reference.run(list(fed.values()))[0], run_here(model, fed)[0]


def test_rows_that_are_not_rounded_here_are_not_rounded_in_the_reference():
    """A depth that is no multiple of the block: the product is of float32 numbers."""
    constants = {"b": packed(16, 3, 16), "s": np.abs(normal(48)) / 8}
    made = contrib("MatMulNBits", "x b s", K=80, N=16, bits=4, block_size=32, accuracy_level=4)
    x = normal(2, 80)
    numbers = (constants["b"][..., None] >> np.array([0, 4], "uint8")) & 15
    weight = (numbers.reshape(16, 3, 32) - 8.0) * constants["s"].reshape(16, 3, 1)
    exact = x @ weight.reshape(16, -1)[:, :80].T
    reference, _ = references({"x": x}, [made], constants)
    np.testing.assert_allclose(reference, exact, rtol=1e-4, atol=1e-4)
    assert_same_of([made], {"x": x}, tolerance=5e-2, **constants)
