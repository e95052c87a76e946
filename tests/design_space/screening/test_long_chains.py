# SPDX-License-Identifier: Apache-2.0
"""Unrolled chains of maxima that LLVM does not compile in time."""

import multiprocessing

import pytest

import tvm
from tvm import te, tirx
from tvm.s_tir import Schedule
from tvm_droplet_ms.design_space.screening.miscompiled import long_chain
from tvm_droplet_ms.search_strategy.candidates import LONG_CHAIN, unsound


def scheduled(reduce, outer, inner, unrolled, dtype="float32", is_explicit=True, thread=None):
    """A reduction over two axes, of which the loops up to so many steps are unrolled."""
    data = te.placeholder((outer, inner), name="data", dtype=dtype)
    axes = [te.reduce_axis((0, extent)) for extent in (outer, inner)]
    made = te.compute((1,), lambda _: reduce(data[axes[0], axes[1]], axis=axes), name="made")
    schedule = Schedule(te.create_prim_func([data, made]))
    block = schedule.get_sblock("made")
    loop = schedule.get_loops(block)[0]
    schedule.annotate(loop, "pragma_auto_unroll_max_step", unrolled)
    schedule.annotate(loop, "pragma_unroll_explicit", int(is_explicit))
    if thread is not None:
        schedule.bind(loop, thread)
    schedule.decompose_reduction(block, schedule.get_loops(block)[1])
    return schedule.mod


@pytest.mark.parametrize(("reduce", "outer"), [(te.max, 16), (te.min, 24), (te.max, 1000)])
def test_a_long_chain_is_dropped(reduce, outer):
    mod = scheduled(reduce, outer, 35, 64)
    assert long_chain(mod) == "made_update"
    assert unsound(mod) == LONG_CHAIN


def sum_of_positives(value, axis):
    return te.sum(tirx.max(value, tirx.const(0, "float32")), axis)


@pytest.mark.parametrize(
    ("reduce", "outer", "inner", "unrolled", "dtype"),
    [
        (te.sum, 16, 35, 64, "float32"),
        (sum_of_positives, 16, 35, 64, "float32"),
        (te.max, 16, 35, 64, "int32"),
        (te.max, 16, 35, 16, "float32"),  # Nothing is unrolled.
        (te.max, 16, 16, 64, "float32"),  # A chain of 16.
        (te.max, 15, 35, 64, "float32"),  # No checksum has 15 bits,
        (te.max, 100, 35, 64, "float32"),  # nor 100.
        (te.max, 16, 32, 512, "float32"),  # No loop is left.
    ],
)
def test_what_is_kept_compiles_in_time(reduce, outer, inner, unrolled, dtype):
    mod = scheduled(reduce, outer, inner, unrolled, dtype)
    assert long_chain(mod) is None
    tvm.compile(mod, target={"kind": "llvm", "num-cores": 1})


def test_loops_that_are_not_unrolled_explicitly_are_kept():
    mod = scheduled(te.max, 16, 35, 64, is_explicit=False)
    assert long_chain(mod) is None
    tvm.compile(mod, target={"kind": "llvm", "num-cores": 1})


def test_kernels_of_gpus_are_kept():
    assert long_chain(scheduled(te.max, 16, 35, 64, thread="blockIdx.x")) is None


@pytest.mark.slow
def test_llvm_takes_exponential_time():
    """Once this fails, the check can go."""
    worker = multiprocessing.get_context("fork").Process(
        target=tvm.compile, args=(scheduled(te.max, 16, 40, 64), "llvm")
    )
    worker.start()
    worker.join(10)
    is_alive = worker.is_alive()
    worker.kill()
    worker.join()
    assert is_alive
