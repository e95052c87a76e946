# SPDX-License-Identifier: Apache-2.0
"""Checks and timings of the best schedules, in worker processes: after a fault a card's process is
lost."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .first_kernel import run_built
from .target import gpu_target
from .workloads import WORKLOADS, inputs, make_module, output_type


def check_winner(folder: Path, workload: str, target: str, library: Path, compares: bool) -> Any:
    """Build the best schedule of a database, write its library, and compare it with NumPy.

    Returns ``{"error_relative": ...}``, with None where nothing is compared. Raises
    ``RuntimeError`` if the database has no schedule, and ``ValueError`` if an element is off.
    """
    from tvm.s_tir import meta_schedule as ms

    from ....measure.build import build_scheduled
    from ....session.torn_database import mend_torn_end

    # The search may have been stopped while it wrote.
    mend_torn_end(folder)
    database = ms.database.JSONDatabase(
        str(folder / "database_workload.json"), str(folder / "database_tuning_record.json")
    )
    known = gpu_target(target)
    schedule = database.query_schedule(make_module(workload), known, "main")
    if schedule is None:
        raise RuntimeError(f"the database in {folder} holds no schedule of {workload}")
    module = build_scheduled(schedule.mod, known)
    module.export_library(str(library))
    return run_built(workload, module, compares=compares)


def time_winner(workload: str, library: Path) -> float:
    """The seconds of a call, by the card's clock."""
    import tvm

    device = tvm.cuda(0)
    arrays = [tvm.runtime.tensor(value, device) for value in inputs(workload)]
    arrays.append(tvm.runtime.empty(_shape(workload), output_type(workload), device))
    module = tvm.runtime.load_module(str(library))
    timer = module.time_evaluator("main", device, number=10, repeat=1, min_repeat_ms=50)
    return float(timer(*arrays).mean)


def _shape(workload: str) -> Sequence[int]:
    """The shape of the output; the convolution keeps height and width."""
    arguments = WORKLOADS[workload].arguments
    if WORKLOADS[workload].function == "matmul":
        return arguments[:2]
    batch, height, width, _, outputs, *_ = arguments
    return (batch, height, width, outputs)
