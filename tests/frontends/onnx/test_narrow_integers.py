# SPDX-License-Identifier: Apache-2.0
"""Weights of four bits in blocks, from ``DequantizeLinear``, stay packed: beside NumPy."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from tvm.s_tir.meta_schedule.database import MemoryDatabase
from tvm.target import Target
from tvm_droplet_ms.frontends import import_model
from tvm_droplet_ms.frontends.onnx.simplify import widen_integers
from tvm_droplet_ms.model.prepare import prepare_graph
from tvm_droplet_ms.tuning.compile.compiled_model import CompiledModel
from tvm_droplet_ms.tuning.compile.lowering import build, lower

TARGET = Target({"kind": "llvm", "num-cores": 1, "opt-level": 1})
RNG = np.random.default_rng(0)
DEPTH, COLUMNS = 128, 64
RANGES = {"INT4": (-8, 8), "UINT4": (0, 16), "INT8": (-128, 128), "UINT8": (0, 256)}


def product(kind, block, rows):
    """A model that multiplies by dequantized weights, and these."""
    number, (low, high) = getattr(TensorProto, kind), RANGES[kind]
    shape = (DEPTH // block, COLUMNS) if block else (COLUMNS,)
    integers = RNG.integers(low, high, (DEPTH, COLUMNS))
    zeros, scales = RNG.integers(low, high, shape), RNG.random(shape).astype("float32")
    how = {"axis": 0, "block_size": block} if block else {"axis": 1}
    graph = helper.make_graph(
        [
            helper.make_node("DequantizeLinear", ["q", "s", "z"], ["w"], **how),
            helper.make_node("MatMul", ["x", "w"], ["y"]),
        ],
        "product",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, DEPTH])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [rows, COLUMNS])],
        [
            helper.make_tensor("q", number, integers.shape, integers.reshape(-1).tolist()),
            numpy_helper.from_array(scales, "s"),
            helper.make_tensor("z", number, zeros.shape, zeros.reshape(-1).tolist()),
        ],
    )
    opset = helper.make_opsetid("", 21)
    spread = [np.repeat(each, block, 0) if block else each for each in (zeros, scales)]
    weights = (integers - spread[0]) * spread[1].astype("float64")
    return helper.make_model(graph, opset_imports=[opset], ir_version=10), weights


@pytest.mark.parametrize("rows", [1, 9])
@pytest.mark.parametrize(
    ("kind", "block"), [("INT4", 32), ("UINT4", 16), ("INT8", 64), ("UINT8", 0), ("UINT4", 0)]
)
def test_products_are_those_of_the_weights(kind, block, rows):
    """Of one row they are packed, of nine they are float32 when the graph is prepared."""
    model, weights = product(kind, block, rows)
    with TARGET:
        graph = prepare_graph()(import_model(model).mod)
    assert ("narrow_product" in graph.script()) == (rows == 1)
    assert "astype" not in graph.script()
    compiled = CompiledModel(build(lower(graph, TARGET), MemoryDatabase(), TARGET))
    x = RNG.standard_normal((rows, DEPTH)).astype("float32")
    (found,) = compiled([x])
    expected = x @ weights
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


def test_names_that_are_taken_are_left():
    model, _ = product("INT4", 32, 1)
    model.graph.initializer.append(numpy_helper.from_array(np.ones(1, "float32"), "q_bytes"))
    widened = widen_integers(model)
    assert list(widened.graph.node[0].input) == ["q_bytes_", "s", "z_bytes"]
