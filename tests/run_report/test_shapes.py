# SPDX-License-Identifier: Apache-2.0
"""Shapes of kernels as a person reads them, against shapes that are written here."""

import pytest

from tvm import te, topi
from tvm.ir import IRModule
from tvm.tirx import const
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
