# SPDX-License-Identifier: Apache-2.0
"""Convolutions whose output channels no vector divides."""

import pytest
from graphs import Values, apply, assert_same, build, calls, operators

from tvm import relax
from tvm_droplet_ms.model.layout.channel_padding import pad_channels, padded_channels

op = relax.op
LAYOUT = {"data_layout": "NHWC", "kernel_layout": "HWIO"}


@pytest.mark.parametrize(
    ("channels", "padded"),
    [
        (16, 16),
        (1000, 1024),  # 2.4% more, and a multiple of 64
        (1008, 1008),  # vectors divide it
        (500, 512),
        (350, 352),  # 384 = 6 * 64 would be 10% more, 352 = 11 * 32 is 0.6%
        (156, 160),
        (116, 128),
        (104, 112),  # 128 has more tiles, and is a fifth more
        (24, 32),
        (23, 23),  # 32 would be 1.4 times as many
        (1, 1),
    ],
)
def test_the_next_multiple_that_costs_little(channels, padded):
    assert padded_channels(channels) == padded


@pytest.mark.parametrize(
    ("channels", "padded"), [(24, 24), (40, 40), (72, 72), (120, 120), (56, 64), (88, 96), (25, 32)]
)
def test_short_vectors_fill_more_channels(channels, padded):
    """Eight floats are a vector: three and five of them have tiles, seven and eleven have none."""
    assert padded_channels(channels, lanes=8) == padded
    values = Values()
    layer = build((1, 8, 8, 8), lambda emit, x: convolution(emit, x, values, channels))
    after = apply(pad_channels(8), layer)
    assert of_convolutions(after)[0] == [padded]


def convolution(emit, x, values, outputs=125, **options):
    inputs = int(x.ty.shape[3])
    return emit(op.nn.conv2d(x, values.normal(3, 3, inputs, outputs), **LAYOUT | options))


def of_convolutions(mod):
    """The output channels of the convolutions of ``main``, and the shapes of the slices."""
    shapes = [
        [[int(extent) for extent in call.ty.shape] for call in calls(mod, kind)]
        for kind in ("nn.conv2d", "strided_slice")
    ]
    return [shape[3] for shape in shapes[0]], shapes[1]


def check(body, channels, slices, shape=(1, 8, 8, 8)):
    before = build(shape, body)
    after = apply(pad_channels(), before)
    assert of_convolutions(after) == (channels, slices)
    assert_same(before, after)
    return after


def test_the_slice_moves_behind_what_works_channel_by_channel():
    values = Values()

    def body(emit, x):
        y = convolution(emit, x, values, padding=1)
        y = emit(op.add(y, values.normal(1, 1, 1, 125)))
        y = emit(op.multiply(y, values.normal(125)))
        y = emit(op.maximum(y, relax.const(0.25)))
        y = emit(op.nn.leakyrelu(emit(op.nn.relu(y)), 0.1))
        y = emit(op.nn.max_pool2d(y, (2, 2), (2, 2), layout="NHWC"))
        y = emit(op.nn.avg_pool2d(y, (2, 2), (1, 1), layout="NHWC"))
        return emit(op.mean(y, axis=[1, 2], keepdims=True))

    check(body, [128], [[1, 1, 1, 125]])


def mixed(emit, y, values):
    return emit(op.nn.softmax(y, axis=3)), emit(op.mean(y, axis=[3], keepdims=True))


def reduced_without_axes(emit, y, values):
    return emit(op.mean(y, axis=[1, 2]))


def plus_a_constant_of_each_pixel(emit, y, values):
    return emit(op.add(y, values.normal(6, 6, 125)))


def convolved(emit, y, values):
    return convolution(emit, y, values, 64)


@pytest.mark.parametrize(
    "behind", [mixed, reduced_without_axes, plus_a_constant_of_each_pixel, convolved]
)
def test_the_slice_stays_before_what_needs_all_channels_or_has_other_shapes(behind):
    values = Values()
    channels = [128, 64] if behind is convolved else [128]
    body = lambda emit, x: behind(emit, convolution(emit, x, values), values)  # noqa: E731
    check(body, channels, [[1, 6, 6, 125]])


def test_a_depthwise_convolution_behind_has_the_added_channels_too():
    values = Values()

    def body(emit, x):
        y = emit(op.nn.relu(convolution(emit, x, values, 58)))
        y = emit(op.nn.conv2d(y, values.normal(3, 3, 1, 58), groups=58, padding=1, **LAYOUT))
        return convolution(emit, y, values, 58)

    after = check(body, [64, 64, 64], [[1, 6, 6, 58], [1, 4, 4, 58]])
    assert [int(call.attrs.groups) for call in calls(after, "nn.conv2d")] == [1, 64, 1]


def test_a_convolution_with_two_outputs_a_channel_is_no_depthwise_one():
    values = Values()

    def body(emit, x):
        y = convolution(emit, x, values, 58)
        return emit(op.nn.conv2d(y, values.normal(3, 3, 1, 116), groups=58, **LAYOUT))

    check(body, [64, 116], [[1, 6, 6, 58]])


def test_a_residual_is_added_to_the_slice():
    values = Values()

    def body(emit, x):
        return emit(op.add(convolution(emit, x, values), convolution(emit, x, values)))

    check(body, [128, 128], [[1, 6, 6, 125], [1, 6, 6, 125]])


@pytest.mark.parametrize(
    ("shape", "outputs", "options"),
    [
        ((1, 8, 8, 8), 128, {}),  # vectors divide it
        ((1, 8, 8, 8), 23, {}),  # too many would be added
        ((1, 3, 3, 8), 125, {}),  # one pixel: its weights are read once
        ((1, 8, 8, 2), 125, {}),  # 18 products an element
    ],
)
def test_what_gains_nothing_is_left(shape, outputs, options):
    values = Values()
    body = lambda emit, x: convolution(emit, x, values, outputs, **options)  # noqa: E731
    check(body, [outputs], [], shape)


def test_groups_and_other_layouts_are_left():
    values = Values()

    def grouped(emit, x):
        return emit(op.nn.conv2d(x, values.normal(3, 3, 8, 250), groups=2, **LAYOUT))

    def channels_first(emit, x):
        return emit(op.nn.conv2d(x, values.normal(125, 8, 3, 3)))

    for body, shape in ((grouped, (1, 8, 8, 16)), (channels_first, (1, 8, 8, 8))):
        after = apply(pad_channels(), build(shape, body))
        assert "relax.strided_slice" not in operators(after)


def test_an_operator_without_arguments_is_left():
    values = Values()

    def body(emit, x):
        emit(op.null_value())
        return convolution(emit, x, values)

    after = pad_channels()(build((1, 8, 8, 8), body))
    assert operators(after)["relax.null_value"] == 1
    assert of_convolutions(after) == ([128], [[1, 6, 6, 125]])


def test_a_slice_of_the_model_is_left_where_it_is():
    values = Values()

    def body(emit, x):
        y = convolution(emit, x, values, 128)
        return emit(op.nn.relu(emit(op.strided_slice(y, axes=[3], begin=[0], end=[125]))))

    check(body, [128], [[1, 6, 6, 125]])


def test_columns_of_a_matmul_are_padded():
    values = Values()

    def body(emit, x):
        y = emit(op.matmul(x, values.normal(64, 257)))
        return emit(op.nn.relu(emit(op.add(y, values.normal(257)))))

    before = build((2, 20, 64), body)
    after = apply(pad_channels(), before)
    shapes = [
        [int(extent) for extent in binding.var.ty.shape]
        for binding in after["main"].body.blocks[0].bindings
    ]
    # The slice is the last: the sum and the ReLU are computed of all columns.
    assert shapes[0] == [2, 20, 272]
    assert operators(after)["relax.strided_slice"] == 1
    assert shapes[-2] == [2, 20, 272]
    assert_same(before, after)


def test_columns_of_a_single_row_are_padded():
    values = Values()
    before = build((1, 64), lambda emit, x: emit(op.matmul(x, values.normal(64, 257))))
    after = apply(pad_channels(), before)
    assert operators(after)["relax.strided_slice"] == 1
    assert_same(before, after)


def test_a_matmul_of_few_products_or_of_a_matrix_that_is_no_constant_is_left():
    values = Values()

    def few_products(emit, x):
        return emit(op.matmul(x, values.normal(8, 257)))

    def both_vary(emit, x):
        return emit(op.matmul(x, emit(op.permute_dims(x, [1, 0]))))

    for shape, body in (((2, 8), few_products), ((257, 64), both_vary)):
        before = build(shape, body)
        assert operators(apply(pad_channels(), before)) == operators(before)


@pytest.mark.parametrize(
    ("convolve", "pool", "layouts", "extents"),
    [
        (op.nn.conv1d, op.nn.max_pool1d, ("NWC", "WIO"), (40,)),
        (op.nn.conv3d, op.nn.avg_pool3d, ("NDHWC", "DHWIO"), (4, 5, 6)),
    ],
)
def test_lines_and_volumes_are_padded_as_images_are(convolve, pool, layouts, extents):
    values = Values()
    options = dict(zip(("data_layout", "kernel_layout"), layouts, strict=True))
    window = (3,) * len(extents)

    def body(emit, x):
        weights = values.normal(*window, 8, 58), values.normal(*window, 1, 58)
        y = emit(op.nn.relu(emit(convolve(x, weights[0], padding=1, **options))))
        y = emit(pool(y, window, padding=1, layout=layouts[0]))
        return emit(convolve(y, weights[1], padding=1, groups=58, **options))

    before = build((1, *extents, 8), body)
    after = apply(pad_channels(), before)
    name = f"nn.conv{len(extents)}d"
    assert [int(call.ty.shape[-1]) for call in calls(after, name)] == [64, 64]
    assert [int(call.ty.shape[-1]) for call in calls(after, "strided_slice")] == [58]
    assert_same(before, after)
