# SPDX-License-Identifier: Apache-2.0
"""Conversion to NHWC: how many transposes are left, and that outputs agree."""

import numpy as np
import pytest
from graphs import Values, apply, assert_same, batch_norm, build, calls, inputs_of, operators

import tvm
from tvm import relax
from tvm_droplet_ms.model.layers import layouts_of
from tvm_droplet_ms.model.layout.channel_shuffle import shuffle_innermost
from tvm_droplet_ms.model.layout.layout import convert_layout
from tvm_droplet_ms.model.layout.transposes import merge_transposes, moves_data
from tvm_droplet_ms.model.prepare import prepare_graph

op = relax.op


def convolution(emit, values, x, channels, **options):
    return emit(op.nn.conv2d(x, values.normal(channels, 4, 1, 1), **options))


def between_convolutions(middle, shape=(1, 4, 6, 6)):
    """Make a module of two convolutions with something between them."""

    def body(emit, x):
        values = Values()
        y = middle(emit, values, convolution(emit, values, x, 4))
        return convolution(emit, values, y, 4)

    return build(shape, body)


def test_convolutions_are_in_nhwc_with_hwio_weights():
    before = between_convolutions(lambda emit, values, y: emit(op.nn.relu(y)))
    after = apply(convert_layout(), before)
    assert operators(after)["relax.permute_dims"] == 2
    assert {layouts_of(call.attrs)[:2] for call in calls(after, "nn.conv2d")} == {("NHWC", "HWIO")}
    assert_same(before, after)


def rank_3_scale(emit, values, y):
    return emit(op.nn.relu(emit(op.multiply(emit(op.nn.relu(y)), values.normal(4, 1, 1)))))


def left_constant(emit, values, y):
    return emit(op.nn.relu(emit(op.subtract(values.normal(1, 4, 1, 1), emit(op.nn.relu(y))))))


def relu6(emit, values, y):
    return emit(op.clip(y, 0, 6))


def stacked_sum(emit, values, y):
    return emit(op.sum(emit(op.stack([y, emit(op.nn.relu(y))], axis=0)), axis=0))


def dropout(emit, values, y):
    return emit(relax.TupleGetItem(emit(op.nn.dropout(y)), 0))


def explicit_pad(emit, values, y):
    return emit(op.nn.pad(y, [0, 0, 0, 0, 1, 1, 1, 1]))


def pre_activation(emit, values, y):
    return emit(op.nn.relu(batch_norm(emit, values, emit(op.nn.relu(y)), 4)))


def hard_swish(emit, values, y):
    three, six = relax.const(np.float32(3)), relax.const(np.float32(6))
    gate = emit(op.clip(emit(op.add(y, three)), 0, 6))
    return emit(op.multiply(y, emit(op.divide(gate, six))))


def squeeze_and_excitation(emit, values, y):
    gate = convolution(emit, values, emit(op.mean(y, axis=[2, 3], keepdims=True)), 4)
    return emit(op.multiply(y, emit(op.sigmoid(gate))))


def pools(emit, values, y):
    most = emit(op.nn.max_pool2d(y, (2, 2), (1, 1)))
    mean = emit(op.nn.avg_pool2d(y, (2, 2), (1, 1)))
    y = emit(op.concat([most, mean], axis=1))
    return emit(op.nn.conv2d(y, values.normal(4, 8, 1, 1)))


def shuffle(emit, values, y, groups=2):
    batch, channels, height, width = map(int, y.ty.shape)
    split = (batch, groups, channels // groups, height, width)
    y = emit(op.permute_dims(emit(op.reshape(y, split)), (0, 2, 1, 3, 4)))
    return emit(op.reshape(y, (batch, channels, height, width)))


def residual_shuffle(emit, values, y):
    shuffled = shuffle(emit, values, y)
    return emit(op.add(emit(op.nn.relu(shuffled)), shuffled))


def leaky_relu(emit, values, y):
    return emit(op.nn.leakyrelu(y, 0.1))


def leaky_relu_and_max_pool(emit, values, y):
    y = emit(op.nn.leakyrelu(y, 0.1))
    return emit(op.nn.max_pool2d(y, (3, 2), (1, 2), (1, 0, 1, 1), (1, 2)))


def leaky_relu_and_average_pool(emit, values, y):
    y = emit(op.nn.leakyrelu(y, 0.1))
    return emit(op.nn.avg_pool2d(y, (2, 3), (2, 1), (1, 1, 0, 1), count_include_pad=True))


def selection(emit, values, y):
    zeros = values.normal(1, 4, 1, 1)
    return emit(op.where(emit(op.greater(y, zeros)), y, emit(op.nn.leakyrelu(y, 0.1))))


def shuffled_concat(emit, values, y):
    y = emit(op.concat([emit(op.nn.leakyrelu(y, 0.1)), shuffle(emit, values, y)], axis=1))
    return emit(op.nn.conv2d(y, values.normal(4, 8, 1, 1)))


def split_shuffle(emit, values, y):
    parts = emit(op.split(shuffle(emit, values, y), 2, axis=1))
    first, second = (emit(relax.TupleGetItem(parts, index)) for index in (0, 1))
    second = emit(op.nn.relu(emit(op.nn.conv2d(second, values.normal(2, 2, 1, 1)))))
    return emit(op.concat([first, second], axis=1))


TRAPS = [
    leaky_relu,
    leaky_relu_and_max_pool,
    leaky_relu_and_average_pool,
    selection,
    rank_3_scale,
    left_constant,
    relu6,
    stacked_sum,
    dropout,
    explicit_pad,
    pre_activation,
    hard_swish,
    squeeze_and_excitation,
    pools,
]


@pytest.mark.parametrize("trap", TRAPS, ids=lambda trap: trap.__name__)
def test_prepared_graph_has_two_transposes(trap):
    before = between_convolutions(trap)
    after = apply(prepare_graph(), before)
    assert operators(after)["relax.permute_dims"] == 2
    assert operators(after)["relax.nn.batch_norm"] == 0
    assert_same(before, after)


@pytest.mark.parametrize(
    "trap",
    [shuffle, residual_shuffle, shuffled_concat, split_shuffle],
    ids=lambda trap: trap.__name__,
)
def test_shuffle_swaps_the_innermost_axes(trap):
    before = between_convolutions(trap)
    after = apply(prepare_graph(), before)
    transposes = [[int(axis) for axis in call.attrs.axes] for call in calls(after, "permute_dims")]
    assert transposes == [[0, 2, 3, 1], [0, 1, 2, 4, 3], [0, 3, 1, 2]]
    assert_same(before, after)


@pytest.mark.parametrize(
    ("split", "axes"),
    [
        ((1, 2, 2, 6, 6), (0, 1, 2, 4, 3)),
        ((1, 4, 2, 3, 6), (0, 2, 1, 3, 4)),
        ((2, 2, 1, 6, 6), (0, 2, 1, 3, 4)),
    ],
)
def test_other_reshapes_and_transposes_are_no_shuffles(split, axes):
    def body(emit, x):
        y = emit(op.permute_dims(emit(op.reshape(x, split)), axes))
        return emit(op.reshape(y, (1, 4, 6, 6)))

    before = build((1, 4, 6, 6), body)
    assert operators(apply(shuffle_innermost(), before)) == operators(before)


def test_model_with_a_used_dropout_mask_keeps_its_layout():
    def body(emit, x):
        call = emit(op.nn.dropout(convolution(emit, Values(), x, 4)))
        return emit(relax.TupleGetItem(call, 0)), emit(relax.TupleGetItem(call, 1))

    before = build((1, 4, 6, 6), body)
    assert operators(apply(prepare_graph(), before)) == operators(before)


def test_transposed_convolution_stays_in_the_layout_that_can_be_legalized():
    def middle(emit, values, y):
        return emit(op.nn.conv2d_transpose(y, values.normal(4, 4, 2, 2)))

    after = apply(prepare_graph(), between_convolutions(middle))
    legal = relax.transform.LegalizeOps()(after)
    assert set(operators(legal)) == {"relax.call_tir"}


def transposed_1d(emit, y):
    return emit(op.nn.conv1d_transpose(y, Values(1).normal(8, 6, 4), strides=2, padding=1))


def rms_norm(emit, y):
    return emit(op.nn.rms_norm(y, Values(1).positive(10), axes=[-1]))


@pytest.mark.parametrize("last", [transposed_1d, rms_norm], ids=lambda each: each.__name__)
def test_what_follows_a_convolution_of_one_axis_computes_what_tvm_does(last):
    def body(emit, x):
        y = emit(op.nn.conv1d(x, Values().normal(8, 4, 3), padding=1))
        return last(emit, emit(op.nn.relu(y)))

    before = build((1, 4, 10), body)
    after = apply(prepare_graph(), before)
    (x,) = inputs_of(before)
    expected, found = compiled(before, x), compiled(after, x)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def compiled(mod, x):
    machine = relax.VirtualMachine(tvm.compile(mod, "llvm"), tvm.cpu())
    return machine["main"](tvm.runtime.tensor(x)).numpy()


def normalized(emit, y, axes, *shape):
    values = Values(1)
    return emit(op.nn.layer_norm(y, values.normal(*shape), values.normal(*shape), axes=axes))


def test_layer_norm_of_one_axis_alone_is_converted():
    """TVM's conversion gives NaN with several: it permutes the axes, but not the scale."""
    several = between_convolutions(lambda emit, _, y: normalized(emit, y, [1, 2, 3], 4, 6, 6))
    assert operators(apply(prepare_graph(), several)) == operators(several)
    before = between_convolutions(lambda emit, _, y: normalized(emit, y, [1], 4))
    after = apply(prepare_graph(), before)
    assert operators(after)["relax.permute_dims"] == 2
    assert_same(before, after)


def squeezed(emit, values, y):
    y = emit(op.squeeze(emit(op.mean(y, axis=[2], keepdims=True)), axis=[-2]))
    return emit(op.reshape(y, (1, 4, 6, 1)))


def reversed_twice(emit, values, y):
    y = emit(op.nn.relu(emit(op.permute_dims(y, [0, -1, -2, -3]))))
    return emit(op.permute_dims(y, [0, -1, -2, -3]))


@pytest.mark.parametrize("middle", [squeezed, reversed_twice], ids=lambda each: each.__name__)
def test_negative_axes_do_not_stop_the_conversion(middle):
    before = between_convolutions(middle)
    after = apply(prepare_graph(), before)
    assert_same(before, after)


def test_module_without_convolutions_loses_what_does_nothing():
    def body(emit, x):
        y = emit(op.broadcast_to(emit(op.reshape(x, (2, 3, 4, 1))), (2, 3, 4, 1)))
        y = emit(op.nn.relu(emit(op.reshape(y, (6, 4)))))
        return emit(op.permute_dims(emit(op.permute_dims(y, (1, 0))), (1, 0)))

    before = build((2, 3, 4), body)
    after = apply(prepare_graph(), before)
    assert operators(after) == {"relax.reshape": 1, "relax.nn.relu": 1}
    assert_same(before, after)


def test_transpose_that_something_else_needs_stays():
    def middle(emit, values, y):
        y = emit(op.nn.leakyrelu(y, 0.1))
        return emit(op.add(y, emit(op.reshape(emit(op.reshape(y, (1, 144))), (1, 4, 6, 6)))))

    before = between_convolutions(middle)
    after = apply(prepare_graph(), before)
    assert operators(after)["relax.permute_dims"] <= 4
    assert_same(before, after)


def test_transposes_that_cancel_or_move_no_data_disappear():
    def body(emit, x):
        y = emit(op.permute_dims(emit(op.permute_dims(x, (0, 2, 3, 1))), (0, 3, 1, 2)))
        y = emit(op.mean(y, axis=[2, 3], keepdims=True))
        y = emit(op.nn.relu(emit(op.permute_dims(y, (0, 2, 3, 1)))))
        return emit(op.reshape(emit(op.permute_dims(y, (0, 3, 1, 2))), (1, 4)))

    before = build((1, 4, 6, 6), body)
    after = apply(merge_transposes(), before)
    assert operators(after) == {"relax.mean": 1, "relax.nn.relu": 1, "relax.reshape": 2}
    assert_same(before, after)


def test_two_transposes_become_one():
    def body(emit, x):
        return emit(op.permute_dims(emit(op.permute_dims(x, (1, 2, 0))), None))

    before = build((2, 3, 4), body)
    after = apply(merge_transposes(), before)
    assert operators(after) == {"relax.permute_dims": 1}
    assert_same(before, after)


@pytest.mark.parametrize(
    ("shape", "axes", "moves"),
    [
        ((2, 1, 3), (1, 0, 2), False),
        ((2, 1, 3), (2, 1, 0), True),
        ((1, 1, 1), (2, 0, 1), False),
        ((2, 3), (0, 1), False),
    ],
)
def test_a_transpose_moves_data_as_numpy_does(shape, axes, moves):
    assert moves_data(shape, axes) == moves
    array = np.arange(np.prod(shape)).reshape(shape)
    moved = not np.array_equal(array.transpose(axes).ravel(), array.ravel())
    assert moved == moves


@pytest.mark.parametrize("activation", [op.nn.relu, op.nn.leakyrelu, op.tanh])
def test_convolutions_of_one_axis_are_in_nwc_without_transposes_between_them(activation):
    values = Values()

    def body(emit, x):
        y = emit(op.nn.conv1d(x, values.normal(16, 8, 3), padding=1))
        y = emit(activation(emit(op.add(y, values.normal(1, 16, 1)))))
        depthwise = emit(op.nn.conv1d(y, values.normal(16, 1, 5), padding=2, groups=16))
        y = emit(activation(emit(op.add(y, depthwise))))
        return emit(op.nn.conv1d(y, values.normal(4, 16, 3), strides=2))

    before = build((2, 8, 21), body)
    after = apply(convert_layout(), before)
    assert operators(after)["relax.permute_dims"] == 2
    assert {layouts_of(call.attrs)[:2] for call in calls(after, "nn.conv1d")} == {("NWC", "WIO")}
    assert_same(before, after)


def test_three_axes_are_broadcast_to_four():
    """A transpose of three axes is not one of four, though its operand is part of the same sum."""
    values = Values()

    def body(emit, x):
        y = convolution(emit, values, x, 4)
        row = emit(op.reshape(y, (4, 6, 6)))
        row = emit(op.nn.leakyrelu(emit(op.nn.conv1d(row, values.normal(6, 6, 1)))))
        return convolution(emit, values, emit(op.nn.leakyrelu(emit(op.add(row, y)))), 4)

    before = build((1, 4, 6, 6), body)
    assert_same(before, apply(convert_layout(), before))


def test_a_constant_of_five_axes_behind_a_convolution():
    """Its sum has five axes, for which there is no order of channels."""
    values = Values()

    def body(emit, x):
        y = emit(op.nn.leakyrelu(convolution(emit, values, x, 8)))
        return emit(op.add(y, values.normal(3, 1, 8, 1, 1)))

    before = build((1, 4, 6, 6), body)
    assert_same(before, apply(convert_layout(), before))
