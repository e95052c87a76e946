# SPDX-License-Identifier: Apache-2.0
"""Attention of a few queries, whose keys and values are read as they lie, beside NumPy."""

import kernel_chain
import numpy as np
import pytest
from graphs import build

import tvm
from tvm import relax
from tvm.s_tir import Schedule
from tvm_droplet_ms.model.kernels.attention.fused_attention import find_attentions
from tvm_droplet_ms.model.kernels.lowering_passes import register_schedule_rules
from tvm_droplet_ms.tuning.compile.lowering import lower

op = relax.op

register_schedule_rules()


def decoding(batch, heads, count, length, depth, new=1, *, is_turned=False):
    """``count`` heads of ``new`` queries for each of keys, and a mask that is added.

    ``is_turned``: whether keys lie transposed, so that no key is contiguous.
    """
    keys = (batch, heads, depth, length) if is_turned else (batch, heads, length, depth)
    shapes = [(batch, heads * count, new, depth), keys]
    shapes += [(batch, heads, length, depth), (batch, 1, new, length)]

    def body(emit, q, k, v, mask):
        q = emit(op.reshape(q, (batch, heads, count * new, depth)))
        k = k if is_turned else emit(op.permute_dims(k, (0, 1, 3, 2)))
        scores = emit(op.multiply(emit(op.matmul(q, k)), relax.const(0.25)))
        scores = emit(op.reshape(scores, (batch, heads * count, new, length)))
        weights = emit(op.nn.softmax(emit(op.add(scores, mask))))
        weights = emit(op.reshape(weights, (batch, heads, count * new, length)))
        return emit(op.reshape(emit(op.matmul(weights, v)), (batch, heads * count, new, depth)))

    return build(shapes, body, num_input=4)


def by_numpy(q, k, v, mask):
    masks = np.broadcast_to(mask, (*q.shape[:3], mask.shape[-1]))
    q = q.reshape(*k.shape[:2], -1, q.shape[-1])
    scores = np.einsum("bhrd,bhld->bhrl", q, k) / 4 + masks.reshape(*q.shape[:3], -1)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return np.einsum("bhrl,bhld->bhrd", weights / weights.sum(-1, keepdims=True), v)


@pytest.mark.parametrize(
    "extents",
    [
        (1, 2, 3, 64, 32),
        (2, 3, 1, 37, 80),
        (1, 1, 7, 20, 24),
        (2, 1, 2, 16, 8),
        (2, 2, 3, 37, 32, 4),
        (1, 1, 2, 4100, 16, 7),
    ],
)
def test_every_schedule_computes_what_numpy_does(extents):
    length, new = extents[3], (*extents, 1)[5]
    mod = decoding(*extents)
    generator = np.random.default_rng(0)
    shapes = [tuple(map(int, param.ty.shape)) for param in mod["main"].params]
    arrays = [generator.standard_normal(shape).astype("float32") for shape in shapes]
    arrays[3][np.arange(length) > length // 2 + np.arange(new)[:, None] + 0 * arrays[3]] = -np.inf
    lowered = lower(mod, kernel_chain.TARGET)
    (name,) = (var for var in lowered.get_global_vars() if "attention" in var.name_hint)
    kernel = lowered[name].with_attr("global_symbol", "main")
    workload = tvm.ir.IRModule({"main": kernel})
    context, (space,) = kernel_chain.design_space(workload)
    expected = by_numpy(*arrays)
    for seed in range(3):
        schedule = Schedule(workload, seed=seed + 1)
        kernel_chain.Trace(space.trace.insts, {}).apply_to_schedule(schedule, remove_postproc=True)
        schedule.enter_postproc()
        assert all(post.apply(schedule) for post in context.space_generator.postprocs)
        assert "keys" not in str(schedule.mod.script())
        library = tvm.compile(schedule.mod, kernel_chain.TARGET)
        result = tvm.runtime.empty(kernel.params[-1].shape, "float32")
        library["main"](*map(tvm.runtime.tensor, arrays), result)
        found = result.numpy().reshape(expected.shape)
        np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-6)


def test_keys_that_are_not_contiguous_are_left_to_matrix_products():
    assert find_attentions(decoding(1, 2, 3, 64, 32)["main"])
    assert not find_attentions(decoding(1, 2, 3, 64, 32, is_turned=True)["main"])
