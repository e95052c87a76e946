# SPDX-License-Identifier: Apache-2.0
"""Schedules that compute something else than their workload."""

import random

import numpy as np
import pytest

import tvm
from tvm import te
from tvm.ir import IRModule
from tvm.s_tir import Schedule
from tvm.s_tir import meta_schedule as ms
from tvm_droplet_ms.design_space.screening.soundness import repeated_sum
from tvm_droplet_ms.search_strategy.candidates import REPEATED_SUM, ScreenedReplayer


def workload():
    """out[i] = sum over j of a[i, j] * (sum over k of a[i, k]): 4 rows of 5."""
    a = te.placeholder((4, 5), name="a")
    k, j = te.reduce_axis((0, 5), "k"), te.reduce_axis((0, 5), "j")
    row = te.compute((4,), lambda i: te.sum(a[i, k], axis=k), name="row")
    out = te.compute((4,), lambda i: te.sum(a[i, j] * row[i], axis=j), name="out")
    return IRModule({"main": te.create_prim_func([a, out])})


def scheduled(depth):
    """The inner sum where it is used: at row `depth` of the loops over i and j."""
    schedule = Schedule(workload(), debug_mask="none")
    loop = schedule.get_loops(schedule.get_sblock("out"))[depth]
    schedule.compute_at(schedule.get_sblock("row"), loop, preserve_unit_loops=True)
    return schedule


def is_right(mod):
    array = np.random.default_rng(0).standard_normal((4, 5)).astype("float32")
    result = tvm.runtime.tensor(np.zeros(4, "float32"))
    tvm.compile(mod, target="llvm")["main"](tvm.runtime.tensor(array), result)
    return np.allclose(result.numpy(), array.sum(axis=1) ** 2, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("depth", "found"), [(0, None), (1, "row_update")])
def test_a_sum_in_a_loop_that_it_does_not_depend_on(depth, found):
    schedule = scheduled(depth)
    assert repeated_sum(schedule.mod) is None and is_right(schedule.mod)
    assert ms.postproc.RewriteReductionBlock().apply(schedule)
    assert repeated_sum(schedule.mod) == found
    assert is_right(schedule.mod) is (found is None)


def test_an_initialization_inside_of_the_loop_is_right():
    schedule = scheduled(1)
    block = schedule.get_sblock("row")
    schedule.decompose_reduction(block, schedule.get_loops(block)[2])
    assert repeated_sum(schedule.mod) is None and is_right(schedule.mod)


@pytest.mark.parametrize(("depth", "dropped"), [(0, 0), (1, 1)])
def test_such_schedules_are_dropped_and_counted(depth, dropped):
    replayer = ScreenedReplayer(workload(), [ms.postproc.RewriteReductionBlock()], random.Random(0))
    candidate = replayer.replay(scheduled(depth).trace)
    assert (candidate is None) is bool(dropped)
    assert replayer.dropped[REPEATED_SUM] == dropped


def windows():
    """out[i] = sum over 3 neighbors of the sums of rows: 4 windows of 6 rows of 5."""
    a = te.placeholder((6, 5), name="a")
    k, j = te.reduce_axis((0, 5), "k"), te.reduce_axis((0, 3), "j")
    row = te.compute((6,), lambda i: te.sum(a[i, k], axis=k), name="row")
    out = te.compute((4,), lambda i: te.sum(row[i + j], axis=j), name="out")
    return IRModule({"main": te.create_prim_func([a, out])})


def test_a_sum_whose_parts_overlap_in_a_fused_loop():
    """out[i] = sum over 3 x 2 neighbors: the fused loop has indices that are not linear."""
    a = te.placeholder((6, 5, 5), name="a")
    k, y, x = (te.reduce_axis((0, extent)) for extent in (5, 3, 2))
    row = te.compute((6, 5), lambda i, j: te.sum(a[i, j, k], axis=k), name="row")
    out = te.compute((4, 4), lambda i, j: te.sum(row[i + y, j + x], axis=[y, x]), name="out")
    schedule = Schedule(IRModule({"main": te.create_prim_func([a, out])}), debug_mask="none")
    i, j, y, x = schedule.get_loops(schedule.get_sblock("out"))
    schedule.reorder(y, x, i, j)
    schedule.compute_at(schedule.get_sblock("row"), schedule.fuse(y, x), preserve_unit_loops=True)
    assert repeated_sum(schedule.mod) is None
    assert ms.postproc.RewriteReductionBlock().apply(schedule)
    assert repeated_sum(schedule.mod) == "row_update"


@pytest.mark.parametrize("is_inside", [False, True])
def test_a_sum_whose_parts_overlap(is_inside):
    """Each window computes its three rows: two of them were added up before."""
    schedule = Schedule(windows(), debug_mask="none")
    loop = schedule.get_loops(schedule.get_sblock("out"))[0]
    schedule.compute_at(schedule.get_sblock("row"), loop, preserve_unit_loops=True)
    block = schedule.get_sblock("row")
    schedule.decompose_reduction(block, schedule.get_loops(block)[int(is_inside)])
    array = np.random.default_rng(0).standard_normal((6, 5)).astype("float32")
    result = tvm.runtime.tensor(np.zeros(4, "float32"))
    tvm.compile(schedule.mod, target="llvm")["main"](tvm.runtime.tensor(array), result)
    expected = [array[i : i + 3].sum() for i in range(4)]
    is_same = np.allclose(result.numpy(), expected, rtol=1e-4, atol=1e-5)
    assert is_same is is_inside
    assert (repeated_sum(schedule.mod) is None) is is_inside
