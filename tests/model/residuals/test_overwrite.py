"""Calls that write over an operand, against NumPy."""

import numpy as np
import pytest

import tvm
from tvm import relax, te
from tvm_droplet_ms.model.bindings import operator_name, values_of
from tvm_droplet_ms.model.residuals import overwrite_residuals

SHAPE = (4, 8)
TABLE = np.arange(32, dtype="float32").reshape(SHAPE)


def doubled(data):
    return te.compute(SHAPE, lambda i, j: data[i, j] * 2.0, name="doubled")


def added(one, other):
    """The sum of an operand and the row sums of another one."""
    k = te.reduce_axis((0, SHAPE[1]), "k")
    total = te.compute((SHAPE[0],), lambda i: te.sum(one[i, k], k), name="total")
    return te.compute(SHAPE, lambda i, j: total[i] + other[i, j], name="added")


def turned(data):
    """The same elements in another shape."""
    return te.compute((8, 4), lambda i, j: data[i // 2, i % 2 * 4 + j], name="turned")


def module(make):
    """A module whose ``main`` is what ``make`` emits for a parameter."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(SHAPE, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(make(builder, x))
        builder.emit_func_output(result)
    return builder.get()


def overwrites(mod):
    """How many calls write over an operand."""
    names = [operator_name(value) for value in values_of(mod["main"])]
    return names.count("relax.call_tir_inplace")


def run(mod, x):
    """The outputs of a module, one after the other."""
    machine = relax.VirtualMachine(tvm.compile(mod, target="llvm"), tvm.cpu())
    found = machine["main"](tvm.runtime.tensor(x))
    found = [found] if hasattr(found, "numpy") else list(found)
    return [each.numpy() for each in found]


def residual(builder, x):
    before = builder.emit_te(doubled, x)
    return builder.emit_te(added, x, before)


def chain(builder, x):
    before = builder.emit_te(doubled, x)
    after = builder.emit_te(added, x, before)
    return builder.emit_te(added, x, after)


def read_later(builder, x):
    before = builder.emit_te(doubled, x)
    after = builder.emit_te(added, x, before)
    return builder.emit_te(added, before, after)


def returned(builder, x):
    before = builder.emit_te(doubled, x)
    after = builder.emit_te(added, x, before)
    return relax.Tuple([before, after])


def given(builder, x):
    return builder.emit_te(added, builder.emit_te(doubled, x), x)


def viewed(builder, x):
    before = builder.emit_te(doubled, x)
    view = builder.emit_te(turned, before)
    after = builder.emit_te(added, x, before)
    return relax.Tuple([view, after])


def both_operands(builder, x):
    before = builder.emit_te(doubled, x)
    return builder.emit_te(added, before, before)


def once_of_twice(builder, x):
    before = builder.emit_te(doubled, x)
    after = builder.emit_te(added, x, before)
    return builder.emit_te(added, after, x)


def made_of_a_constant(builder, x):
    """The first kernel is run when the model is compiled: its result becomes a constant."""
    before = builder.emit_te(doubled, relax.const(TABLE))
    return builder.emit_te(added, x, before)


def of(make, x):
    """What NumPy computes for each of the functions above."""
    plus = lambda one, other: one.sum(axis=1, keepdims=True) + other  # noqa: E731
    twice = 2 * x
    return {
        residual: [plus(x, twice)],
        chain: [plus(x, plus(x, twice))],
        read_later: [plus(twice, plus(x, twice))],
        returned: [twice, plus(x, twice)],
        given: [plus(twice, x)],
        viewed: [twice.reshape(8, 4), plus(x, twice)],
        both_operands: [plus(twice, twice)],
        once_of_twice: [plus(plus(x, twice), x)],
        made_of_a_constant: [plus(x, 2 * TABLE)],
    }[make]


@pytest.mark.parametrize(
    ("make", "count"),
    [
        (residual, 1),
        (chain, 2),
        # The second sum alone: the first one's operand is read once more.
        (read_later, 0),
        (returned, 0),
        (given, 0),
        (viewed, 0),
        (both_operands, 0),
        (once_of_twice, 0),
        (made_of_a_constant, 0),
    ],
)
def test_operands_that_are_done_with_are_overwritten(make, count):
    mod = overwrite_residuals()(module(make))
    assert overwrites(mod) == count
    x = np.random.default_rng(0).standard_normal(SHAPE).astype("float32")
    before = x.copy()
    for found, expected in zip(run(mod, x), of(make, x), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5)
    np.testing.assert_array_equal(x, before)


def test_a_result_of_the_function_is_kept():
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(SHAPE, "float32"))
    with builder.function("main", [x]):
        builder.emit_func_output(returned(builder, x))
    mod = builder.get()
    assert overwrites(overwrite_residuals()(mod)) == 0


def test_a_kernel_that_a_branch_calls_too_stays_as_it_is():
    mod = module(residual)
    (kernel,) = (each for each in mod.get_global_vars() if each.name_hint == "added")
    kind = relax.TensorType(SHAPE, "float32")
    builder = relax.BlockBuilder(mod)
    x, y = (relax.Var(name, kind) for name in "xy")
    condition = relax.Var("condition", relax.TensorType((), "bool"))

    def branch(*operands):
        variable = relax.Var("sum", kind)
        call = relax.call_tir(kernel, list(operands), kind)
        return relax.SeqExpr([relax.BindingBlock([relax.VarBinding(variable, call)])], variable)

    with builder.function("other", [x, y, condition]):
        chosen = builder.emit(relax.If(condition, branch(x, y), branch(y, x)))
        builder.emit_func_output(chosen)
    assert overwrites(overwrite_residuals()(builder.get())) == 0


def test_other_calls_of_the_kernel_stay_right():
    """All calls of a kernel overwrite, or none: it is one function."""
    mod = overwrite_residuals()(module(once_of_twice))
    x = np.random.default_rng(1).standard_normal(SHAPE).astype("float32")
    (found,) = run(mod, x)
    np.testing.assert_allclose(found, of(once_of_twice, x)[0], rtol=1e-5)
