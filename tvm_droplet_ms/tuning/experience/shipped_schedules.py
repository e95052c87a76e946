# SPDX-License-Identifier: Apache-2.0
"""The known schedules that the package ships: the best ones of the models in ``training/``.

The registers of AVX-512 hold 512 floats, and those of AVX2 and NEON hold 128. A tile that fits in
AVX-512 registers spills on the others, so AVX-512 and the others have separate files. A file is
made from work directories:

    python -m tvm_droplet_ms.tuning.experience.shipped_schedules DIRECTORY... --out FILE
"""

import argparse
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import tvm_ffi

from tvm.s_tir.meta_schedule.database import Database
from tvm.target import Target

from ...cost_model.instruction_set import WIDEST, instruction_set
from ...design_space.matrix_tiles.find_matrix import matrix_units
from ...search_strategy.known_schedules import FIND_FILE, TunedTask, write_schedules
from ...search_strategy.published.candidates import mean, valid_secs
from ...session.database import open_database

SHIPPED = Path(__file__).parent / "known_schedules.jsonl"
"""Schedules for AVX-512."""

SHIPPED_NARROW = SHIPPED.with_name("known_schedules_avx2.jsonl")
"""Schedules from AVX2, for all CPUs without AVX-512."""


SHIPPED_TILES = SHIPPED.with_name("known_schedules_amx.jsonl")
"""Schedules with matrix tiles, for CPUs that have them, in addition to the other files."""


def shipped(target: Target) -> str:
    """Return the paths of the files for a target, joined by ``os.pathsep``."""
    paths = [SHIPPED if instruction_set(target) == WIDEST else SHIPPED_NARROW]
    if matrix_units(target):
        paths.insert(0, SHIPPED_TILES)
    return os.pathsep.join(map(str, paths))


def best_schedules(databases: Iterable[Database]) -> list[TunedTask]:
    """Return each workload's best decisions in one machine's databases, without duplicates."""
    best: dict[Any, tuple[float, Any]] = {}
    for database in databases:
        for record in database.get_all_tuning_records():
            secs = valid_secs(record.run_secs)
            if not secs:
                continue
            key = str(record.workload.mod)
            if key not in best or mean(secs) < best[key][0]:
                best[key] = (mean(secs), record.trace)
    tuned = (TunedTask.from_trace(trace) for _, trace in best.values())
    return [task for task in dict.fromkeys(tuned) if task.kinds]


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the best schedules of some work directories."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("directories", nargs="+", type=Path, help="work directories of one machine")
    parser.add_argument("--out", type=Path, default=SHIPPED, help="the file (default: the shipped)")
    options = parser.parse_args(arguments)
    tuned = best_schedules(open_database(directory) for directory in options.directories)
    write_schedules(options.out, tuned)
    print(f"{len(tuned)} schedules in {options.out}")


tvm_ffi.register_global_func(FIND_FILE, shipped, override=True)

if __name__ == "__main__":
    main()
