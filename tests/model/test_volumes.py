# SPDX-License-Identifier: Apache-2.0
"""Convolutions over volumes that are computed over images: compared with the definition."""

import pytest
from graphs import Values, apply, assert_same, build, calls

from tvm import relax
from tvm_droplet_ms.model.layout.transposes import sink_reshapes
from tvm_droplet_ms.model.prepare import prepare_graph
from tvm_droplet_ms.model.rewritten_convolutions import flatten_volumes

op = relax.op
LAYOUT = {"data_layout": "NDHWC", "kernel_layout": "DHWIO"}


def shapes(mod, name):
    return [[int(extent) for extent in call.ty.shape] for call in calls(mod, name)]


@pytest.mark.parametrize(
    ("kernel", "options", "image"),
    [
        ((1, 3, 3), {"padding": (0, 1, 1)}, [10, 6, 7, 8]),
        ((1, 3, 2), {"strides": (1, 2, 1), "padding": (0, 0, 1, 0, 2, 0)}, [10, 3, 7, 8]),
        ((1, 1, 1), {"strides": (2, 2, 3)}, [6, 3, 3, 8]),
        ((1, 2, 2), {"strides": (3, 1, 1), "dilation": (1, 2, 3)}, [4, 4, 4, 8]),
        ((1, 3, 3), {"groups": 2, "padding": (0, 1, 1)}, [10, 6, 7, 8]),
        ((3, 1, 1), {"padding": (1, 0, 0)}, [2, 5, 42, 8]),
        ((2, 1, 1), {"strides": (2, 1, 1), "dilation": (2, 1, 1)}, [2, 2, 42, 8]),
    ],
)
def test_kernels_of_planes_and_of_columns_are_images(kernel, options, image):
    values = Values()
    inputs = 4 // options.get("groups", 1)

    def body(emit, x):
        y = emit(op.nn.conv3d(x, values.normal(*kernel, inputs, 8), **options, **LAYOUT))
        y = emit(op.add(y, values.normal(1, 1, 1, 1, 8)))
        return emit(op.add(emit(op.nn.relu(y)), y))

    before = build((2, 5, 6, 7, 4), body)
    after = apply(sink_reshapes(), apply(flatten_volumes(), before))
    assert not calls(after, "nn.conv3d")
    assert shapes(after, "nn.conv2d") == [image]
    # The arithmetic is computed on the image, so that it is fused with the convolution.
    assert shapes(after, "add") == [image] * 2
    assert_same(before, after)


@pytest.mark.parametrize(
    ("kernel", "options"),
    [
        ((3, 3, 3), {"padding": 1}),
        ((2, 1, 1), {"strides": (1, 2, 1)}),
        ((2, 1, 1), {"padding": (0, 0, 1)}),
        ((1, 3, 3), {"padding": (1, 0, 0)}),
    ],
)
def test_others_stay(kernel, options):
    values = Values()

    def body(emit, x):
        return emit(op.nn.conv3d(x, values.normal(*kernel, 4, 8), **options, **LAYOUT))

    after = apply(flatten_volumes(), build((2, 5, 6, 7, 4), body))
    assert len(calls(after, "nn.conv3d")) == 1
    assert not calls(after, "nn.conv2d")


@pytest.mark.parametrize(
    ("extents", "kernel", "shape"),
    [
        ((0, 5, 6, 7, 4), (1, 3, 3), [0, 5, 4, 5, 8]),
        ((2, 5, 0, 7, 4), (2, 1, 1), [2, 4, 0, 7, 8]),
        ((2, 5, 2, 7, 4), (1, 3, 3), [2, 5, 0, 5, 8]),
        ((2, 1, 6, 7, 4), (2, 1, 1), [2, 0, 6, 7, 8]),
    ],
)
def test_volumes_without_elements_stay(extents, kernel, shape):
    values = Values()

    def body(emit, x):
        return emit(op.nn.conv3d(x, values.normal(*kernel, 4, 8), **LAYOUT))

    (after,) = calls(apply(flatten_volumes(), build(extents, body)), "nn.conv3d")
    assert [int(extent) for extent in after.ty.shape] == shape


def test_a_model_of_volumes_is_computed_channels_last():
    values = Values()
    weights = [
        values.normal(8, 3, 3, 3, 3),
        values.normal(8, 8, 1, 3, 3),
        values.normal(8, 8, 3, 1, 1),
    ]

    def body(emit, x):
        y = emit(op.nn.relu(emit(op.nn.conv3d(x, weights[0], padding=1))))
        y = emit(op.nn.max_pool3d(y, (2, 2, 2), (2, 2, 2)))
        z = emit(op.nn.relu(emit(op.nn.conv3d(y, weights[1], padding=(0, 1, 1)))))
        z = emit(op.nn.conv3d(z, weights[2], padding=(1, 0, 0)))
        return emit(op.nn.relu(emit(op.add(z, y))))

    before = build((1, 3, 4, 6, 8), body)
    after = apply(prepare_graph(), before)
    assert len(calls(after, "nn.conv3d")) == 1
    assert len(calls(after, "nn.conv2d")) == 2
    # The input's and the output's.
    assert len(calls(after, "permute_dims")) == 2
    assert_same(before, after)
