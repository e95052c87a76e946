# SPDX-License-Identifier: Apache-2.0
"""Elementwise kernels with rows that no vector divides compute what NumPy does, in vectors."""

import random

import numpy as np
import pytest
from tvm_ffi import structural_equal

import tvm
from tvm import te, topi
from tvm.s_tir import Schedule, Trace
from tvm.s_tir.meta_schedule import TuneContext
from tvm.target import Target
from tvm_droplet_ms.compat import fast_tune_contexts
from tvm_droplet_ms.design_space.native_vectors import OddRows, with_native_vectors
from tvm_droplet_ms.design_space.register_tiles.partitions import PARTITIONED
from tvm_droplet_ms.measure.build import build_scheduled
from tvm_droplet_ms.search_strategy.candidates import ScreenedReplayer


def scheduled(mod, target):
    """The schedule of TVM's rules after the task's postprocessors."""
    with fast_tune_contexts():
        context = TuneContext(mod, target=target, space_generator="post-order-apply", rand_state=1)
        schedules = context.generate_design_space()
    postprocs = with_native_vectors(context.space_generator.postprocs, target)
    replayer = ScreenedReplayer(mod, postprocs, random.Random(0))
    (candidate,) = (replayer.replay(Trace(each.trace.insts, {})) for each in schedules)
    return candidate.schedule.mod


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("index", ["int32", "int64"])
@pytest.mark.parametrize("shape", [(101, 257), (3, 5, 67), (2, 3, 4, 35), (7, 16), (9, 12), (67,)])
def test_rows_of_any_length(shape, index, threads):
    target = Target({"kind": "llvm", "mcpu": "x86-64-v2", "num-cores": threads})
    x, y = te.placeholder(shape, name="x"), te.placeholder(shape, name="y")
    z = te.compute(shape, lambda *at: 2.0 * x(*at) + y(*at), "z")
    function = te.create_prim_func([x, y, z], index_dtype_override=index)
    mod = scheduled(tvm.IRModule({"main": function}), target)
    is_odd = len(shape) > 1 and shape[-1] % 4 != 0 and shape[-1] >= 8
    assert (PARTITIONED in mod.script()) == is_odd
    assert "T.vectorized" in mod.script()
    arrays = [np.random.default_rng(n).random(shape, dtype="float32") for n in range(2)]
    out = tvm.runtime.empty(shape)
    build_scheduled(mod, target)["main"](*map(tvm.runtime.tensor, arrays), out)
    np.testing.assert_allclose(out.numpy(), 2 * arrays[0] + arrays[1], rtol=1e-6)


@pytest.mark.parametrize("what", ["transposed", "gathered", "padded"])
def test_what_reads_otherwise(what):
    target = Target({"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": 1})
    x = te.placeholder((19, 37), name="x")
    rows = te.placeholder((5,), name="rows", dtype="int32")
    made = {
        "transposed": lambda: topi.transpose(x),
        "gathered": lambda: topi.take(x, rows, 0),
        "padded": lambda: topi.nn.pad(x, (1, 1), (2, 2)),
    }[what]()
    data = np.arange(19 * 37, dtype="float32").reshape(19, 37)
    numbers = np.array([3, 0, 18, 7, 7], "int32")
    expected = {
        "transposed": data.T,
        "gathered": data[numbers],
        "padded": np.pad(data, ((1, 2), (1, 2))),
    }[what]
    tensors = [x, *([rows] if what == "gathered" else []), made]
    mod = scheduled(tvm.IRModule({"main": te.create_prim_func(tensors)}), target)
    out = tvm.runtime.empty(expected.shape)
    arrays = [data, *([numbers] if what == "gathered" else [])]
    build_scheduled(mod, target)["main"](*map(tvm.runtime.tensor, arrays), out)
    np.testing.assert_array_equal(out.numpy(), expected)


def test_other_loops_are_left_alone():
    x = te.placeholder((19, 37), name="x")
    mod = tvm.IRModule({"main": te.create_prim_func([x, topi.sum(x, 1)])})
    for schedule in (Schedule(mod), _tiled(x), _fused(x)):
        before = schedule.mod
        assert OddRows().apply(schedule)
        assert structural_equal(schedule.mod, before)


def _doubled(x):
    function = te.create_prim_func([x, topi.multiply(x, 2.0)])
    return Schedule(tvm.IRModule({"main": function}))


def _tiled(x):
    schedule = _doubled(x)
    _, column = schedule.get_loops(schedule.get_sblock("T_multiply"))
    schedule.split(column, [None, 8])
    return schedule


def _fused(x):
    schedule = _doubled(x)
    schedule.fuse(*schedule.get_loops(schedule.get_sblock("T_multiply")))
    return schedule
