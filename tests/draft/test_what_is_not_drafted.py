# SPDX-License-Identifier: Apache-2.0
"""Workloads and targets that no draft understands are searched as without one."""

import pytest
from conformance.driving import drive
from conformance.objectives import timed
from conformance.workloads import LLVM, make_context, sample_nothing

from tvm import te, tirx
from tvm.ir import IRModule
from tvm.s_tir import Schedule
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.testing import te_workload
from tvm.target import Target
from tvm_droplet_ms import DropletStrategy
from tvm_droplet_ms.cost_model.draft.block_tree import NotUnderstood
from tvm_droplet_ms.cost_model.draft.skeleton import compile_skeleton
from tvm_droplet_ms.cost_model.found_by_name import find_draft
from tvm_droplet_ms.search_strategy.published.decisions import Sketch

pytestmark = pytest.mark.usefixtures("fast_contexts")


def module(outputs):
    return IRModule({"main": te.create_prim_func(outputs)})


def gather():
    """Rows of a table, by index, then summed with a tile."""
    table = te.placeholder((64, 32), "float32", name="table")
    rows = te.placeholder((16,), "int32", name="rows")
    taken = te.compute((16, 32), lambda i, j: table[rows[i], j] * 2.0, name="taken")
    return module([table, rows, taken])


def softmax():
    """Its reductions are split by RFactor."""
    return module(te_workload.softmax_mn(64, 64))


def dynamic():
    """Rows whose number is known when it runs."""
    count = tirx.Var("n", "int64")
    rows = te.placeholder((count, 32), "float32", name="rows")
    doubled = te.compute((count, 32), lambda i, j: rows[i, j] * 2.0, name="doubled")
    return module([rows, doubled])


@pytest.mark.parametrize("make", [gather, softmax])
def test_workload_that_is_not_understood_is_searched(make):
    def times(draft):
        context = ms.TuneContext(
            make(),
            target=LLVM,
            space_generator="post-order-apply",
            search_strategy=DropletStrategy(prior=None, draft=draft),
            rand_state=1,
            num_threads=1,
        )
        return drive(context, timed(lambda decisions: 1e-3), max_trials=12).modules

    drafted = times("auto")
    assert len(drafted) == len(set(drafted)) == len(times(None)) >= 1


def test_dynamic_rows_are_not_understood():
    """MetaSchedule cannot measure them either, but its rules do schedule them."""
    schedule = Schedule(dynamic())
    _, j = schedule.get_loops(schedule.get_sblock("doubled"))
    schedule.split(j, schedule.sample_perfect_tile(j, n=3))
    with pytest.raises(NotUnderstood, match="the extent .*, which is not constant"):
        compile_skeleton(Sketch.from_trace(schedule.trace), schedule)


def test_user_instruction_is_left_to_tvm():
    """A block that is split by a number of its own, blockized, and one without decisions."""

    def blockized(schedule: Schedule) -> None:
        block = schedule.get_sblock("C")
        i, _, _ = schedule.get_loops(block)
        outer, inner = schedule.split(i, schedule.sample_perfect_tile(i, n=2))
        schedule.blockize(inner)

    for space in (blockized, sample_nothing):
        strategy = DropletStrategy(prior=None)
        driven = drive(make_context(strategy, space=space), timed(lambda _: 1e-3), max_trials=8)
        assert len(driven.trials) >= 1


def test_other_targets_have_no_draft():
    assert find_draft(Target("c")) is None
    assert find_draft(LLVM) is not None
