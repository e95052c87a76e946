# SPDX-License-Identifier: Apache-2.0
"""Copies of ONNX models with weights that are moved by a rounding error."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_models import model, node, value

from tvm_droplet_ms.frontends.imported import Reference
from tvm_droplet_ms.frontends.onnx.reference import ROUNDING, move_weights, onnx_runtime
from tvm_droplet_ms.tuning.check.output_check import OutputCheck, moved_runs


def weighted():
    """x @ weight + bias, with a weight in an initializer and one in an attribute; integer x."""
    generator = np.random.default_rng(0)
    weight = generator.standard_normal((64, 32)).astype("float32")
    weight[0, 0] = 0.0
    second = numpy_helper.from_array(generator.standard_normal((32, 4)).astype("float32"))
    nodes = [
        node("Cast", "x", "floats", to=TensorProto.FLOAT),
        helper.make_node("Constant", [], ["second"], value=second),
        node("MatMul", "floats weight", "hidden"),
        node("MatMul", "hidden second", "product"),
        node("Add", "product table", "y"),
    ]
    table = generator.standard_normal((2, 4)).astype("float32")
    return model(nodes, [value("x", (2, 64), TensorProto.INT64)], ["y"], weight=weight, table=table)


def weights(of):
    constant = next(node for node in of.graph.node if node.op_type == "Constant")
    arrays = {each.name: numpy_helper.to_array(each) for each in of.graph.initializer}
    return arrays | {"second": numpy_helper.to_array(constant.attribute[0].t)}


def test_each_weight_moves_by_the_rounding_and_other_constants_stay():
    before = weighted()
    given = before.SerializeToString()
    moved, old = weights(move_weights(before, np.random.default_rng(1))), weights(before)
    assert before.SerializeToString() == given
    np.testing.assert_array_equal(moved["table"], old["table"])
    for name in ("weight", "second"):
        is_zero = old[name] == 0
        assert (moved[name][is_zero] == 0).all()
        off = np.abs(moved[name] / np.where(is_zero, 1, old[name]) - 1)[~is_zero]
        assert (off > 0.4 * ROUNDING).all() and (off < 1.6 * ROUNDING).all()
        signs = np.sign(moved[name] - old[name])[~is_zero]
        assert 0.3 < (signs > 0).mean() < 0.7


def test_moved_weights_move_the_outputs_of_integers():
    reference, problem = onnx_runtime(weighted(), ["x"], {}, 1)
    assert problem is None
    x = np.arange(128).reshape(2, 64)
    (right,) = reference.run([x])
    found = [output for (output,) in moved_runs(reference, [x])]
    assert len(found) > 1 and np.abs(found[0] - found[1]).max() > 0
    for output in found:
        assert 0 < np.abs(output - right).max() < 1e-4 * np.abs(right).max()


def test_scales_of_weights_move_and_those_of_activations_stay():
    constants = {
        "table": np.arange(-8, 8, dtype="int8").reshape(4, 4),
        "table_scale": np.array(0.01, "float32"),
        "scale": np.array(0.02, "float32"),
        "zero": np.array(0, "int8"),
    }
    nodes = [
        node("Gather", "table x", "rows"),
        node("DequantizeLinear", "rows table_scale zero", "floats"),
        node("QuantizeLinear", "floats scale zero", "bytes"),
        node("DequantizeLinear", "bytes scale zero", "y"),
    ]
    before = model(nodes, [value("x", (2,), TensorProto.INT64)], ["y"], **constants)
    moved = move_weights(before, np.random.default_rng(0))
    changed = {
        old.name
        for old, new in zip(before.graph.initializer, moved.graph.initializer, strict=True)
        if old != new
    }
    assert changed == {"table_scale"}


def test_masks_and_exact_numbers_are_no_noise():
    """A mask of -inf, a table that is compared, and a shape: moved, they would excuse anything."""
    nodes = [
        node("MatMul", "x weight", "scores"),
        node("Add", "scores mask", "masked"),
        node("Softmax", "masked", "shares", axis=-1),
        node("Equal", "flags one", "is_on"),
        node("Where", "is_on shares flags", "chosen"),
        node("Cast", "extents", "shape", to=TensorProto.INT64),
        node("Reshape", "shape flat", "row"),
        node("Reshape", "chosen row", "y"),
    ]
    constants = {
        "weight": np.random.default_rng(0).standard_normal((8, 8)).astype("float32"),
        "mask": np.triu(np.full((8, 8), -np.inf, "float32"), 1),
        "flags": np.eye(8, dtype="float32") + np.eye(8, k=-1, dtype="float32"),
        "one": np.ones((1, 1), "float32"),
        "extents": np.array([[4.0, 16.0]], "float32"),
        "flat": np.array([2]),
    }
    made = model(nodes, [value("x", (8, 8))], ["y"], **constants)
    reference, problem = onnx_runtime(made, ["x"], {}, 1)
    assert problem is None
    x = np.random.default_rng(1).standard_normal((8, 8)).astype("float32")
    (right,) = reference.run([x])
    check = OutputCheck(reference, ((x,),), ([right],), 1e-4)
    assert not check.agrees(lambda _: [right * 1.01])
    assert not check.is_noisy and check.agrees(lambda _: [right])


@pytest.mark.parametrize("fault", ["raises", "of another shape"])
def test_a_moved_run_that_fails_excuses_nothing(fault):
    def make(_seed):
        if fault == "raises":
            raise RuntimeError("no such shape")
        return lambda inputs: [inputs[0][:1]]

    x = np.ones((4, 8), "float32")
    reference = Reference("made up", lambda inputs: [inputs[0]], with_moved_weights=make)
    check = OutputCheck(reference, ((x,),), ([x],), 1e-4)
    assert not check.agrees(lambda _: [x * 1.01])
