# SPDX-License-Identifier: Apache-2.0
"""A kernel is named alike in all graphs, so that the records of one serve another."""

import re

import numpy as np
from tvm_ffi import structural_equal

from tvm import relax
from tvm.s_tir import Schedule
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.database import JSONDatabase, TuningRecord
from tvm_droplet_ms.model.kernels.block_names import name_blocks
from tvm_droplet_ms.session.target import cpu_target
from tvm_droplet_ms.tuning.compile.lowering import lower

TARGET = cpu_target("auto", 1)


def graph_of(parameter, name):
    """A sum, a mean and a layer norm of what has some names."""
    builder = relax.BlockBuilder()
    data = relax.Var(parameter, relax.TensorType((1, 6, 8), "float32"))
    with builder.function("main", [data]):
        with builder.dataflow():
            root = builder.emit(relax.op.sqrt(data), name_hint=name)
            total = builder.emit(relax.op.sum(data, [1]))
            mean = builder.emit(relax.op.mean(root, [1]))
            both = builder.emit(relax.op.add(total, mean), name_hint=f"{name}_both")
            scale = relax.const(np.ones(8, "float32"))
            result = builder.emit_output(relax.op.nn.layer_norm(both, scale, scale, [1]))
        builder.emit_func_output(result)
    return builder.get()


def blocks_of(mod):
    return re.findall(r'sblock\("(\w+)"\)', mod.script())


def test_reductions_are_named_after_the_place_of_what_they_reduce():
    legal = relax.transform.LegalizeOps()(graph_of("data", "lv226"))
    named = name_blocks()(legal)
    found, expected = blocks_of(named), blocks_of(legal)
    norm = ["lv226_both_sum", "lv226_both_mean", "lv226_both_var_sum"]
    assert {"data_red", "lv226_red", *norm} <= set(expected)
    owner = re.compile("lv226_both|lv226|data")
    assert found == [owner.sub("p0", name) for name in expected]
    # Nothing else has changed.
    assert structural_equal(named, legal)


def test_records_of_one_graph_replay_in_another(tmp_path):
    """TVM finds them, since names are no part of its hashes."""
    ours, others = (
        ms.relax_integration.extract_tasks(lower(graph_of(*names), TARGET), TARGET)
        for names in (("data", "lv226"), ("x", "features"))
    )
    paths = [str(tmp_path / name) for name in ("workloads.json", "records.json")]
    database = JSONDatabase(*paths)
    for task in ours:
        schedule = Schedule(task.dispatched[0])
        for name in set(blocks_of(task.dispatched[0])) - {"root"}:
            schedule.get_loops(schedule.get_sblock(name))
        workload = database.commit_workload(task.dispatched[0])
        database.commit_tuning_record(TuningRecord(schedule.trace, workload, [1.0], TARGET))
    database = JSONDatabase(*paths)
    for task in others:
        assert database.has_workload(task.dispatched[0])
        record = database.query_tuning_record(task.dispatched[0], TARGET, "main")
        schedule = Schedule(task.dispatched[0])
        record.trace.apply_to_schedule(schedule, remove_postproc=False)
