# SPDX-License-Identifier: Apache-2.0
"""Tests of quantized models in integers, beside ONNX Runtime and NumPy."""

import numpy as np
import pytest
from onnx import TensorProto
from onnx_models import model, node, value
from operator_runs import WITHOUT_OVERFLOW, assert_same, run_here
from quantized_graphs import TYPES, Builder, random_network

from tvm_droplet_ms.frontends.onnx.importing import import_onnx
from tvm_droplet_ms.frontends.onnx.reference import onnx_runtime
from tvm_droplet_ms.model.bindings import operator_name, values_of
from tvm_droplet_ms.model.integers.products import compute_in_integers, count_products
from tvm_droplet_ms.model.prepare import prepare_graph


def as_written(made, inputs, *, may_overflow=False):
    """What ONNX Runtime computes where it does not fuse quantized operators.

    ``may_overflow``: without the option that it refuses for some operators of int8.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.disable_quant_qdq", "1")
    if not may_overflow:
        options.add_session_config_entry(*WITHOUT_OVERFLOW)
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        made.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return session.run(None, inputs)


def products(made):
    """The numbers of products in integers, and of those that stay dequantized."""
    counts = count_products(compute_in_integers()(import_onnx(made).mod))
    return counts.in_integers, counts.dequantized


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("seed", [0, 1, 2, 4, 5])  # What seed 3 computes is constant.
def test_random_networks_are_within_one_step(seed, dtype):
    made, shape = random_network(seed, dtype)
    assert products(made) == (4, 0)
    x = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    (found,), (expected,) = run_here(made, {"x": x}), as_written(made, {"x": x})
    assert found.dtype == expected.dtype == np.dtype(dtype)
    assert len(np.unique(expected)) > 2
    steps = np.abs(found.astype(int) - expected.astype(int))
    assert steps.max() <= 1
    assert np.count_nonzero(steps) <= 1


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_operators_of_onnx_runtime_are_within_one_step(dtype):
    """A network of QLinearConv, QLinearAdd and their like, as quantize_static writes it."""
    builder = Builder(11, dtype)
    x = builder.parameters()
    data = builder.add("QuantizeLinear", "x", *x)
    bias = builder.constant(np.arange(-3, 3, dtype=np.int32) * 100)
    first = builder.parameters(0.1)
    weight = builder.bytes_of_weight(6, 3, 3, 3, channels=6)
    data = builder.add("QLinearConv", data, *x, *weight, *first, bias, pads=[1, 0, 1, 2])
    domain = {"domain": "com.microsoft"}
    gate, both, joined, mean = (builder.parameters() for _ in range(4))
    gated = builder.add("QLinearSigmoid", data, *first, *gate, **domain)
    added = builder.add("QLinearAdd", data, *first, gated, *gate, *both, **domain)
    data = builder.add(
        "QLinearConcat", *joined, added, *both, gated, *gate, domain="com.microsoft", axis=1
    )
    data = builder.add("QLinearGlobalAveragePool", data, *joined, *mean, channels_last=0, **domain)
    data = builder.add("Flatten", data)
    last = builder.parameters(0.02, point=60)
    weight = builder.bytes_of_weight(5, 12)
    bias = builder.constant(np.arange(5, dtype=np.int32) * 50)
    data = builder.add(
        "QGemm", data, *mean, *weight, bias, *last, alpha=1.0, transB=1, domain="com.microsoft"
    )
    made = builder.model([value("x", [1, 3, 6, 6])], data, TensorProto.UINT8)
    if dtype == "int8":
        made.graph.output[0].type.tensor_type.elem_type = TensorProto.INT8
    assert products(made) == (2, 0)
    x = np.random.default_rng(1).standard_normal((1, 3, 6, 6)).astype(np.float32)
    assert onnx_runtime(made, ["x"], {}, 1)[1] is None
    (found,) = run_here(made, {"x": x})
    (expected,) = as_written(made, {"x": x}, may_overflow=dtype == "int8")
    assert len(np.unique(expected)) > 2
    assert np.abs(found.astype(int) - expected.astype(int)).max() <= 1


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_dynamically_quantized_products_are_exact(dtype):
    builder = Builder(3)
    parts = [builder.add("Identity", "x")]
    builder.nodes[-1].op_type = "DynamicQuantizeLinear"
    builder.nodes[-1].output.extend(["scale", "zero"])
    weight, _, point = builder.bytes_of_weight(7, 3, 3, 3, dtype="uint8")
    data = builder.add(
        "ConvInteger", *parts, weight, "zero", point, pads=[1, 2, 0, 1], strides=[2, 1]
    )
    made = builder.model([value("x", [2, 3, 8, 7])], data, TensorProto.INT32)
    assert products(made) == (1, 0)
    x = np.random.default_rng(2).standard_normal((2, 3, 8, 7)).astype(np.float32)
    assert_same(made, {"x": x}, rtol=0, atol=0)

    builder = Builder(4)
    weight, _, point = builder.bytes_of_weight(12, 5, channels=5, dtype=dtype)
    data = builder.add("MatMulInteger", "a", weight, "", point)
    made = builder.model([value("a", [3, 12], TensorProto.UINT8)], data, TensorProto.INT32)
    assert products(made) == (1, 0)
    a = np.random.default_rng(2).integers(0, 256, (3, 12)).astype(np.uint8)
    assert_same(made, {"a": a}, rtol=0, atol=0)


def test_a_product_is_rescaled_and_rounded_to_even():
    """Sums of 1 to 6 halves, and some beyond the range: by hand."""
    sums = np.array([[1, 2, 3, 5, -1, -3, 127, -127]], np.int8)
    constants = {
        "xs": np.float32(0.5),
        "xz": np.uint8(3),
        "w": sums,
        "ws": np.float32(1.0),
        "wz": np.int8(0),
        "ys": np.float32(1.0),
        "yz": np.int8(10),
    }
    nodes = [
        node("DequantizeLinear", "x xs xz", "a"),
        node("DequantizeLinear", "w ws wz", "b"),
        node("MatMul", "a b", "p"),
        node("QuantizeLinear", "p ys yz", "y"),
    ]
    made = model(
        nodes,
        [value("x", [3, 1], TensorProto.UINT8)],
        [value("y", None, TensorProto.INT8)],
        **constants,
    )
    assert products(made) == (1, 0)
    (found,) = run_here(made, {"x": np.array([[4], [3], [6]], np.uint8)})
    # (4 - 3) / 2 of each: 0.5, 1, 1.5, 2.5, -0.5, -1.5, 63.5, -63.5; then 10 is added.
    assert found[0].tolist() == [10, 11, 12, 12, 10, 8, 74, -54]
    assert found[1].tolist() == [10] * 8
    # 1.5 of each: 1.5, 3, 4.5, 7.5, -1.5, -4.5, 190.5, -190.5.
    assert found[2].tolist() == [12, 13, 14, 18, 8, 6, 127, -128]


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize(("groups", "inputs", "outputs"), [(3, 4, 8), (2, 8, 4), (2, 16, 32)])
def test_groups_of_fours_are_within_one_step(groups, inputs, outputs, dtype):
    builder = Builder(groups, dtype)
    data = builder.requantize("x")
    weight = builder.weight(groups * outputs, inputs, 3, 3)
    bias = builder.constant(builder.random.standard_normal(groups * outputs).astype(np.float32))
    data = builder.add("Conv", data, weight, bias, group=groups, pads=[1, 0, 1, 2], strides=[1, 2])
    output = builder.add("QuantizeLinear", data, *builder.parameters(0.05))
    shape = [1, groups * inputs, 7, 9]
    made = builder.model([value("x", shape)], output, TYPES[dtype][0])
    assert products(made) == (1, 0)
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    (found,), (expected,) = run_here(made, {"x": x}), as_written(made, {"x": x})
    assert len(np.unique(expected)) > 20
    steps = np.abs(found.astype(int) - expected.astype(int))
    assert steps.max() <= 1
    assert np.count_nonzero(steps) <= 1


def test_what_is_not_understood_stays_dequantized_and_is_said():
    """A convolution of groups of two inputs, and a product of two activations."""
    builder = Builder(5)
    data = builder.requantize("x")
    data = builder.requantize(builder.add("Conv", data, builder.weight(4, 2, 3, 3), group=2))
    other = builder.add("Transpose", data, perm=[0, 1, 3, 2])
    data = builder.add("MatMul", data, other)
    data = builder.add("MatMul", builder.requantize(data), builder.weight(4, 5, axis=1))
    made = builder.model([value("x", [1, 4, 6, 6])], data)
    assert products(made) == (1, 2)
    imported = import_onnx(made)
    assert [note for note in imported.notes if note.startswith("2 of 3 quantized")]


def test_a_scale_that_is_known_at_run_time_alone_is_not_looked_through():
    """Behind it lie 60 sums of a tensor with itself: 2 ** 60 ways to its source."""
    builder = Builder(6)
    data = "x"
    for _ in range(60):
        data = builder.add("Add", data, data)
    builder.add("DynamicQuantizeLinear", data)
    builder.nodes[-1].output.extend(["scale", "zero"])
    weight, _, point = builder.bytes_of_weight(8, 5)
    data = builder.add("MatMulInteger", builder.nodes[-1].output[0], weight, "zero", point)
    assert products(builder.model([value("x", [3, 8])], data, TensorProto.INT32)) == (1, 0)


@pytest.mark.parametrize("dtype, point", [("uint8", 128), ("int8", -128)])
def test_a_pad_becomes_the_padding_of_a_convolution_in_integers(dtype, point):
    """TensorFlow pads only behind an image where the stride is two."""
    builder = Builder(3, dtype)
    parameters = builder.parameters(0.03, point)
    data = builder.add("QuantizeLinear", "x", *parameters)
    data = builder.add("DequantizeLinear", data, *parameters)
    data = builder.add("Pad", data, builder.constant(np.array([0, 0, 0, 0, 0, 0, 1, 1])))
    data = builder.add("Conv", data, builder.weight(6, 4, 3, 3), strides=[2, 2])
    output = builder.add("QuantizeLinear", data, *builder.parameters(0.03, 100))
    made = builder.model([value("x", [1, 4, 8, 8])], output, TYPES[dtype][0])
    imported = import_onnx(made)
    assert not imported.notes
    values = values_of(prepare_graph()(imported.mod)["main"])
    (product,) = (one for one in values if operator_name(one) == "relax.nn.conv2d")
    assert [str(each.ty.dtype) for each in (product, *product.args)] == ["int32", "uint8", "int8"]
    x = np.random.default_rng(1).standard_normal((1, 4, 8, 8)).astype(np.float32)
    (found,), (expected,) = run_here(made, {"x": x}), as_written(made, {"x": x})
    assert len(np.unique(expected)) > 20
    assert np.array_equal(found, expected)


@pytest.mark.parametrize("point", [0, 114])
@pytest.mark.parametrize("pads", [[0, 0, 0, 0], [1, 2, 0, 1]])
def test_images_of_three_channels_are_read_as_four(point, pads):
    builder = Builder(7)
    parameters = builder.parameters(0.03, point)
    data = builder.add("QuantizeLinear", "x", *parameters)
    data = builder.add("DequantizeLinear", data, *parameters)
    data = builder.add("Conv", data, builder.weight(8, 3, 3, 3), pads=pads, strides=[2, 1])
    output = builder.add("QuantizeLinear", data, *builder.parameters(0.03, 100))
    made = builder.model([value("x", [1, 3, 9, 8])], output, TensorProto.UINT8)
    assert products(made) == (1, 0)
    main = compute_in_integers()(import_onnx(made).mod)["main"]
    values = [binding.value for block in main.body.blocks for binding in block.bindings]
    (data,) = (one.args[0] for one in values if operator_name(one) == "relax.nn.conv2d")
    assert (str(data.ty.dtype), int(data.ty.shape[1])) == ("uint8", 4)
    x = np.random.default_rng(1).standard_normal((1, 3, 9, 8)).astype(np.float32)
    (found,), (expected,) = run_here(made, {"x": x}), as_written(made, {"x": x})
    assert len(np.unique(expected)) > 20
    assert np.array_equal(found, expected)
