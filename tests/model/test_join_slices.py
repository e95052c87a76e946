# SPDX-License-Identifier: Apache-2.0
"""The same operators on each slice of a tensor become operators on the tensor."""

import numpy as np
import pytest

import tvm
from tvm import relax
from tvm_droplet_ms.model.folding.slices import join_slices
from tvm_droplet_ms.tuning.compile.compiled_model import CompiledModel

GENERATOR = np.random.default_rng(0)


def normal(*shape):
    return GENERATOR.standard_normal(shape).astype("float32")


def stack(shape, places, steps):
    """The steps on some slices of a tensor of a shape, on top of each other."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(shape, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            parts = []
            for place, step in zip(places, steps, strict=True):
                part = builder.emit(relax.op.strided_slice(x, [0], [place], [place + 1]))
                part = step(builder.emit, builder.emit(relax.op.squeeze(part, [0])))
                parts.append(builder.emit(relax.op.expand_dims(part, 0)))
            result = builder.emit_output(relax.op.concat(parts, 0))
        builder.emit_func_output(result)
    return builder.get()


def dense(weight, bias):
    """relu(x @ weight + bias)."""

    def step(emit, x):
        product = emit(relax.op.matmul(x, relax.const(weight)))
        return emit(relax.op.nn.relu(emit(relax.op.add(product, relax.const(bias)))))

    return step


def products(mod):
    return str(mod).count("R.matmul")


def run(mod, x):
    with tvm.target.Target("llvm"):
        return CompiledModel(tvm.compile(mod, "llvm"))([x])[0]


W, OTHER = normal(8, 5), normal(8, 5)
CASES = {
    "all": (range(6), [W] * 6, 1),
    "some": (range(2, 5), [W] * 3, 1),
    "another order": ([0, 2, 1], [W] * 3, 3),
    "one twice": ([0, 0, 1], [W] * 3, 3),
    "another weight": (range(3), [W, W, OTHER], 3),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("shape", [(5,), (3, 5), (1, 5), (3, 1)])
def test_consecutive_slices_are_computed_at_once(case, shape):
    places, weights, count = CASES[case]
    bias = normal(*shape)
    given = stack((6, 3, 8), places, [dense(weight, bias) for weight in weights])
    joined = relax.transform.DeadCodeElimination()(join_slices()(given))
    assert products(joined) == count
    x = normal(6, 3, 8)
    expected = np.stack(
        [np.maximum(x[n] @ w + bias, 0) for n, w in zip(places, weights, strict=True)]
    )
    np.testing.assert_allclose(run(joined, x), expected, rtol=1e-5, atol=1e-5)


def test_a_constant_with_more_axes_than_a_slice_has_is_not_moved():
    """It would meet the slices along the first axis."""
    table = relax.const(normal(3, 1))
    given = stack((3, 4), range(3), [lambda emit, x: emit(relax.op.add(x, table))] * 3)
    joined = relax.transform.DeadCodeElimination()(join_slices()(given))
    assert str(joined).count("R.strided_slice") == 3
