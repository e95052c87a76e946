# SPDX-License-Identifier: Apache-2.0
"""Channel shuffles moved towards the convolution that reads them."""

import numpy as np
import pytest
from graphs import Values, apply, assert_same, build, operators

from tvm import relax
from tvm_droplet_ms.model.layout.channel_shuffle import InnerShuffle, sink_shuffles

op = relax.op
SHAPE = (1, 6, 6, 24)
LAYOUT = {"data_layout": "NHWC", "kernel_layout": "HWIO"}


def shuffled(emit, x, groups=4):
    return emit(InnerShuffle(x, groups).emit(emit))


def convolution(emit, x, values, groups, outputs=24, size=3):
    weights = values.normal(size, size, int(x.ty.shape[3]) // groups, outputs)
    return emit(op.nn.conv2d(x, weights, groups=groups, padding=size // 2, **LAYOUT))


def order(mod):
    """The operators of ``main``, without the parts of a shuffle but the transpose."""
    names = [
        binding.value.op.name.removeprefix("relax.").removeprefix("nn.")
        for block in mod["main"].body.blocks
        for binding in block.bindings
        if isinstance(binding.value, relax.Call)
    ]
    return [name for name in names if name != "reshape"]


def check(body, names):
    before = build(SHAPE, body)
    after = apply(sink_shuffles(), before)
    assert order(after) == names
    assert_same(before, after)


def test_origins_are_those_of_a_transposition():
    x = relax.Var("x", relax.TensorType((1, 1, 1, 6), "float32"))
    np.testing.assert_array_equal(InnerShuffle(x, 2).origins(), [0, 3, 1, 4, 2, 5])


@pytest.mark.parametrize("groups", [2, 3, 4, 24])
def test_a_shuffle_moves_up_to_the_next_grouped_convolution(groups):
    values = Values()

    def body(emit, x):
        y = emit(op.nn.relu(shuffled(emit, x, groups)))
        y = convolution(emit, y, values, 24)
        y = emit(op.add(y, values.normal(1, 1, 1, 24)))
        y = emit(op.multiply(y, values.normal(24)))
        y = emit(op.add(y, values.normal(1, 6, 6, 24)))
        y = emit(op.maximum(y, relax.const(0.25)))
        y = emit(op.minimum(y, values.positive(1)))
        return convolution(emit, y, values, 4, 16, size=1)

    names = "relu conv2d add multiply add maximum minimum permute_dims conv2d"
    check(body, names.split())


@pytest.mark.parametrize("dense", [False, True])
def test_a_layer_of_one_group_takes_the_shuffle_in(dense):
    values = Values()

    def body(emit, x):
        y = convolution(emit, shuffled(emit, x), values, 24)
        if dense:
            return emit(op.matmul(y, values.normal(24, 10)))
        return convolution(emit, y, values, 1, 16)

    check(body, ["conv2d", "matmul" if dense else "conv2d"])


def test_two_shuffles_move_one_after_the_other():
    values = Values()

    def body(emit, x):
        y = convolution(emit, shuffled(emit, x, 4), values, 24)
        return convolution(emit, shuffled(emit, y, 3), values, 1)

    check(body, ["conv2d", "permute_dims", "conv2d"])


def test_what_mixes_channels_takes_the_shuffle():
    values = Values()
    several_outputs = lambda emit, x: convolution(emit, shuffled(emit, x), values, 24, 48)  # noqa: E731
    several_inputs = lambda emit, x: convolution(emit, shuffled(emit, x), values, 12)  # noqa: E731
    softmax = lambda emit, x: emit(op.nn.softmax(shuffled(emit, x), axis=3))  # noqa: E731
    check(several_outputs, ["permute_dims", "conv2d"])
    check(several_inputs, ["permute_dims", "conv2d"])
    check(softmax, ["permute_dims", "softmax"])


def test_a_residual_takes_the_shuffle():
    check(lambda emit, x: emit(op.add(shuffled(emit, x), x)), ["permute_dims", "add"])


def test_a_shuffle_of_several_users_stays():
    values = Values()

    def body(emit, x):
        y = shuffled(emit, x)
        return emit(op.nn.relu(y)), convolution(emit, y, values, 24)

    check(body, ["permute_dims", "relu", "conv2d"])


def test_another_transposition_is_no_shuffle():
    values = Values()

    def body(emit, x):
        y = emit(op.reshape(x, (1, 6, 6, 4, 6)))
        y = emit(op.permute_dims(y, (0, 2, 1, 4, 3)))
        return convolution(emit, emit(op.reshape(y, SHAPE)), values, 24)

    check(body, ["permute_dims", "conv2d"])
    assert operators(build(SHAPE, body))["relax.reshape"] == 2


def test_an_operand_of_higher_rank_keeps_the_shuffle_before_it():
    def body(emit, x):
        return emit(op.add(shuffled(emit, x), Values().normal(2, 1, 1, 1, 24)))

    before = build(SHAPE, body)
    assert order(apply(sink_shuffles(), before)) == order(before)
