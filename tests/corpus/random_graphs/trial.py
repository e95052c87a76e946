# SPDX-License-Identifier: Apache-2.0
"""One graph: imported, prepared and lowered as ``tune`` does, with a random schedule per kernel."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import onnx
from tvm_ffi import structural_hash

import tvm
from tvm.s_tir.meta_schedule import TuneContext
from tvm.s_tir.meta_schedule.database import MemoryDatabase, TuningRecord
from tvm.target import Target
from tvm_droplet_ms.compat import fast_tune_contexts
from tvm_droplet_ms.design_space.sound_space import FROM_TARGET, sound_space
from tvm_droplet_ms.frontends.onnx.importing import import_onnx
from tvm_droplet_ms.model.kernels.lowering_passes import register_schedule_rules
from tvm_droplet_ms.search_strategy.candidates import ScreenedReplayer, TaskHistory
from tvm_droplet_ms.search_strategy.explorers.random_sampling import RandomExploration
from tvm_droplet_ms.session.errors import ModelError
from tvm_droplet_ms.session.target import cpu_target
from tvm_droplet_ms.tuning.check.output_check import untouched
from tvm_droplet_ms.tuning.compile.compiled_model import CompiledModel
from tvm_droplet_ms.tuning.compile.lowering import build
from tvm_droplet_ms.tuning.graph_passes import graph_passes
from tvm_droplet_ms.tuning.model_kernels import ModelKernels
from tvm_droplet_ms.tuning.picks.first_picks import is_tunable

from .judging import Arrays, differences, is_right

SETS = 2
"""Random inputs of a graph."""

Job = tuple[onnx.ModelProto, int, bool]
"""The arguments of ``run_model``."""


@dataclass
class Row:
    """The outcome of a graph.

    ``status``: "right", "wrong", "refused" (in a sentence), "error" (of any other kind), "naive"
    where a kernel has no valid schedule, "unjudged" where ONNX Runtime does not load the graph; by
    who ran it, "crash" or "timeout". ``why``: a sentence; empty for "right".
    """

    seed: int
    status: str = "right"
    why: str = ""
    operators: list[str] = field(default_factory=list)
    kernels: int = 0
    scheduled: int = 0
    difference: float = 0.0
    secs: float = 0.0


@lru_cache(maxsize=1)
def target() -> Target:
    """This machine's CPU, one thread."""
    return cpu_target("auto", 1)


def warm_up() -> None:
    """Pay once, before processes are forked, what the first context and parse of a process cost."""
    register_schedule_rules()
    from tvm.s_tir.meta_schedule.testing import te_workload

    mod = tvm.ir.IRModule({"main": tvm.te.create_prim_func(te_workload.matmul(8, 8, 8))})
    _random_record(mod, 0)


def run_job(job: Job) -> dict[str, Any]:
    """Run one graph, and return its row as JSON has it."""
    return asdict(run_model(*job))


def run_model(model: onnx.ModelProto, seed: int, diagnose: bool = False) -> Row:
    """Run one graph.

    ``seed``: seed of the schedules and of the inputs. A kernel's schedule depends on the kernel and
    the seed alone, so that a smaller graph keeps those of its kernels. ``diagnose``: whether to
    find out which step makes a wrong output. Returns what became of it. A crash ends this process.
    """
    row = Row(seed, operators=[node.op_type for node in model.graph.node])
    start = time.perf_counter()
    try:
        _run(model, row, diagnose)
    except ModelError as error:
        row.status, row.why = "refused", str(error)
    # Whatever is raised is what is looked for.
    except Exception as error:
        lines = str(error).strip().splitlines() or [""]
        row.status = "error"
        row.why = f"{type(error).__name__}: {lines[-1][:300]} ({_place(error)})"
    row.secs = round(time.perf_counter() - start, 2)
    return row


def _place(error: BaseException) -> str:
    """The origin of an error: the last frame of the package."""
    place, trace = "", error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        if "tvm_droplet_ms" in code.co_filename:
            file = code.co_filename.rpartition("tvm_droplet_ms/")[2]
            place = f"{file}:{trace.tb_lineno}"
        trace = trace.tb_next
    return place or "outside the package"


def _run(model: onnx.ModelProto, row: Row, diagnose: bool) -> None:
    imported = import_onnx(model)
    graph = tvm.transform.Sequential([step for _, step in graph_passes(target())])(imported.mod)
    kernels = ModelKernels(graph, target(), MemoryDatabase())
    records: dict[str, TuningRecord] = {}
    unscheduled = []
    for task in kernels.tasks:
        if not is_tunable(task):
            continue
        record = _random_record(task.dispatched[0], row.seed)
        if record is None:
            unscheduled.append(str(task.task_name))
        else:
            records[str(task.task_name)] = record
    row.kernels, row.scheduled = len(kernels.tasks), len(records)
    compiled = kernels.compile(_database(records.values()))
    generator = np.random.default_rng(row.seed)
    # ONNX Runtime is the reference where it loads the model: a graph without it proves nothing.
    if imported.reference is None:
        row.status, row.why = "unjudged", f"ONNX Runtime does not load the graph: {imported.notes}"
        return
    for _ in range(SETS):
        inputs = [spec.random(generator) for spec in imported.inputs]
        expected = imported.reference.run(inputs)
        outputs = compiled(inputs)
        if len(outputs) == len(expected):
            row.difference = max(row.difference, *differences(outputs, expected))
        if not is_right(outputs, expected, model, inputs):
            row.status = "wrong"
            row.why = _culprit(imported, kernels, records, model, inputs, expected) * diagnose
            return
    if unscheduled:
        row.status, row.why = "naive", f"no valid schedule: {', '.join(unscheduled)}"


def _random_record(mod: tvm.ir.IRModule, seed: int) -> TuningRecord | None:
    """A record of a random valid schedule of a workload; None where none of many draws is valid."""
    own = random.Random(f"{seed} {structural_hash(mod)}")
    with fast_tune_contexts():
        context = TuneContext(
            mod,
            target=target(),
            space_generator=sound_space(FROM_TARGET, mod, target()),
            rand_state=own.randint(1, 2**31 - 2),
            num_threads=1,
        )
        schedules = list(context.generate_design_space())
        # One sketch of several, whose turn it would be.
        own.shuffle(schedules)
        postprocs = list(context.space_generator.postprocs or [])
        replayer = ScreenedReplayer(mod, postprocs, own)
        found = RandomExploration(replayer, schedules, TaskHistory(mod, target())).ask(1)
    if not found:
        return None
    workload = MemoryDatabase().commit_workload(mod)
    return TuningRecord(found[0].trace, workload, [1.0], target())


def _database(records: Any) -> MemoryDatabase:
    database = MemoryDatabase()
    for record in records:
        workload = database.commit_workload(record.workload.mod)
        database.commit_tuning_record(TuningRecord(record.trace, workload, [1.0], record.target))
    return database


def _culprit(
    imported: Any,
    kernels: ModelKernels,
    records: dict[str, TuningRecord],
    model: onnx.ModelProto,
    inputs: Sequence[Any],
    expected: Arrays,
) -> str:
    """The step that makes the outputs wrong: the import, the passes, or a kernel's schedule."""

    def agrees(run: Any) -> bool:
        return is_right(run(inputs), expected, model, inputs)

    if not agrees(untouched(imported, target()).run):
        return "TVM's import"
    if not agrees(CompiledModel(build(kernels.lowered, MemoryDatabase(), target()))):
        return "the graph passes or the kernels, unscheduled"
    for name, record in records.items():
        one = _database([record])
        if not agrees(CompiledModel(build(kernels.lowered, one, target()))):
            return f"the schedule of {name}"
    return "the schedules together"
