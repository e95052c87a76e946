# SPDX-License-Identifier: Apache-2.0
"""Operators of old versions, and models without their weights."""

import numpy as np
import pytest

pytest.importorskip("onnx")

from onnx import numpy_helper
from onnx_models import kinds, model, node, run, value

from tvm_droplet_ms.model.onnx.opset import opset_of, with_new_opset
from tvm_droplet_ms.model.onnx.weights import put_weights_back, without_weights

X = value("x", [2, 48])
INPUT = np.random.default_rng(0).standard_normal((2, 48)).astype("float32")
WEIGHT = np.random.default_rng(1).standard_normal((48, 64)).astype("float32")


def old_model():
    nodes = [
        node("MatMul", "x w", "p"),
        node("Slice", "p", "a", axes=[1], starts=[0], ends=[32]),
        node("Slice", "p", "b", axes=[1], starts=[-32], ends=[9999]),
        node("Mul", "a b"),
    ]
    return model(nodes, [X], ["y"], opset=7, w=WEIGHT)


def test_attributes_become_inputs():
    made = old_model()
    before = made.SerializeToString()
    new = with_new_opset(made)
    assert made.SerializeToString() == before
    assert opset_of(new) == 13
    (slice_,) = [n for n in new.graph.node if n.op_type == "Slice" and n.output[0] == "a"]
    assert len(slice_.input) >= 4 and not slice_.attribute
    product = INPUT @ WEIGHT
    expected = product[:, :32] * product[:, 32:]
    np.testing.assert_allclose(run(new, x=INPUT)[0], expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(numpy_helper.to_array(new.graph.initializer[-1]), WEIGHT)
    assert [each.name for each in new.graph.input] == ["x"]


def test_weights_that_are_no_inputs_are_fine_with_an_old_format():
    made = old_model()
    made.ir_version = 3
    assert opset_of(with_new_opset(made)) == 13


def test_a_new_model_is_left_as_it_is():
    made = model([node("Relu", "x")], [X], ["y"], opset=17)
    assert with_new_opset(made) is made


def test_what_onnx_cannot_convert_is_an_error():
    made = model([node("Squiggle", "x")], [X], ["y"], opset=7)
    with pytest.raises(RuntimeError, match="Squiggle"):
        with_new_opset(made)


def test_a_model_without_weights_is_small_and_gets_them_back():
    nodes = [node("MatMul", "x w", "p"), node("Add", "p b")]
    made = model(nodes, [X], ["y"], w=WEIGHT, b=WEIGHT[0])
    light, weights = without_weights(made)
    assert light.ByteSize() < 1000 and [tensor.name for tensor in weights] == ["w"]
    assert kinds(light) == ["MatMul", "Add"]
    assert [each.name for each in light.graph.input] == ["x", "w"]
    assert list(light.opset_import) == list(made.opset_import)
    put_weights_back(light, weights)
    assert [each.name for each in light.graph.input] == ["x"]
    np.testing.assert_array_equal(run(light, x=INPUT)[0], run(made, x=INPUT)[0])


def test_a_scan_of_version_8_is_not_taken_for_a_later_one():
    with pytest.raises(RuntimeError, match="a Scan of version 8"):
        with_new_opset(model([node("Scan", "x")], [X], ["y"], opset=8))


def test_a_model_without_standard_operators_is_left_as_it_is():
    made = model([node("Binarizer", "x", domain="ai.onnx.ml")], [X], ["y"])
    made.opset_import[0].domain = "ai.onnx.ml"
    made.opset_import[0].version = 1
    assert with_new_opset(made) is made
