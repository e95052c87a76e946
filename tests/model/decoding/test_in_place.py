# SPDX-License-Identifier: Apache-2.0
"""Rows are written into what the caller gives away, and nowhere else: compared with NumPy."""

import numpy as np
import pytest
from graphs import apply

import tvm
from tvm import relax
from tvm_droplet_ms.model.decoding.in_place import give_away, write_rows

op = relax.op


def cached(
    shape,
    axis,
    *,
    after=lambda emit, cache, new: new,
    returns=lambda emit, new: [new],
    is_reversed=False,
    kind="int64",
):
    """``cache[..., position, ...] = row``: twice of what ``after`` gives, and the new cache."""
    builder = relax.BlockBuilder()
    of_row = [1 if n == axis else extent for n, extent in enumerate(shape)]
    cache, row = (
        relax.Var(name, relax.TensorType(each, "float32"))
        for name, each in (("cache", shape), ("row", of_row))
    )
    position = relax.Var("position", relax.TensorType([1] * len(shape), kind))
    column = [-1 if n == axis else 1 for n in range(len(shape))]
    numbers = np.arange(shape[axis])[:: -1 if is_reversed else 1].reshape(column)
    places = relax.const(numbers.astype(kind), kind)
    with builder.function("main", [cache, position, row]):
        with builder.dataflow():
            emit = builder.emit
            new = emit(op.where(emit(op.equal(places, position)), row, cache))
            double = emit(op.multiply(after(emit, cache, new), relax.const(2.0)))
            outputs = builder.emit_output(relax.Tuple([double, *returns(emit, new)]))
        builder.emit_func_output(outputs)
    return builder.get()


def run(mod, cache, position, row):
    """The outputs, and the cache that was given."""
    machine = relax.VirtualMachine(tvm.compile(mod, "llvm"), tvm.cpu())
    place = np.full([1] * cache.ndim, position, str(mod["main"].params[1].ty.dtype))
    given = tvm.runtime.tensor(cache)
    outputs = machine["main"](given, tvm.runtime.tensor(place), tvm.runtime.tensor(row))
    return [output.numpy() for output in outputs], given.numpy()


def arrays_of(shape, axis):
    generator = np.random.default_rng(0)
    of_row = [1 if n == axis else extent for n, extent in enumerate(shape)]
    return (generator.standard_normal(each).astype("float32") for each in (shape, of_row))


@pytest.mark.parametrize(("shape", "axis"), [((2, 3, 7, 4), 2), ((5, 4), 0), ((6,), 0)])
@pytest.mark.parametrize("position", [0, 3, 99, -1])
def test_a_row_is_written_into_the_cache_that_is_given_away(shape, axis, position):
    """Outside of the cache nothing is written, as the choice that it was says."""
    mod = apply(write_rows(), give_away(cached(shape, axis), {"cache": 1}))
    cache, row = arrays_of(shape, axis)
    expected = cache.copy()
    if 0 <= position < shape[axis]:
        expected[(slice(None),) * axis + (slice(position, position + 1),)] = row
    (double, new), given = run(mod, cache, position, row)
    for found in (new, given):
        np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(double, 2 * expected)


def test_a_cache_that_is_not_given_away_is_copied():
    mod = apply(write_rows(), cached((5, 4), 0))
    cache, row = arrays_of((5, 4), 0)
    (_, new), given = run(mod, cache, 2, row)
    np.testing.assert_array_equal(new[2:3], row)
    np.testing.assert_array_equal(given, cache)


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"after": lambda emit, cache, new: cache}, id="the old cache is read"),
        pytest.param({"is_reversed": True}, id="the places are no count"),
        pytest.param({"kind": "float32"}, id="the place is no integer"),
        pytest.param(
            {"returns": lambda emit, new: [emit(op.reshape(new, (4, 5))), new]},
            id="a view of it is another output",
        ),
        pytest.param(
            {"returns": lambda emit, new: [new, emit(op.negative(new))]},
            id="its new value is another one",
        ),
    ],
)
def test_what_else_reads_the_cache_sees_the_old_one(options):
    mod = cached((5, 4), 0, **options)
    mod = give_away(mod, {"cache": len(mod["main"].ret_ty.fields) - 1})
    after = apply(write_rows(), mod)
    assert "call_tir_inplace" not in after.script()
    cache, row = arrays_of((5, 4), 0)
    (double, *_), given = run(after, cache, 1, row)
    np.testing.assert_array_equal(given, cache)
    new = cache.copy()
    new[3 if options.get("is_reversed") else 1] = row
    np.testing.assert_array_equal(double, 2 * (cache if "after" in options else new))


def test_a_parameter_may_be_an_output():
    """Its new value is the old one: nothing is written."""
    builder = relax.BlockBuilder()
    cache = relax.Var("cache", relax.TensorType((5, 4), "float32"))
    position = relax.Var("position", relax.TensorType((1, 1), "int64"))
    places = relax.const(np.arange(5)[:, None], "int64")
    with builder.function("main", [cache, position]):
        with builder.dataflow():
            is_there = builder.emit(op.equal(places, position))
            new = builder.emit(op.where(is_there, relax.const(np.ones((1, 4), "f4")), cache))
            new = builder.emit_output(op.negative(new))
        builder.emit_func_output(relax.Tuple([new, cache]))
    after = write_rows()(give_away(builder.get(), {"cache": 1}))
    assert "call_tir_inplace" not in after.script()
