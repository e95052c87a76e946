# SPDX-License-Identifier: Apache-2.0
"""Copies of ONNX models with weights that are moved by a rounding error."""

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from tvm_droplet_ms.model.onnx.moved_weights import ROUNDING, move_weights
from tvm_droplet_ms.tuning.check.output_check import moved_runs
from tvm_droplet_ms.tuning.frontends.onnx_reference import onnx_runtime


def model():
    """x @ weight + bias, with a weight in an initializer and one in an attribute."""
    generator = np.random.default_rng(0)
    weight = generator.standard_normal((64, 32)).astype("float32")
    weight[0, 0] = 0.0
    second = generator.standard_normal((32, 4)).astype("float32")
    nodes = [
        helper.make_node("Constant", [], ["second"], value=numpy_helper.from_array(second)),
        helper.make_node("MatMul", ["x", "weight"], ["hidden"]),
        helper.make_node("MatMul", ["hidden", "second"], ["product"]),
        helper.make_node("Add", ["product", "bias"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 4])],
        [
            numpy_helper.from_array(weight, "weight"),
            numpy_helper.from_array(np.array([2.0, 2.0, 1.0, 3.0], "float32"), "bias"),
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def weights(of):
    constant = next(node for node in of.graph.node if node.op_type == "Constant")
    arrays = {each.name: numpy_helper.to_array(each) for each in of.graph.initializer}
    return arrays | {"second": numpy_helper.to_array(constant.attribute[0].t)}


def test_each_weight_moves_by_the_rounding_and_what_may_be_an_extent_stays():
    before = model()
    given = before.SerializeToString()
    moved, old = weights(move_weights(before, np.random.default_rng(1))), weights(before)
    assert before.SerializeToString() == given
    np.testing.assert_array_equal(moved["bias"], old["bias"])
    for name in ("weight", "second"):
        is_zero = old[name] == 0
        assert (moved[name][is_zero] == 0).all()
        off = np.abs(moved[name] / np.where(is_zero, 1, old[name]) - 1)[~is_zero]
        assert (off > 0.4 * ROUNDING).all() and (off < 1.6 * ROUNDING).all()
        signs = np.sign(moved[name] - old[name])[~is_zero]
        assert 0.3 < (signs > 0).mean() < 0.7


def test_the_reference_runs_with_moved_weights():
    """Inputs of integers do not move: what moves the outputs are the weights."""
    reference, problem = onnx_runtime(model(), ["x"], {}, 1)
    assert problem is None
    x = np.ones((2, 64), "float32")
    (right,) = reference.run([x])
    outputs = [run[0] for run in moved_runs(reference, [x])]
    assert len(outputs) == 3
    scale = np.abs(right).max()
    for output in outputs:
        off = np.abs(output - right).max()
        assert 0 < off < 1e-4 * scale
