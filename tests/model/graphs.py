# SPDX-License-Identifier: Apache-2.0
"""Small Relax graphs to test graph passes on, and what to compare of them."""

from collections import Counter

import numpy as np
from numpy_relax import evaluate

import tvm
from tvm import relax


def build(shape, body, *, name="main", dtype="float32", **attrs):
    """Make a module of a function with a parameter of a shape, or one of each of some shapes.

    `body` gets the function that emits an expression, and the parameters.
    """
    builder = relax.BlockBuilder()
    shapes = shape if isinstance(shape, list) else [shape]
    params = [relax.Var(f"x{n}", relax.TensorType(each, dtype)) for n, each in enumerate(shapes)]
    with builder.function(name, params, attrs=attrs or None):
        with builder.dataflow():
            result = body(builder.emit, *params)
            many = isinstance(result, list | tuple)
            output = builder.emit_output(relax.Tuple(list(result)) if many else result)
        builder.emit_func_output(output)
    return builder.get()


class Values:
    """Random constants."""

    def __init__(self, seed=0):
        self.rng = np.random.default_rng(seed)

    def normal(self, *shape):
        return relax.const(self.rng.standard_normal(shape).astype("float32"))

    def positive(self, *shape):
        return relax.const(self.rng.uniform(0.5, 1.5, shape).astype("float32"))


def batch_norm(emit, values, x, channels, axis=1, **options):
    """Bind an inference batch norm with random statistics, and take its output."""
    statistics = [values.positive(channels), values.normal(channels)]
    statistics += [values.normal(channels), values.positive(channels)]
    options = {"training": False} | options
    call = emit(relax.op.nn.batch_norm(x, *statistics, axis=axis, **options))
    return emit(relax.TupleGetItem(call, 0))


def operators(mod, name="main"):
    """Count the operators of a function."""
    return Counter(
        binding.value.op.name
        for block in mod[name].body.blocks
        for binding in block.bindings
        if isinstance(binding.value, relax.Call) and isinstance(binding.value.op, tvm.ir.Op)
    )


def calls(mod, kind):
    """List the calls of an operator."""
    values = [binding.value for block in mod["main"].body.blocks for binding in block.bindings]
    found = [value for value in values if isinstance(value, relax.Call)]
    return [call for call in found if getattr(call.op, "name", "") == f"relax.{kind}"]


def clean(mod):
    """Remove dead code and copies."""
    passes = [relax.transform.CanonicalizeBindings(), relax.transform.DeadCodeElimination()]
    return tvm.transform.Sequential(passes)(mod)


def inputs_of(mod, seed=1):
    rng = np.random.default_rng(seed)
    shapes = [tuple(map(int, param.ty.shape)) for param in mod["main"].params]
    return [rng.standard_normal(shape).astype("float32") for shape in shapes]


def apply(graph_pass, mod):
    """Apply a pass, clean up, and check that the result is well formed."""
    after = clean(graph_pass(mod))
    relax.analysis.well_formed(after)
    return after


def assert_same(before, after, tolerance=2e-6):
    """Assert that two modules give the same outputs, relative to the largest."""
    inputs = inputs_of(before)
    expected, actual = evaluate(before, *inputs), evaluate(after, *inputs)
    if not isinstance(expected, tuple):
        expected, actual = (expected,), (actual,)
    assert len(expected) == len(actual)
    for one, other in zip(expected, actual):
        assert one.shape == other.shape
        np.testing.assert_allclose(other, one, rtol=0, atol=tolerance * np.abs(one).max())
