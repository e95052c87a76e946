# SPDX-License-Identifier: Apache-2.0
"""Operators of old versions, and models without their weights."""

import numpy as np
import pytest

pytest.importorskip("onnx")

from onnx import TensorProto, numpy_helper
from onnx_models import branch, kinds, model, node, run, value
from operator_runs import assert_same

from tvm_droplet_ms.frontends.onnx.opset import (
    opset_of,
    put_weights_back,
    with_new_opset,
    without_weights,
)

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


@pytest.mark.parametrize(
    "opset, mode, scales",
    [
        (9, "linear", [1, 1, 2, 3]),
        (9, "nearest", [1, 1, 1.5, 2.7]),
        (10, "linear", [1, 1, 0.6, 2.3]),
        (10, "nearest", [1, 1, 0.6, 2.3]),
    ],
)
def test_an_old_resize_places_coordinates_as_it_did(opset, mode, scales):
    pytest.importorskip("onnxruntime")
    x = np.random.default_rng(2).standard_normal((1, 2, 9, 11)).astype("float32")
    old = node("Upsample" if opset < 10 else "Resize", "x s", mode=mode)
    made = model([old], [value("x", x.shape)], ["y"], opset=opset, s=np.float32(scales))
    assert_same(made, {"x": x}, atol=1e-5)


def test_an_old_resize_of_a_branch_and_one_of_a_constant_too():
    pytest.importorskip("onnxruntime")
    x = np.random.default_rng(3).standard_normal((1, 1, 4, 5)).astype("float32")
    scales = np.float32([1, 1, 0.7, 1.5])
    nodes = [
        node("Resize", "k s", "c", mode="nearest"),
        node(
            "If",
            "z",
            "b",
            then_branch=branch("then", [node("Resize", "x s", "t", mode="nearest")], "t"),
            else_branch=branch("else", [node("Resize", "x s", "e", mode="linear")], "e"),
        ),
        node("Add", "b c"),
    ]
    inputs = [value("x", x.shape), value("z", [], TensorProto.BOOL)]
    made = model(nodes, inputs, ["y"], opset=10, k=x[:, :, ::-1], s=scales)
    for is_first in (True, False):
        assert_same(made, {"x": x, "z": np.array(is_first)})


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
    with pytest.raises(RuntimeError, match="a Scan of before version 9"):
        with_new_opset(model([node("Scan", "x")], [X], ["y"], opset=8))


def test_a_model_without_standard_operators_is_left_as_it_is():
    made = model([node("Binarizer", "x", domain="ai.onnx.ml")], [X], ["y"])
    made.opset_import[0].domain = "ai.onnx.ml"
    made.opset_import[0].version = 1
    assert with_new_opset(made) is made
