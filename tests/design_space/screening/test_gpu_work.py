# SPDX-License-Identifier: Apache-2.0
"""Operations that the threads of a GPU execute, against counts by hand."""

import pytest

import tvm
from tvm import te
from tvm.s_tir import Schedule
from tvm_droplet_ms.design_space.screening.executed_work import WorkLimit, executed_operations

ROWS, COLUMNS = 8, 64
VIRTUAL, THREADS = 2, 16
COPIES = ROWS * COLUMNS
"""Stores of one copy of the input."""

ADDITIONS = 2 * ROWS * COLUMNS
"""An addition and a store for each element."""


def added():
    """Each element and one."""
    data = te.placeholder((ROWS, COLUMNS), name="data")
    out = te.compute((ROWS, COLUMNS), lambda i, j: data[i, j] + 1.0, name="out")
    return tvm.IRModule({"main": te.create_prim_func([data, out])})


def copied(scope: str = "shared"):
    """A row for each block of threads, copied inside the loops of the threads that read it."""
    schedule = Schedule(added())
    block = schedule.get_sblock("out")
    copy = schedule.cache_read(block, 0, scope)
    i, j = schedule.get_loops(block)
    virtual, threads, serial = schedule.split(j, [VIRTUAL, THREADS, None])
    for loop, axis in ((i, "blockIdx.x"), (virtual, "vthread.x"), (threads, "threadIdx.x")):
        schedule.bind(loop, axis)
    schedule.compute_at(copy, threads, preserve_unit_loops=True)
    return schedule, copy, serial


def shared_out(schedule, copy):
    """Bind the loop of the copy, as TVM's postprocessor does."""
    fused = schedule.fuse(*schedule.get_loops(copy)[-2:])
    _, threads = schedule.split(fused, [None, THREADS])
    schedule.bind(threads, "threadIdx.x")


def test_threads_share_a_copy_that_is_bound():
    schedule, copy, _ = copied()
    shared_out(schedule, copy)
    assert executed_operations(schedule.mod) == COPIES + ADDITIONS


def test_threads_are_to_share_a_copy_that_is_annotated():
    """As the design space has it, before TVM's postprocessors."""
    schedule, copy, _ = copied()
    schedule.annotate(copy, "meta_schedule.cooperative_fetch", 1)
    assert executed_operations(schedule.mod) == COPIES + ADDITIONS


def test_each_thread_executes_what_is_not_shared():
    schedule, _, _ = copied()
    assert executed_operations(schedule.mod) == THREADS * COPIES + ADDITIONS


def test_what_depends_on_a_virtual_thread_counts_for_each():
    """Registers are a thread's own: together the threads copy each element once."""
    schedule, _, _ = copied("local")
    assert executed_operations(schedule.mod) == COPIES + ADDITIONS


@pytest.mark.parametrize("is_shared", [True, False])
def test_limit_keeps_shared_copies_only(monkeypatch, is_shared):
    monkeypatch.setattr(f"{WorkLimit.__module__}.FEW_OPERATIONS", 0)
    schedule, copy, _ = copied()
    if is_shared:
        shared_out(schedule, copy)
    assert WorkLimit(added()).apply(schedule) is is_shared
