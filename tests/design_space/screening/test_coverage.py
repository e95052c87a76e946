# SPDX-License-Identifier: Apache-2.0
"""Blocks that leave out elements which others read."""

import random

import numpy as np
import pytest

import tvm
from tvm import te, topi
from tvm.ir import IRModule
from tvm.s_tir import Schedule, Trace
from tvm.s_tir.meta_schedule import TuneContext
from tvm.target import Target
from tvm_droplet_ms.compat import fast_tune_contexts
from tvm_droplet_ms.design_space.screening.soundness import unwritten
from tvm_droplet_ms.search_strategy.candidates import UNWRITTEN, ScreenedReplayer

TARGET = Target({"kind": "llvm", "num-cores": 2})
LEFT, RIGHT = (
    np.random.default_rng(seed).standard_normal(shape).astype("float32")
    for seed, shape in enumerate([(20, 8), (8, 16)])
)


def padded(before: int, behind: int) -> tuple[IRModule, np.ndarray]:
    """A product whose rows are padded with zeros, and its values."""
    left, right = (te.placeholder(each.shape, name=n) for n, each in (("l", LEFT), ("r", RIGHT)))
    k = te.reduce_axis((0, 8), name="k")
    product = te.compute(
        (20, 16), lambda i, j: te.sum(left[i, k] * right[k, j], axis=k), name="product"
    )
    out = topi.nn.pad(product, (before, 0), (behind, 0), name="padding")
    expected = np.pad(LEFT @ RIGHT, ((before, behind), (0, 0)))
    return IRModule({"main": te.create_prim_func([left, right, out])}), expected


def values(mod: IRModule, shape: tuple[int, ...]) -> np.ndarray:
    # What is not written stays 7.
    out = tvm.runtime.tensor(np.full(shape, 7, "float32"))
    tvm.compile(mod, TARGET)["main"](*map(tvm.runtime.tensor, (LEFT, RIGHT)), out)
    return out.numpy()


@pytest.mark.parametrize(("before", "behind"), [(0, 1), (0, 0), (2, 1)])
def test_schedules_that_pad_after_their_producer(before, behind):
    """Each schedule of TVM's space: it is found where it is wrong, and no other."""
    mod, expected = padded(before, behind)
    with fast_tune_contexts():
        context = TuneContext(mod, target=TARGET, space_generator="post-order-apply", rand_state=1)
        sketches = list(context.generate_design_space())
    is_found = []
    for sketch in sketches:
        is_wrong = not np.allclose(values(sketch.mod, expected.shape), expected, atol=1e-5)
        assert (unwritten(sketch.mod) is not None) == is_wrong
        is_found.append(is_wrong)
    # TVM gives the padding the extents of the product.
    assert any(is_found) == (before + behind > 0)
    replayer = ScreenedReplayer(mod, list(context.space_generator.postprocs), random.Random(0))
    found = [replayer.replay(Trace(each.trace.insts, {})) for each in sketches]
    assert [each is None for each in found] == is_found
    assert replayer.dropped[UNWRITTEN] == sum(is_found)


def test_parts_that_nobody_reads_may_be_left_out():
    """A producer is computed where a slice of it is read, and no more."""
    data = te.placeholder((20, 16), name="data")
    double = te.compute((20, 16), lambda i, j: data[i, j] * 2.0, name="double")
    out = te.compute((9, 16), lambda i, j: double[i + 4, j] + 1.0, name="out")
    schedule = Schedule(IRModule({"main": te.create_prim_func([data, out])}))
    row = schedule.get_loops(schedule.get_sblock("out"))[0]
    schedule.compute_at(schedule.get_sblock("double"), row)
    assert "T.grid(T.int64(20)" not in str(schedule.mod)
    assert unwritten(schedule.mod) is None
