# SPDX-License-Identifier: Apache-2.0
"""What LLVM would make of unrolled vectors of odd lengths, against the code that it gets."""

import re

import pytest

import tvm
from tvm import te
from tvm.s_tir import Schedule
from tvm.s_tir.meta_schedule.testing import te_workload
from tvm.target import Target
from tvm_droplet_ms.search_strategy.screening.straight_code import MOST_SCALARS, CodeLimit, scalars
from tvm_droplet_ms.tuning.picks.pick_sampling import PickRequest, sample_pick

TARGET = Target({"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": 1})


def product(steps: int, width: int, limit: int = 512, vector: int | None = None) -> Schedule:
    """A product of a vector and a matrix, its columns vectorised and its sums unrolled."""
    a = te.placeholder((steps,), name="a")
    b = te.placeholder((steps, width), name="b")
    k = te.reduce_axis((0, steps), name="k")
    c = te.compute((width,), lambda j: te.sum(a[k] * b[k, j], axis=k), name="c")
    function = te.create_prim_func([a, b, c]).with_attr("tirx.noalias", True)
    schedule = Schedule(tvm.IRModule({"main": function}))
    block = schedule.get_sblock("c")
    column, term = schedule.get_loops(block)
    outer, column = schedule.split(column, [None, vector or width])
    schedule.reorder(outer, term, column)
    schedule.vectorize(column)
    first = schedule.decompose_reduction(block, term)
    schedule.vectorize(schedule.get_loops(first)[-1])
    schedule.annotate(outer, "pragma_auto_unroll_max_step", limit)
    schedule.annotate(outer, "pragma_unroll_explicit", 1)
    return schedule


def in_llvm(schedule: Schedule, width: int) -> int:
    """The numbers that LLVM multiplies and adds in vectors of a length, by its own code."""
    text = tvm.tirx.build(schedule.mod, target=TARGET).inspect_source("ll")
    return width * len(re.findall(rf"= .*call.*@llvm\.fmuladd\.v{width}f32", text))


@pytest.mark.parametrize(("steps", "width"), [(8, 36), (5, 24), (12, 20)])
def test_the_count_is_that_of_the_code(steps, width):
    schedule = product(steps, width)
    assert scalars(schedule.mod) == steps * width == in_llvm(schedule, width)


def test_vectors_of_a_register_or_of_a_power_of_two_count_nothing():
    assert scalars(product(256, 32).mod) == 0
    assert scalars(product(256, 12).mod) == 0
    assert scalars(product(256, 36, vector=12).mod) == 0


def test_loops_that_stay_loops_count_once():
    assert scalars(product(256, 36, limit=128).mod) == 36


def test_what_takes_long_to_compile_is_refused():
    assert CodeLimit().apply(product(MOST_SCALARS // 36, 36))
    assert not CodeLimit().apply(product(MOST_SCALARS // 36 + 1, 36))


def test_no_such_schedule_is_picked():
    mod = tvm.IRModule({"main": te.create_prim_func(te_workload.matmul(172, 36, 256))})
    # The first sample of this seed would be 86 steps of 36 numbers.
    request = PickRequest(mod, TARGET, 1, "post-order-apply", 1, 34, None)
    schedule = Schedule(mod)
    sample_pick(request, None).trace.apply_to_schedule(schedule, remove_postproc=False)
    assert scalars(schedule.mod) <= MOST_SCALARS
