# SPDX-License-Identifier: Apache-2.0
"""The schedules that were chosen inside the model, kept for the next run of the directory.

They are not the best by their own times, so that the database alone does not tell them.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path

from tvm.s_tir.meta_schedule.database import Database, TuningRecord
from tvm.target import Target

from .alternatives import near_best

CHOICE = "inside_choice.json"
"""The file of the work directory: by the workload's structural hash, the digest of a schedule."""


def keep_choice(directory: Path, chosen: Mapping[int, TuningRecord]) -> None:
    """Write the choice. The file appears when it is complete.

    ``chosen``: the schedules by the structural hash of their workload. What was chosen before for
    others stays.
    """
    digests = _read(directory) | {str(key): _digest(record) for key, record in chosen.items()}
    part = directory / f".{CHOICE}.part"
    part.write_text(json.dumps(digests, indent=1) + "\n", encoding="utf-8")
    os.replace(part, directory / CHOICE)


def kept_choice(directory: Path, database: Database, target: Target) -> dict[int, TuningRecord]:
    """The schedules that were chosen, where they are still among the best.

    ``database``: its records. The keys are structural hashes of workloads. Empty where nothing was
    chosen.
    """
    digests = _read(directory)
    if not digests:
        return {}
    return {
        key: record
        for key, records in near_best(database, target).items()
        for record in records
        if digests.get(str(key)) == _digest(record)
    }


def _read(directory: Path) -> dict[str, str]:
    """The file's content; empty where there is none, or it is not one of ours."""
    try:
        content = json.loads((directory / CHOICE).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _digest(record: TuningRecord) -> str:
    return hashlib.sha256(str(record.trace).encode()).hexdigest()
