# SPDX-License-Identifier: Apache-2.0
"""Calls whose attributes mean what their operands say, calls of tuples, and long chains of calls.

What comes out is run on the virtual machine, and compared with NumPy.
"""

import numpy as np
import pytest
import tvm_ffi
from small_models import module, run
from stub_bench import PRICE, operators

import tvm
from tvm import relax
from tvm_droplet_papers.graph import optimize
from tvm_droplet_papers.graph.rules import ALL_RULES


def check(shapes, body, expected, rules=(), tolerance=1e-5):
    """The module that `optimize` makes computes what a function in NumPy does."""
    options = {"rules": rules, "layouts": False, "max_nodes": 400, "time_budget_s": 5}
    result = optimize(module(shapes, body), "llvm", price=PRICE, **options)
    (report,) = result.reports
    # A graph was made, and not the input given back.
    assert report.search != "none" and not report.note
    after = result.mod
    rng = np.random.default_rng(0)
    arrays = [(4 * rng.standard_normal(shape)).astype("float32") for shape in shapes]
    for one, other in zip(run(after, arrays), expected(*arrays), strict=True):
        assert one.shape == other.shape
        np.testing.assert_allclose(one, other, rtol=0, atol=tolerance)
    return after


def integers(*values):
    return relax.const(np.array(values, "int32"))


def softmax(array, axis):
    powers = np.exp(array - array.max(axis, keepdims=True))
    return powers / powers.sum(axis, keepdims=True)


def from_end(op, x):
    return op.strided_slice(x, [1], [-1], [2**63 - 1])


# Of each pair of calls the first says less, and its words would mean something else on the second.
PAIRS = {
    "softmax": (
        ((4, 5), lambda op, a: op.nn.softmax(a, axis=-1), lambda a: softmax(a, 1)),
        ((4, 5, 6), lambda op, b: op.nn.softmax(b, axis=1), lambda b: softmax(b, 1)),
    ),
    "slice": (
        ((2, 10), from_end, lambda a: a[:, 9:]),
        ((2, 20), lambda op, b: op.strided_slice(b, [1], [9], [10]), lambda b: b[:, 9:10]),
    ),
    "expand_dims": (
        ((2, 3), lambda op, a: op.expand_dims(a, -1), lambda a: a[:, :, None]),
        ((2, 1, 7), lambda op, b: op.expand_dims(b, 2), lambda b: b[:, :, None]),
    ),
    "split": (
        ((2, 10), lambda op, a: op.split(a, 2, axis=1), lambda a: a[:, :5]),
        ((2, 20), lambda op, b: op.split(b, [5], axis=1), lambda b: b[:, :5]),
    ),
    "mean": (
        ((2, 10), lambda op, a: op.mean(a), lambda a: a.mean()),
        ((2, 10, 3), lambda op, b: op.mean(b, [0, 1]), lambda b: b.mean((0, 1))),
    ),
    "squeeze": (
        ((1, 3), lambda op, a: op.squeeze(a), lambda a: a[0]),
        ((1, 3, 1), lambda op, b: op.squeeze(b, [0]), lambda b: b[0]),
    ),
    "concat": (
        ((2, 3), lambda op, a: op.concat([a, a], axis=-1), lambda a: np.concatenate([a, a], 1)),
        (
            (2, 3, 1, 2),
            lambda op, b: op.concat([b, b], axis=1),
            lambda b: np.concatenate([b, b], 1),
        ),
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_a_call_is_not_written_in_the_words_of_another(name):
    def body(emit, *inputs):
        values = [emit(call(relax.op, x)) for x, (_, call, _) in zip(inputs, PAIRS[name])]
        if name == "split":
            values = [emit(relax.TupleGetItem(value, 0)) for value in values]
        return tuple(values)

    def expected(*arrays):
        return [np.asarray(compute(a)) for a, (_, _, compute) in zip(arrays, PAIRS[name])]

    check([shape for shape, _, _ in PAIRS[name]], body, expected)


JOINED = {
    "concat": (lambda op, t: op.concat(t, axis=0), np.concatenate),
    "stack": (lambda op, t: op.stack(t, axis=0), np.stack),
    "einsum": (lambda op, t: op.einsum(t, "ij,ij->i"), lambda t: (t[0] * t[1]).sum(1)),
}


@pytest.mark.parametrize("name", JOINED)
def test_tuples_that_are_bound_elsewhere_are_operands(name):
    join, in_numpy = JOINED[name]

    def body(emit, x):
        parts = emit(relax.op.split(x, 2, axis=1))
        return (emit(relax.op.nn.relu(emit(join(relax.op, parts)))),)

    def expected(x):
        return (np.maximum(in_numpy((x[:, :3], x[:, 3:])), 0),)

    check([(4, 6)], body, expected, ALL_RULES)


@pytest.mark.parametrize("name", JOINED)
def test_tuples_that_are_parameters_are_operands(name):
    fields = [relax.TensorType((4, 3), "float32")] * 2
    builder, xs = relax.BlockBuilder(), relax.Var("xs", tvm.ir.TupleType(fields))
    with builder.function("main", [xs]):
        with builder.dataflow():
            y = builder.emit_output(builder.emit(JOINED[name][0](relax.op, xs)))
        builder.emit_func_output(y)
    mod = builder.get()
    result = optimize(mod, "llvm", price=PRICE, rules=(), layouts=False)
    assert not result.reports[0].note
    assert operators(result.mod)[name] == 1
    assert tvm_ffi.structural_equal(
        *[relax.transform.CanonicalizeBindings()(each)["main"].body for each in (mod, result.mod)],
        map_free_vars=True,
    )


def test_a_long_chain_of_weights_is_computed():
    """Four hundred calls of constants alone become one constant."""

    def body(emit, x):
        value = relax.const(np.float32([1, 2]))
        for _ in range(400):
            value = emit(relax.op.add(value, relax.const(np.float32([1, 2]))))
        return (emit(relax.op.multiply(x, value)),)

    after = check([(2,)], body, lambda x: (x * np.float32([401, 802]),), ALL_RULES, tolerance=1e-2)
    assert list(operators(after)) == ["multiply"]


def test_a_long_chain_of_weights_that_numpy_lacks_stays():
    """TVM's quotients of integers are not NumPy's: what depends on one stays a call."""

    def body(emit, x):
        value = emit(relax.op.divide(integers(7, -8), integers(2, 3)))
        for _ in range(400):
            value = emit(relax.op.add(value, integers(1, 2)))
        return emit(relax.op.add(x, value))

    mod = module([(2,)], body, "int32")
    after = optimize(mod, "llvm", price=PRICE, time_budget_s=5).mod
    relax.analysis.well_formed(after)
    assert operators(after) == {"divide": 1, "add": 401}
