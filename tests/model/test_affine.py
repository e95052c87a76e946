# SPDX-License-Identifier: Apache-2.0
"""Folding of batch norms and per-channel arithmetic into layers."""

import numpy as np
import pytest
from graphs import Values, apply, assert_same, batch_norm, build, operators
from hypothesis import given, settings
from hypothesis import strategies as st

from tvm import relax
from tvm_droplet_ms.model.folding.affine import fold_affine
from tvm_droplet_ms.model.folding.channel_affine import ChannelAffine, absorb_input, channel_vector

op = relax.op
ARITHMETIC = {"relax.add", "relax.subtract", "relax.multiply", "relax.divide"}


def fold(shape, body):
    """Build a module, fold, check that outputs agree, and count the operators that are left."""
    before = build(shape, body)
    after = apply(fold_affine(), before)
    assert_same(before, after)
    return operators(after)


CASES = {}


def folds_to(shape, **counts):
    """Note what a function of some shape folds to: the operators that are left."""

    def note(body):
        CASES[body.__name__] = shape, body, counts
        return body

    return note


@folds_to((2, 3, 6, 6), conv2d=1, add=1)
def batch_norm_after_a_convolution_becomes_a_bias(emit, values, x):
    return batch_norm(emit, values, emit(op.nn.conv2d(x, values.normal(4, 3, 3, 3))), 4)


@folds_to((1, 3, 6, 6), conv2d=1, add=1, relu=1)
def chain_with_a_bias_and_a_scale_of_rank_3_becomes_a_bias(emit, values, x):
    y = emit(op.nn.conv2d(x, values.normal(4, 3, 3, 3), padding=1))
    y = emit(op.add(y, values.normal(1, 4, 1, 1)))
    y = batch_norm(emit, values, y, 4)
    y = emit(op.multiply(values.normal(4, 1, 1), y))
    y = emit(op.subtract(values.normal(4, 1, 1), y))
    y = emit(op.divide(y, values.positive(4, 1, 1)))
    return emit(op.nn.relu(emit(op.add(y, values.normal(4, 1, 1)))))


@pytest.mark.parametrize(
    ("layouts", "shape", "weight"),
    [
        (("NCHW", "OIHW"), (1, 4, 5, 5), (6, 2, 3, 3)),
        (("NHWC", "HWIO"), (1, 5, 5, 4), (3, 3, 2, 6)),
        (("NHWC", "OHWI"), (1, 5, 5, 4), (6, 3, 3, 2)),
    ],
)
def test_batch_norms_before_and_after_a_grouped_convolution_fold(layouts, shape, weight):
    axis = layouts[0].index("C")

    def body(emit, x):
        values = Values()
        y = batch_norm(emit, values, x, 4, axis)
        y = emit(
            op.nn.conv2d(
                y,
                values.normal(*weight),
                groups=2,
                data_layout=layouts[0],
                kernel_layout=layouts[1],
            )
        )
        return batch_norm(emit, values, y, 6, axis)

    assert fold(shape, body) == {"relax.nn.conv2d": 1, "relax.add": 1}


@folds_to((1, 4, 5, 5), conv2d=1, add=1)
def batch_norms_around_a_depthwise_convolution_fold(emit, values, x):
    y = batch_norm(emit, values, x, 4)
    y = emit(op.nn.conv2d(y, values.normal(8, 1, 3, 3), groups=4))
    return batch_norm(emit, values, y, 8)


@folds_to((1, 3, 6, 6), multiply=1, add=1, conv2d=1)
def shift_before_a_padded_convolution_stays_in_front(emit, values, x):
    y = batch_norm(emit, values, x, 3)
    return emit(op.nn.conv2d(y, values.normal(4, 3, 3, 3), padding=1))


@folds_to((1, 3, 6, 6), conv2d=1)
def scale_before_a_padded_convolution_folds(emit, values, x):
    y = emit(op.multiply(x, values.normal(3, 1, 1)))
    return emit(op.nn.conv2d(y, values.normal(4, 3, 3, 3), padding=1))


@folds_to((2, 4, 3), matmul=1, add=1)
def dense_layer_takes_in_what_is_before_and_after_it(emit, values, x):
    y = emit(op.add(emit(op.multiply(x, values.normal(3))), values.normal(3)))
    y = emit(op.matmul(y, values.normal(3, 5)))
    return emit(op.multiply(emit(op.add(y, values.normal(5))), values.normal(1, 5)))


def test_output_that_is_used_twice_is_not_scaled():
    def body(emit, x):
        values = Values()
        y = emit(op.nn.conv2d(x, values.normal(4, 3, 1, 1)))
        return emit(op.add(batch_norm(emit, values, y, 4), emit(op.nn.relu(y))))

    counts = fold((1, 3, 4, 4), body)
    assert counts["relax.nn.conv2d"] == counts["relax.multiply"] == 1
    assert counts["relax.nn.batch_norm"] == 0


def test_output_that_the_function_returns_too_is_not_scaled():
    def body(emit, x):
        values = Values()
        y = emit(op.nn.conv2d(x, values.normal(4, 3, 1, 1)))
        return y, batch_norm(emit, values, y, 4)

    counts = fold((1, 3, 4, 4), body)
    assert counts["relax.multiply"] == 1 and counts["relax.nn.batch_norm"] == 0


def test_two_batch_norms_of_one_biased_output_stay_as_multiplications():
    def body(emit, x):
        values = Values()
        y = emit(op.nn.conv2d(x, values.normal(4, 3, 1, 1)))
        y = emit(op.add(y, values.normal(1, 4, 1, 1)))
        return batch_norm(emit, values, y, 4), batch_norm(emit, values, y, 4)

    counts = fold((1, 3, 4, 4), body)
    assert counts["relax.multiply"] == 2 and counts["relax.nn.batch_norm"] == 0


def test_weight_that_two_layers_share_is_scaled_for_one():
    def body(emit, x):
        values = Values()
        weight = values.normal(3, 3, 3, 3)
        y = batch_norm(emit, values, emit(op.nn.conv2d(x, weight, padding=1)), 3)
        return emit(op.nn.conv2d(y, weight, padding=1))

    assert fold((1, 3, 5, 5), body) == {"relax.nn.conv2d": 2, "relax.add": 1}


@folds_to((1, 3, 4, 4), conv2d=2, add=2, multiply=1)
def scale_folds_into_every_layer_behind_it(emit, values, x):
    y = batch_norm(emit, values, x, 3)
    first = emit(op.nn.conv2d(y, values.normal(4, 3, 1, 1)))
    second = emit(op.nn.conv2d(y, values.normal(4, 3, 1, 1)))
    return emit(op.multiply(first, second))


@folds_to((1, 3, 4, 4), multiply=1, add=1, relu=1)
def pre_activation_becomes_one_multiplication_and_one_addition(emit, values, x):
    y = emit(op.multiply(batch_norm(emit, values, x, 3), values.normal(3, 1, 1)))
    return emit(op.nn.relu(emit(op.add(y, values.normal(3, 1, 1)))))


@folds_to((1, 3, 4, 4), relu=2, multiply=1)
def single_division_becomes_a_multiplication(emit, _values, x):
    return emit(op.nn.relu(emit(op.divide(emit(op.nn.relu(x)), relax.const(np.float32(6))))))


@folds_to((1, 3, 4, 4), conv2d=1, add=1)
def batch_norm_without_scale_and_center_folds(emit, values, x):
    y = emit(op.nn.conv2d(x, values.normal(4, 3, 1, 1)))
    return batch_norm(emit, values, y, 4, scale=False, center=False)


@pytest.mark.parametrize("name", CASES)
def test_arithmetic_folds(name):
    shape, body, counts = CASES[name]
    found = fold(shape, lambda emit, x: body(emit, Values(), x))
    assert {kind.split(".")[-1]: count for kind, count in found.items()} == counts


def unchanged(shape, body):
    before = build(shape, body)
    assert operators(apply(fold_affine(), before)) == operators(before)
    return before


def test_batch_norm_in_training_mode_stays():
    def body(emit, x):
        return batch_norm(emit, Values(), x, 3, training=True)

    unchanged((1, 3, 4, 4), body)


def test_batch_norm_whose_running_mean_is_used_stays():
    def body(emit, x):
        values = Values()
        statistics = [values.positive(3) for _ in range(4)]
        call = emit(op.nn.batch_norm(x, *statistics, axis=1, training=False))
        return emit(relax.TupleGetItem(call, 0)), emit(relax.TupleGetItem(call, 1))

    unchanged((1, 3, 4, 4), body)


@pytest.mark.parametrize(
    "operand",
    [np.zeros((4, 1, 1)), np.full((4, 1, 1), 1e-42)],
    ids=["zero", "so small that the scale overflows"],
)
def test_division_whose_scale_is_infinite_stays(operand):
    def body(emit, x):
        y = emit(op.nn.conv2d(x, Values().normal(4, 3, 1, 1)))
        return emit(op.divide(y, relax.const(operand.astype("float32"))))

    unchanged((1, 3, 4, 4), body)


def test_a_single_number_is_divided():
    """As the scale of a quantization: 1 / 255 is no float32."""
    unchanged((), lambda emit, x: emit(op.divide(x, relax.const(np.float32(255)))))


def test_a_chain_ends_where_its_scale_would_vanish():
    """Of 3e38, 1e-25 times 1e-25 is 3e-12, and not 0."""

    def body(emit, x):
        tiny = relax.const(np.float32(1e-25))
        return emit(op.multiply(emit(op.multiply(x, tiny)), tiny))

    unchanged((2, 3), body)


@pytest.mark.parametrize("shape", [(1, 4, 5, 5), (5, 5), (1, 1, 1, 5), (2, 1, 4, 1, 1)])
def test_operand_that_is_no_constant_of_each_channel_stays(shape):
    def body(emit, x):
        y = emit(op.nn.conv2d(x, Values().normal(4, 3, 1, 1)))
        return emit(op.multiply(y, Values(1).normal(*shape)))

    unchanged((1, 3, 5, 5), body)


def test_weight_that_is_a_parameter_keeps_its_batch_norm_as_arithmetic():
    def body(emit, x, weight):
        return batch_norm(emit, Values(), emit(op.nn.conv2d(x, weight)), 4)

    before = build([(1, 3, 5, 5), (4, 3, 3, 3)], body)
    after = apply(fold_affine(), before)
    assert_same(before, after)
    assert operators(after) == {"relax.nn.conv2d": 1, "relax.multiply": 1, "relax.add": 1}


def test_other_types_stay():
    def body(emit, x):
        y = emit(op.multiply(x, relax.const(np.full(3, 2.0), "float64")))
        return emit(op.multiply(y, relax.const(np.full(3, 3.0), "float64")))

    before = build((1, 3), body, dtype="float64")
    assert operators(apply(fold_affine(), before)) == {"relax.multiply": 2}


@settings(max_examples=60, derandomize=True, deadline=None, database=None)
@given(
    steps=st.lists(st.sampled_from(["add", "multiply", "subtract", "divide", "bn"]), max_size=5),
    groups=st.sampled_from([1, 2, 4]),
    padding=st.integers(0, 1),
    before=st.integers(0, 3),
    seed=st.integers(0, 99),
)
def test_any_chain_around_a_convolution_gives_the_same_output(steps, groups, padding, before, seed):
    values = Values(seed)

    def apply_steps(emit, y, chosen):
        for step in chosen:
            if step == "bn":
                y = batch_norm(emit, values, y, 4)
            else:
                operand = values.positive(*[(4, 1, 1), (1, 4, 1, 1), (), (1,)][seed % 4])
                swap = step in ("add", "multiply", "subtract") and seed % 3 == 0
                y = emit(getattr(op, step)(*((operand, y) if swap else (y, operand))))
        return y

    def body(emit, x):
        y = apply_steps(emit, x, steps[:before])
        y = emit(
            op.nn.conv2d(y, values.normal(4, 4 // groups, 2, 2), groups=groups, padding=padding)
        )
        return emit(op.nn.relu(apply_steps(emit, y, steps[before:])))

    counts = fold((1, 4, 4, 4), body)
    assert counts["relax.nn.batch_norm"] == 0
    assert sum(counts[name] for name in ARITHMETIC) <= 3


def test_absorbed_function_is_the_hand_worked_one():
    weight = np.array([[2.0, 3.0]])[:, :, None, None]
    affine = ChannelAffine(np.array([10.0, 100.0]), np.array([1.0, 5.0]))
    scaled, bias = absorb_input(weight, 0, 1, 1, affine)
    np.testing.assert_array_equal(scaled.ravel(), [20, 300])
    np.testing.assert_array_equal(bias, [17])


def test_channel_vector_names_the_axis():
    axis, values = channel_vector(np.arange(3.0).reshape(3, 1, 1), (2, 3, 4, 4))
    assert axis == 1
    np.testing.assert_array_equal(values, [0, 1, 2])
    assert channel_vector(np.ones((1, 1)), (2, 3))[0] is None
    assert channel_vector(np.ones((3, 1)), (1, 3)) is None
