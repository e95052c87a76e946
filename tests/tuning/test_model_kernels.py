# SPDX-License-Identifier: Apache-2.0
"""Kernels whose schedules are left."""

import numpy as np

from tvm.relax.frontend import nn
from tvm.s_tir import Schedule
from tvm.s_tir.meta_schedule.database import MemoryDatabase, TuningRecord
from tvm_droplet_ms.session.roofline import MachineRates
from tvm_droplet_ms.session.target import cpu_target
from tvm_droplet_ms.tuning.model_kernels import ModelKernels

TARGET = cpu_target("auto", 1)
X = np.random.default_rng(0).standard_normal((8, 16)).astype("float32")


class TwoKernels(nn.Module):
    """A softmax and a sum."""

    def forward(self, image):
        return nn.op.sum(nn.op.softmax(image), axis=1)


def made(tmp_path):
    """The kernels, with picks that no cost model has chosen, and what is measured."""
    mod, _ = TwoKernels().export_tvm({"forward": {"image": nn.spec.Tensor(X.shape, "float32")}})
    mod["main"] = mod["forward"].with_attr("global_symbol", "main")
    del mod["forward"]
    database = MemoryDatabase()
    kernels = ModelKernels(mod, TARGET, database)
    kernels.pick(tmp_path, MachineRates(1e9, (1 << 20,), (1e9,)), 0)
    return kernels, database


def scheduled(kernels):
    """The names of the tasks that have a schedule which changes something."""
    schedules = kernels.schedules()
    names = []
    for task in kernels.tasks:
        workload = schedules.commit_workload(task.dispatched[0])
        if any(record.trace.insts for record in schedules.get_top_k(workload, 1)):
            names.append(str(task.task_name))
    return names


def test_a_pick_that_is_left_leaves_the_kernel_as_it_is(tmp_path):
    kernels, _ = made(tmp_path)
    before = scheduled(kernels)
    assert len(before) == len(kernels.tasks) == 2
    assert kernels.leave([f"{before[0]}_prepacked"]) == [before[0]]
    assert scheduled(kernels) == [before[1]]
    # It may still be measured.
    assert not kernels.untouched
    shifted = np.exp(X - X.max(axis=1, keepdims=True))
    (out,) = kernels.compile()([X])
    np.testing.assert_allclose(out, (shifted / shifted.sum(1, keepdims=True)).sum(1), rtol=1e-5)


def test_a_measured_schedule_is_left_for_good(tmp_path):
    kernels, database = made(tmp_path)
    name, mod = scheduled(kernels)[0], None
    (task,) = (task for task in kernels.tasks if task.task_name == name)
    mod = task.dispatched[0]
    schedule = Schedule(mod)
    root = schedule.get_sblock("root")
    schedule.split(schedule.get_loops(schedule.get_child_blocks(root)[0])[-1], [2, None])
    workload = database.commit_workload(mod)
    database.commit_tuning_record(TuningRecord(schedule.trace, workload, [1e-6], TARGET))
    kernels.leave([name])
    assert name in kernels.untouched and name not in scheduled(kernels)


def test_where_no_kernel_is_named_all_are_left(tmp_path):
    kernels, _ = made(tmp_path)
    assert len(kernels.leave(["packs_a_weight"])) == 2
    assert scheduled(kernels) == []
