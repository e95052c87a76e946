# SPDX-License-Identifier: Apache-2.0
"""One architecture: imported, built without schedules, compared. A row of the table as JSON."""

import contextlib
import time
import traceback
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

from .tuned import measure_tuned


class Stopwatch:
    """Seconds by part."""

    def __init__(self) -> None:
        self.secs: dict[str, float] = {}

    @contextlib.contextmanager
    def __call__(self, part: str) -> Iterator[None]:
        start = time.monotonic()
        try:
            yield
        finally:
            self.secs[part] = round(time.monotonic() - start, 1)


def row_deviation(outputs: list[np.ndarray], expected: list[np.ndarray]) -> float:
    """The largest difference of an element, relative to the largest value of its row.

    A row is what lies along the last axis. Infinity where shapes, types, or the places of what is
    not finite differ.
    """
    if len(outputs) != len(expected):
        return np.inf
    worst = 0.0
    for found, wanted in zip(outputs, expected, strict=True):
        if found.shape != wanted.shape or found.dtype != wanted.dtype:
            return np.inf
        found, wanted = np.atleast_1d(found.astype("f8")), np.atleast_1d(wanted.astype("f8"))
        finite = np.isfinite(wanted)
        if not np.array_equal(found[~finite], wanted[~finite], equal_nan=True):
            return np.inf
        if not np.isfinite(found[finite]).all():
            return np.inf
        gap = np.abs(np.where(finite, found - wanted, 0.0)).max(-1, initial=0.0)
        scale = np.abs(np.where(finite, wanted, 0.0)).max(-1, initial=0.0)
        # A row that is nearly zero beside the others is what rounding left of them.
        scale = np.maximum(scale, 1e-3 * scale.max(initial=0.0))
        worst = max(worst, float((gap / np.where(scale > 0, scale, 1.0)).max(initial=0.0)))
    return worst


def measure(name: str, import_only: bool) -> dict[str, Any]:
    """Hold one architecture to: accepted, right. Returns its row."""
    from tvm.s_tir.meta_schedule.database import MemoryDatabase
    from tvm.target import Target
    from tvm_droplet_ms.model.prepare import prepare_graph
    from tvm_droplet_ms.session.errors import ModelError
    from tvm_droplet_ms.session.target import cpu_target
    from tvm_droplet_ms.tuning.compile.compiled_model import CompiledModel
    from tvm_droplet_ms.tuning.compile.lowering import build as compile_lowered
    from tvm_droplet_ms.tuning.compile.lowering import lower
    from tvm_droplet_ms.tuning.frontends import import_model

    from .registry import build, leaves, outputs_of

    watch = Stopwatch()
    row: dict[str, Any] = {"name": name, "accepted": False, "right": None, "secs": watch.secs}
    with watch("build the module"):
        module, inputs = build(name)
        expected = outputs_of(module, inputs)
    try:
        with watch("import"):
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
    with watch("graph"):
        graph = prepare_graph()(imported.mod)
    with watch("lower"):
        lowered = lower(graph, target)
    row["kernels"] = len([each for each in lowered.functions if str(each.name_hint) != "main"])
    with watch("compile"):
        compiled = CompiledModel(compile_lowered(lowered, MemoryDatabase(), target))
    with watch("run"):
        found = compiled(leaves(inputs))
    row["deviation"] = row_deviation(found, expected)
    row["right"] = row["deviation"] <= 1e-3
    return row


def write_row(name: str, import_only: bool, budget_s: float | None, sent: Any) -> None:
    """Measure in this process, and send the row. With a budget, it is tuned (``tuned.py``)."""
    warnings.filterwarnings("ignore")
    try:
        if budget_s is None:
            row = measure(name, import_only)
        else:
            row = measure_tuned(name, budget_s)
    except Exception as error:
        lines = str(error).strip().splitlines() or [""]
        fault = f"{type(error).__name__}: {lines[-1][-300:]}"
        row = {"name": name, "accepted": False, "right": None, "fault": fault}
        traceback.print_exc()
    sent.send(row)
    sent.close()
