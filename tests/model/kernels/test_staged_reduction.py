# SPDX-License-Identifier: Apache-2.0
"""Reductions in stages, beside NumPy."""

import kernel_chain
import numpy as np
import pytest
from graphs import build
from tvm_ffi import structural_equal

from tvm import relax, te, topi
from tvm_droplet_ms.model.kernels.lowering_passes import legalize_map
from tvm_droplet_ms.model.kernels.vector_math import reduce_in_stages

OPERATORS = {
    "sum": (relax.op.sum, np.sum),
    "mean": (relax.op.mean, np.mean),
    "max": (relax.op.max, np.max),
    "min": (relax.op.min, np.min),
}


def reduction(operator, shape, axes, keepdims=True, dtype="float32"):
    """A Relax module that reduces its argument, and takes the negative."""
    return build(
        shape,
        lambda emit, x: emit(relax.op.negative(emit(operator(x, axes, keepdims)))),
        dtype=dtype,
    )


@pytest.mark.parametrize(
    ("name", "shape", "axes", "keepdims"),
    [
        ("mean", (2, 5, 7, 24), (1, 2), True),
        ("sum", (2, 5, 7, 24), (-3, -2), False),
        ("max", (3, 5, 2, 16), (0, 2), True),  # Not side by side.
        ("mean", (1, 600, 16), (1,), False),  # Long: two stages of 24 and 25.
        ("min", (1, 257, 8), (1,), True),  # Long, and a prime number.
        ("sum", (2, 1, 1, 8), (1, 2), True),
        ("sum", (2, 6, 5), (1, 2), True),  # The innermost axis too.
        ("sum", (4, 6), None, False),
    ],
)
def test_reductions_are_those_of_numpy(name, shape, axes, keepdims):
    operator, expected = OPERATORS[name]
    array = np.random.default_rng(0).standard_normal(shape).astype("float32")
    mod = reduction(operator, shape, axes, keepdims)
    run = kernel_chain.run_tuned(mod, [array], rules=legalize_map())
    axis = None if axes is None else tuple(axes)
    right = -expected(array.astype("float64"), axis=axis, keepdims=keepdims)
    assert run.outputs[0].shape == right.shape
    # What follows is fused where TVM fuses it with its own reduction.
    assert len(run.kernels) <= len(kernel_chain.fuse(mod).get_global_vars()) - 1
    np.testing.assert_allclose(run.outputs[0], right, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("shape", "axes", "dtype", "is_tvms"),
    [
        ((2, 3, 4, 8), (1, 2), "float32", False),
        ((2, 3, 4, 8), (1, 2), "int64", True),
        ((2, 3, 4, 8), (2, 3), "float32", True),
        ((2, 3, 4, 8), (1,), "float32", True),
        ((2, 256, 8), (1,), "float32", False),
    ],
)
def test_what_has_no_better_form_is_left_to_tvm(shape, axes, dtype, is_tvms):
    mod = reduction(relax.op.sum, shape, axes, dtype=dtype)
    ours, tvms = kernel_chain.fuse(mod, legalize_map()), kernel_chain.fuse(mod)
    assert structural_equal(ours, tvms) == is_tvms


def test_a_long_mean_rounds_less_than_one_sum():
    """A sum of 6,400 numbers in a row is off by more than four times as much."""
    generator = np.random.default_rng(0)
    array = (generator.standard_normal((1, 80, 80, 32)) + 1.0).astype("float32")
    mod = reduction(relax.op.mean, array.shape, (1, 2))
    (output,) = kernel_chain.run_tuned(mod, [array], rules=legalize_map()).outputs
    right = -array.astype("float64").mean(axis=(1, 2))
    one_sum = -np.cumsum(array.reshape(6400, 32), axis=0, dtype="float32")[-1] / np.float32(6400)
    assert 4 * np.abs(output[:, 0, 0] - right).max() < np.abs(one_sum - right).max()


def test_stages_are_short():
    data = te.placeholder((1, 600, 7, 80), name="data")
    stages, stack = [], [reduce_in_stages(data, (1, 2), topi.sum)]
    while stack:
        operation = stack.pop().op
        stages += [int(axis.dom.extent) for axis in getattr(operation, "reduce_axis", [])]
        stack += list(operation.input_tensors)
    assert sorted(stages) == [7, 24, 25]
