# SPDX-License-Identifier: Apache-2.0
"""Caches of half floats in a model that is computed in float32: moved as they are, read once."""

import ml_dtypes
import numpy as np
import pytest

import tvm
from tvm import relax
from tvm.s_tir.meta_schedule.database import MemoryDatabase
from tvm.target import Target
from tvm_droplet_ms.model.bindings import operator_name, values_of
from tvm_droplet_ms.model.decoding.in_place import give_away
from tvm_droplet_ms.model.prepare import prepare_graph
from tvm_droplet_ms.tuning.compile.lowering import build, lower

op = relax.op
TARGET = Target({"kind": "llvm", "num-cores": 1, "opt-level": 1})
HEADS, ROWS, PLACES, WIDTH = 2, 3, 32, 16
KINDS = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16}


def choose(cache, new, place):
    numbers = relax.const(np.arange(PLACES)[:, None], "int64")
    return op.where(op.equal(numbers, place), new, cache)


def scatter(cache, new, place):
    index = op.broadcast_to(place, (1, HEADS, 1, WIDTH))
    return op.scatter_elements(cache, index, new, axis=2)


def append(cache, new, _place):
    return op.concat([cache, new], axis=2)


def step(kind, put):
    """Attention to a cache with a new row, and the new cache."""
    builder = relax.BlockBuilder()
    shapes = {"q": (1, HEADS, ROWS, WIDTH), "new": (1, HEADS, 1, WIDTH)}
    given = [relax.Var(name, relax.TensorType(shape, "float32")) for name, shape in shapes.items()]
    given.append(relax.Var("place", relax.TensorType((1, 1, 1, 1), "int64")))
    given.append(relax.Var("cache", relax.TensorType((1, HEADS, PLACES, WIDTH), kind)))
    q, new, place, cache = given
    with builder.function("main", given):
        with builder.dataflow():
            emit = builder.emit
            whole = emit(put(emit(op.astype(cache, "float32")), new, place))
            scores = emit(op.matmul(q, emit(op.permute_dims(whole, (0, 1, 3, 2)))))
            found = emit(op.matmul(emit(op.nn.softmax(scores)), whole))
            after = emit(op.astype(whole, kind))
            outputs = builder.emit_output(relax.Tuple([found, after]))
        builder.emit_func_output(outputs)
    return builder.get()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("put", "in_place"), [(choose, False), (choose, True), (scatter, True), (append, False)]
)
def test_a_cache_of_half_floats_stays_so(kind, put, in_place):
    mod = step(kind, put)
    mod = give_away(mod, {"cache": 1}) if in_place else mod
    with TARGET:
        graph = prepare_graph()(mod)
    lowered = lower(graph, TARGET)
    values = list(values_of(lowered["main"]))
    assert in_place == any(operator_name(v) == "relax.call_tir_inplace" for v in values)
    large = [v.ty for v in values if getattr(v.ty, "shape", None) and len(v.ty.shape) == 4]
    assert not [t for t in large if t.shape[2] >= PLACES and str(t.dtype) == "float32"]
    machine = relax.VirtualMachine(build(lowered, MemoryDatabase(), TARGET), tvm.cpu())
    rng = np.random.default_rng(0)
    q, new = (rng.standard_normal((1, HEADS, n, WIDTH)).astype("float32") for n in (ROWS, 1))
    cache = rng.standard_normal((1, HEADS, PLACES, WIDTH)).astype(KINDS[kind])
    arrays = [q, new, np.full((1, 1, 1, 1), 5), cache]
    given = [tvm.runtime.tensor(each) for each in arrays]
    found, after = machine["main"](*given)
    expected = cache.copy()
    if put is append:
        expected = np.concatenate([cache, new.astype(KINDS[kind])], 2)
    else:
        expected[:, :, 5:6] = new.astype(KINDS[kind])
    np.testing.assert_array_equal(after.numpy(), expected)
    np.testing.assert_array_equal(given[3].numpy(), expected if in_place else cache)
    wide = expected.astype("float64")
    scores = np.exp(q @ wide.swapaxes(2, 3))
    np.testing.assert_allclose(
        found.numpy(), scores / scores.sum(-1, keepdims=True) @ wide, rtol=1e-4, atol=1e-5
    )
