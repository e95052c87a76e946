# SPDX-License-Identifier: Apache-2.0
"""One architecture: imported, built without schedules, compared. A row of the table as JSON."""

import contextlib
import time
import traceback
import warnings
from collections.abc import Iterator
from typing import Any

from ..beside import RIGHT, row_deviation
from .tuned import measure_tuned


@contextlib.contextmanager
def _timed(secs: dict[str, float], part: str) -> Iterator[None]:
    start = time.monotonic()
    try:
        yield
    finally:
        secs[part] = round(time.monotonic() - start, 1)


def measure(name: str, import_only: bool) -> dict[str, Any]:
    """Hold one architecture to: accepted, right. Returns its row."""
    from tvm.s_tir.meta_schedule.database import MemoryDatabase
    from tvm.target import Target
    from tvm_droplet_ms.frontends import import_model
    from tvm_droplet_ms.model.prepare import prepare_graph
    from tvm_droplet_ms.session.errors import ModelError
    from tvm_droplet_ms.session.target import cpu_target
    from tvm_droplet_ms.tuning.compile.compiled_model import CompiledModel
    from tvm_droplet_ms.tuning.compile.lowering import build as compile_lowered
    from tvm_droplet_ms.tuning.compile.lowering import lower

    from .registry import build, leaves, outputs_of

    secs: dict[str, float] = {}
    row: dict[str, Any] = {"name": name, "accepted": False, "right": None, "secs": secs}
    with _timed(secs, "build the module"):
        module, inputs = build(name)
        expected = outputs_of(module, inputs)
    try:
        with _timed(secs, "import"):
            imported = import_model((module, inputs))
    except ModelError as error:
        row["refusal"] = str(error)
        return row
    row["accepted"] = True
    row["notes"] = list(getattr(imported, "notes", ()))
    if import_only:
        return row
    # Kernels without schedules are not timed: LLVM need not make them fast, which takes it long.
    target = Target({**cpu_target("auto", 1).export(), "opt-level": 0})
    with _timed(secs, "graph"):
        graph = prepare_graph()(imported.mod)
    with _timed(secs, "lower"):
        lowered = lower(graph, target)
    row["kernels"] = len([each for each in lowered.functions if str(each.name_hint) != "main"])
    with _timed(secs, "compile"):
        compiled = CompiledModel(compile_lowered(lowered, MemoryDatabase(), target))
    with _timed(secs, "run"):
        found = compiled(leaves(inputs))
    row["deviation"] = row_deviation(found, expected)
    row["right"] = row["deviation"] <= RIGHT
    return row


def row_of_job(job: tuple[str, bool, float | None]) -> dict[str, Any]:
    """The row of an architecture: its name, whether to import it only, and a budget to tune in."""
    name, import_only, budget_s = job
    warnings.filterwarnings("ignore")
    try:
        return measure(name, import_only) if budget_s is None else measure_tuned(name, budget_s)
    except Exception as error:
        lines = str(error).strip().splitlines() or [""]
        traceback.print_exc()
        fault = f"{type(error).__name__}: {lines[-1][-300:]}"
        return {"name": name, "accepted": False, "right": None, "fault": fault}
