# SPDX-License-Identifier: Apache-2.0
"""Half floats as float32."""

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

from onnx import TensorProto, numpy_helper  # noqa: E402
from onnx_models import branch, model, node, run, value  # noqa: E402

from tvm_droplet_ms.frontends.onnx.halves import half_types, to_float32  # noqa: E402

HALF = TensorProto.FLOAT16
X = np.linspace(-2, 2, 6).astype("float16").reshape(2, 3)
WEIGHT = np.linspace(-1, 1, 12).astype("float16").reshape(3, 4)


def half_model():
    """A product, whose constant and cast are float16 too, with x as an output besides."""
    half = numpy_helper.from_array(np.float16(0.5), "value")
    nodes = [
        node("Cast", "n", "m", to=HALF),
        onnx.helper.make_node("Constant", [], ["half"], value=half),
        node("MatMul", "x w", "p"),
        node("Mul", "p half", "q"),
        node("Add", "q m", "y"),
        node("Relu", "x", "z"),
    ]
    inputs = [value("x", [2, 3], HALF), value("n", [4], TensorProto.INT64)]
    outputs = [value("y", [2, 4], HALF), value("z", [2, 3], HALF)]
    return model(nodes, inputs, outputs, w=WEIGHT)


def kinds_of(values):
    return [each.type.tensor_type.elem_type for each in values]


def test_half_types_are_found_where_they_are():
    declared = half_types(half_model())
    assert declared.inputs == {"x": "float16"}
    assert declared.outputs == {"y": "float16", "z": "float16"}
    assert declared.anywhere == ("float16",)
    cast = [node("Cast", "x", "h", to=TensorProto.BFLOAT16), node("Cast", "h", "y", to=1)]
    assert half_types(model(cast, [value("x", [2])], ["y"])).anywhere == ("bfloat16",)
    assert half_types(model([node("Relu", "x")], [value("x", [2])], ["y"])).anywhere == ()


@pytest.mark.parametrize("borders", [False, True])
def test_it_computes_in_float32_with_the_same_weights(borders):
    made = half_model()
    before = made.SerializeToString()
    converted = to_float32(made, borders=borders)
    assert made.SerializeToString() == before
    inputs = {"x": X if borders else X.astype("float32"), "n": np.arange(4)}
    y, z = run(converted, **inputs)
    expected = X.astype("float64") @ WEIGHT.astype("float64") / 2 + np.arange(4)
    wanted = np.float16 if borders else np.float32
    assert y.dtype == z.dtype == wanted
    np.testing.assert_allclose(y, expected, rtol=1e-3 if borders else 1e-6, atol=1e-6)
    np.testing.assert_array_equal(z, np.maximum(X, 0))


def test_borders_stay_as_declared():
    converted = to_float32(half_model(), borders=True)
    assert kinds_of(converted.graph.input) == [HALF, TensorProto.INT64]
    assert kinds_of(converted.graph.output) == [HALF, HALF]
    onnx.checker.check_model(converted, full_check=True)
    assert all(tensor.data_type == TensorProto.FLOAT for tensor in converted.graph.initializer)


def test_an_input_that_is_an_output_stays():
    x = value("x", [2, 3], HALF)
    converted = to_float32(model([node("Exp", "x")], [x], [value("y", [2, 3], HALF), x]), borders=1)
    y, x = run(converted, x=X)
    np.testing.assert_array_equal(x, X)
    np.testing.assert_allclose(y, np.exp(X.astype("float64")), rtol=1e-3)


def test_branches_are_converted_too():
    then = branch("then", [node("Add", "x b", "t")], "t", b=np.float16(1))
    other = branch("other", [node("Neg", "x", "u")], "u")
    inputs = [value("x", [2, 3], HALF), value("c", [], TensorProto.BOOL)]
    made = model(
        [node("If", "c", then_branch=then, else_branch=other)], inputs, [value("y", None, HALF)]
    )
    converted = to_float32(made, borders=True)
    (y,) = run(converted, x=X, c=np.array(True))
    assert y.dtype == np.float16
    np.testing.assert_array_equal(y, X + np.float16(1))
    inner = {a.name: a.g for n in converted.graph.node for a in n.attribute if a.HasField("g")}
    assert inner["then_branch"].initializer[0].data_type == TensorProto.FLOAT


def test_bfloat16_is_converted():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    weight = np.array([1.5, -2.25], ml_dtypes.bfloat16)
    made = model(
        [node("Mul", "x w")],
        [value("x", [2], TensorProto.BFLOAT16)],
        [value("y", [2], TensorProto.BFLOAT16)],
        w=weight,
    )
    converted = to_float32(made, borders=False)
    (y,) = run(converted, x=np.array([3, 0.5], "float32"))
    np.testing.assert_array_equal(y, np.array([4.5, -1.125], "float32"))


def test_functions_of_the_model_are_converted_too():
    half = numpy_helper.from_array(np.float16(0.5), "value")
    body = [
        onnx.helper.make_node("Constant", [], ["half"], value=half),
        node("Cast", "a", "h", to=HALF),
        node("Mul", "h half", "b"),
    ]
    opsets = [onnx.helper.make_opsetid("", 17)]
    function = onnx.helper.make_function("own", "halved", ["a"], ["b"], body, opsets)
    made = model(
        [node("halved", "x", domain="own")], [value("x", [2, 3], HALF)], [value("y", None, HALF)]
    )
    made.functions.append(function)
    made.opset_import.append(onnx.helper.make_opsetid("own", 1))
    assert half_types(made).anywhere == ("float16",)
    (y,) = run(to_float32(made, borders=False), x=X.astype("float32"))
    assert y.dtype == np.float32
    np.testing.assert_array_equal(y, X.astype("float32") / 2)


def test_an_output_that_is_a_weight_is_cast():
    made = model(
        [node("Relu", "x")],
        [value("x", [2, 3], HALF)],
        [value("y", [2, 3], HALF), value("w", [3, 4], HALF)],
        w=WEIGHT,
    )
    y, w = run(to_float32(made, borders=True), x=X)
    assert (y.dtype, w.dtype) == (np.float16, np.float16)
    np.testing.assert_array_equal(w, WEIGHT)
