# SPDX-License-Identifier: Apache-2.0
"""Shapes of kernels as a person reads them, against shapes that are written here."""

import pytest

from tvm import te, topi
from tvm.ir import IRModule
from tvm.tirx import const
from tvm_droplet_ms.cli.report.layers import layer_of
from tvm_droplet_ms.cli.report.shapes import arguments_of, shape_of, without_types


def module(*tensors):
    return IRModule({"main": te.create_prim_func(tensors)})


def long(*shape, name):
    """A tensor whose extents have 64 bits, as those of models have."""
    return te.placeholder([const(extent, "int64") for extent in shape], name=name)


def convolution():
    image, weights = long(1, 60, 160, 3, name="image"), long(7, 7, 3, 64, name="weights")
    bias = long(1, 1, 1, 64, name="bias")
    out = topi.nn.conv2d_nhwc(image, weights, 2, 3, 1)
    return module(image, weights, bias, topi.nn.relu(topi.add(out, bias)))


def transposition():
    image = long(1, 3, 8, 8, name="image")
    return module(image, topi.transpose(image, (0, 2, 3, 1)))


def softmax():
    row = long(1, 1000, name="row")
    return module(row, topi.nn.softmax(row))


def sum_of_squares():
    rows = long(4, 32, name="rows")
    return module(rows, topi.sum(rows * rows, axis=1))


def channels_first():
    image, weights = long(1, 8, 20, 30, name="image"), long(16, 8, 3, 5, name="weights")
    return module(image, weights, topi.nn.conv2d_nchw(image, weights, 1, (1, 2), 1))


def winograds_layer():
    image, weights = long(1, 56, 56, 64, name="image"), long(3, 3, 64, 32, name="weights")
    return module(image, weights, topi.nn.conv2d_nhwc(image, weights, 1, 1, 1))


def depthwise():
    image, weights = long(1, 20, 20, 8, name="image"), long(3, 3, 8, 1, name="weights")
    return module(image, weights, topi.nn.depthwise_conv2d_nhwc(image, weights, 1, 1, 1))


def channels_twice():
    """Two output channels a channel."""
    image, weights = long(1, 20, 20, 8, name="image"), long(3, 3, 8, 2, name="weights")
    return module(image, weights, topi.nn.depthwise_conv2d_nhwc(image, weights, 1, 1, 1))


def grouped():
    image, weights = long(1, 8, 20, 30, name="image"), long(16, 2, 3, 5, name="weights")
    return module(image, weights, topi.nn.group_conv2d_nchw(image, weights, 1, (1, 2), 1, 4))


def pooling():
    image = long(1, 20, 20, 8, name="image")
    pool = topi.nn.pool2d(image, (3, 2), (2, 2), (1, 1), (0, 0, 0, 0), "max", layout="NHWC")
    return module(image, pool)


@pytest.mark.parametrize(
    ("name", "mod", "layer"),
    [
        ("fused_conv2d3_add_relu12", convolution, "7x7 convolution 60x160x3 -> 64 + add + relu"),
        ("conv2d", winograds_layer, "3x3 convolution 56x56x64 -> 32"),
        ("conv2d7", channels_first, "3x5 convolution 8x20x30 -> 16"),
        ("fused_conv2d_relu", depthwise, "3x3 depthwise convolution 20x20x8 -> 8 + relu"),
        ("conv2d", channels_twice, "3x3 depthwise convolution 20x20x8 -> 16"),
        ("grouped_conv2d", grouped, "3x5 grouped convolution 8x20x30 -> 16"),
        ("conv2d", grouped, "3x5 grouped convolution 8x20x30 -> 16"),
        ("max_pool2d21", pooling, "3x2 max pool 20x20x8"),
        ("fused_strided_slice2_log_softmax1", softmax, "strided slice + log softmax"),
        ("transpose1", transposition, "transpose"),
        ("main", softmax, ""),
    ],
)
def test_a_layer_is_its_operators_and_its_extents(name, mod, layer):
    assert layer_of(name, mod()) == layer


def test_without_a_workload_a_layer_is_its_operators():
    assert layer_of("fused_grouped_conv2d4_add6_relu31", None) == "grouped convolution + add + relu"
    assert layer_of("b", None) == ""


@pytest.mark.parametrize(
    ("mod", "shape"),
    [
        (convolution, "1x60x160x3 * 7x7x3x64"),
        (transposition, "1x3x8x8 -> 1x8x8x3"),
        (softmax, "1x1000"),
        (sum_of_squares, "4x32 -> 4"),
    ],
)
def test_a_kernel_is_known_by_its_factors_or_its_ends(mod, shape):
    assert shape_of(mod()) == shape


def test_arguments_have_names_shapes_and_types():
    *inputs, output = arguments_of(convolution())
    assert inputs == [
        "image: 1x60x160x3 float32",
        "weights: 7x7x3x64 float32",
        "bias: 1x1x1x64 float32",
    ]
    assert output.endswith(": 1x30x80x64 float32")


def test_text_without_types():
    text = 'lambda i0: (T.Cast("int64", i0) // T.int64(32), T.int64(-1), T.float32(2))'
    assert without_types(text) == "lambda i0: (i0 // 32, -1, T.float32(2))"
