# Licensed to the Apache Software Foundation (ASF) under one
# or more contributor license agreements.  See the NOTICE file
# distributed with this work for additional information
# regarding copyright ownership.  The ASF licenses this file
# to you under the Apache License, Version 2.0 (the
# "License"); you may not use this file except in compliance
# with the License.  You may obtain a copy of the License at
#
#   http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing,
# software distributed under the License is distributed on an
# "AS IS" BASIS, WITHOUT WARRANTIES OR CONDITIONS OF ANY
# KIND, either express or implied.  See the License for the
# specific language governing permissions and limitations
# under the License.
"""Decisions that were measured on other models: candidates for the first pick of any task.

A task's best schedule is often that of a similar task with other loop extents, so the nearest
known ones, refitted, are asked about beside random schedules. What TopHub is to AutoTVM, for loops
of any extent. The file is made of work directories:

    python -m tvm_droplet_ms.tuning.known_schedules DIRECTORY... --out FILE
"""

import argparse
import json
import os
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

from tvm.s_tir.meta_schedule.database import Database

from ..database import open_database
from ..search_strategy.decision_kinds import DECISION_KINDS
from ..search_strategy.history import valid_secs
from .tuned_task import TunedTask

SHIPPED = Path(__file__).parent / "known_schedules.jsonl"
"""What the package ships: the best schedules of the models in ``training/``."""


KnownLike: TypeAlias = str | os.PathLike[str] | None
"""``"auto"`` for what the package ships, the path of a file, or None for nothing."""


def find_schedules(known: KnownLike) -> tuple[TunedTask, ...]:
    """The decisions of a file, read once.

    Raises
    ------
    ValueError
        If there is no such file, or it holds something else; see ``read_schedules``.
    """
    if known is None:
        return ()
    if known != "auto" and not os.path.isfile(known):
        raise ValueError(
            f"known is {os.fspath(known)!r}, and there is no such file; expected 'auto', the path "
            "of a file of known_schedules, or None"
        )
    return _read_once(SHIPPED if known == "auto" else Path(known))


@cache
def _read_once(path: Path) -> tuple[TunedTask, ...]:
    return read_schedules(path)


def best_schedules(databases: Iterable[Database]) -> list[TunedTask]:
    """The best measured decisions of each workload.

    Parameters
    ----------
    databases : Iterable[Database]
        Measurements of one machine; of a workload in several of them the fastest counts.

    Returns
    -------
    tuned : list[TunedTask]
        Each once.
    """
    best: dict[Any, tuple[float, Any]] = {}
    for database in databases:
        for record in database.get_all_tuning_records():
            secs = valid_secs(record.run_secs)
            if not secs:
                continue
            key = str(record.workload.mod)
            time = sum(secs) / len(secs)
            if key not in best or time < best[key][0]:
                best[key] = (time, record.trace)
    tuned = (TunedTask.from_trace(trace) for _, trace in best.values())
    return [task for task in dict.fromkeys(tuned) if task.kinds]


def write_schedules(path: Path, tuned: Iterable[TunedTask]) -> None:
    """Write decisions, a line of JSON each, sorted, so that equal sets make equal files."""
    lines = sorted(
        json.dumps([task.sketch, [[k, *v] for k, v in zip(task.kinds, task.values, strict=True)]])
        for task in tuned
    )
    path.write_text("".join(f"{line}\n" for line in lines))


def read_schedules(path: Path) -> tuple[TunedTask, ...]:
    """Read a file of ``write_schedules``.

    Raises
    ------
    ValueError
        Names the file and the line that is none.
    """
    tuned = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        try:
            tuned.append(_parse(json.loads(line)))
        except (ValueError, TypeError) as error:
            raise ValueError(
                f"line {number} of {path} holds no schedule ({error}); expected what "
                "write_schedules writes: make the file anew"
            ) from None
    return tuple(tuned)


def _parse(line: Any) -> TunedTask:
    sketch, decisions = line
    kinds = tuple(kind for kind, *_ in decisions)
    values = tuple(tuple(value) for _, *value in decisions)
    if not isinstance(sketch, str) or not set(kinds) <= set(DECISION_KINDS):
        raise ValueError("its sketch is no text, or a decision's kind is unknown")
    if not all(isinstance(number, int) for value in values for number in value):
        raise TypeError("a decision's value is no integer")
    return TunedTask(sketch, kinds, values)


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the best schedules of some work directories."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("directories", nargs="+", type=Path, help="work directories of one machine")
    parser.add_argument("--out", type=Path, default=SHIPPED, help="the file (default: the shipped)")
    options = parser.parse_args(arguments)
    tuned = best_schedules(open_database(directory) for directory in options.directories)
    write_schedules(options.out, tuned)
    print(f"{len(tuned)} schedules in {options.out}")


if __name__ == "__main__":
    main()
