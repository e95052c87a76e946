# SPDX-License-Identifier: Apache-2.0
"""Products of repeated heads are products of the heads themselves: compared with NumPy."""

import numpy as np
import pytest
from graphs import apply, build, operators

import tvm
from tvm import relax
from tvm_droplet_ms.model.decoding.caches import group_heads

op = relax.op
KEYS = (2, 3, 10, 8)
"""Batches, heads of keys, keys, and what a key has."""


def by_broadcast(emit, x, count):
    batch, heads, length, depth = KEYS
    apart = emit(op.expand_dims(x, 2))
    many = emit(op.broadcast_to(apart, (batch, heads, count, length, depth)))
    return emit(op.reshape(many, (batch, heads * count, length, depth)))


def by_repeat(emit, x, count):
    return emit(op.repeat(x, count, 1))


def in_turns(emit, x, count):
    """Head 0, 1, 2, 0, 1, 2: queries next to each other have other keys."""
    batch, heads, length, depth = KEYS
    apart = emit(op.expand_dims(x, 1))
    many = emit(op.broadcast_to(apart, (batch, count, heads, length, depth)))
    return emit(op.reshape(many, (batch, heads * count, length, depth)))


def products(repeat, rows, count=4, joins=False, scale=None):
    """Queries times transposed keys: heads of each batch, or of all batches, in one axis."""
    batch, heads, length, depth = KEYS

    def body(emit, queries, keys):
        turned = emit(op.permute_dims(repeat(emit, keys, count), (0, 1, 3, 2)))
        if joins:
            turned = emit(op.reshape(turned, (batch * heads * count, depth, length)))
            queries = emit(op.reshape(queries, (batch * heads * count, rows, depth)))
        if scale is not None:
            turned = emit(op.multiply(turned, relax.const(np.array([scale], "float32"))))
        scores = emit(op.matmul(queries, turned))
        return emit(op.reshape(scores, (batch, heads * count, rows, length)))

    return build([(batch, heads * count, rows, depth), KEYS], body)


def run(mod, arrays):
    machine = relax.VirtualMachine(tvm.compile(mod, "llvm"), tvm.cpu())
    return machine["main"](*(tvm.runtime.tensor(array) for array in arrays)).numpy()


@pytest.mark.parametrize("scale", [None, 0.5])
@pytest.mark.parametrize("joins", [False, True])
@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("repeat", [by_broadcast, by_repeat])
def test_rows_that_share_keys_are_multiplied_together(repeat, rows, joins, scale):
    """Also where keys are scaled, as PyTorch's exporter to ONNX does."""
    batch, heads, length, depth = KEYS
    mod = products(repeat, rows, joins=joins, scale=scale)
    after = apply(group_heads(), mod)
    assert not {"relax.broadcast_to", "relax.repeat"} & set(operators(after))
    generator = np.random.default_rng(0)
    queries = generator.standard_normal((batch, heads * 4, rows, depth)).astype("float32")
    keys = generator.standard_normal(KEYS).astype("float32")
    expected = np.einsum("bhgrd,bhld->bhgrl", queries.reshape(batch, heads, 4, rows, depth), keys)
    found = run(after, [queries, keys])
    expected = (scale or 1) * expected.reshape(found.shape)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_values_are_not_repeated_either():
    def body(emit, weights, values):
        return emit(op.matmul(weights, by_repeat(emit, values, 2)))

    mod = build([(2, 6, 1, 10), KEYS], body)
    after = apply(group_heads(), mod)
    assert "relax.repeat" not in operators(after)
    generator = np.random.default_rng(0)
    weights = generator.standard_normal((2, 6, 1, 10)).astype("float32")
    values = generator.standard_normal(KEYS).astype("float32")
    expected = weights @ np.repeat(values, 2, 1)
    np.testing.assert_allclose(run(after, [weights, values]), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "mod",
    [
        pytest.param(products(in_turns, 1), id="heads in turns"),
        pytest.param(products(by_repeat, 8), id="many rows"),
        pytest.param(products(lambda _emit, x, _count: x, 1, count=1), id="no repeated heads"),
    ],
)
def test_other_products_are_left(mod):
    assert operators(group_heads()(mod)) == operators(mod)
