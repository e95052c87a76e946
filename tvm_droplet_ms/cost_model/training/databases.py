# SPDX-License-Identifier: Apache-2.0
"""Reads training data from MetaSchedule databases and from training data files."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from tvm_ffi import structural_hash

from tvm.s_tir import Schedule
from tvm.s_tir.meta_schedule import TuneContext
from tvm.s_tir.meta_schedule.arg_info import ArgInfo
from tvm.s_tir.meta_schedule.database import Database, TuningRecord
from tvm.s_tir.meta_schedule.search_strategy import MeasureCandidate

from ...session.database import open_database
from ..features.program_features import Extractor, ProgramFeatures
from ..throughput import median_secs
from ..training_data import MeasuredWorkload, TrainingDataError, merge, target_text

_BATCH = 64
"""Number of programs to extract features of at once, which bounds the memory use."""


def read_training_data(
    paths: Sequence[Path], *, extractor: Extractor | None = None
) -> list[MeasuredWorkload]:
    """Read work directories and files of training data.

    ``paths``: the ``work_dir`` of a tuning run, or a ``.npz`` file of ``MeasuredWorkload.save``.
    ``extractor``: the extractor of the features; None for ``ProgramFeatures``. Returns one entry
    for each name and target. Raises ``TrainingDataError`` if a path is neither, a file is damaged,
    or its features have another schema. Raises ``ValueError`` if a database cannot be read; the
    message names the lines.
    """
    used = extractor or ProgramFeatures()
    workloads: list[MeasuredWorkload] = []
    for path in paths:
        if path.suffix == ".npz":
            workloads.append(_read_file(path, used))
        else:
            workloads += read_database(_open(path), extractor=used)
    return merge(workloads)


def read_database(
    database: Database, *, extractor: Extractor | None = None
) -> list[MeasuredWorkload]:
    """Read a MetaSchedule database; the features are computed from the stored traces.

    ``database``: a database with records of any number of workloads. ``extractor``: the extractor
    of the features; None for ``ProgramFeatures``. Returns one entry for each workload and target,
    in the order of the records. Raises ``TrainingDataError`` if a record has no target.
    """
    groups: dict[tuple[str, str], list[TuningRecord]] = {}
    for record in database.get_all_tuning_records():
        if record.run_secs is not None and not len(record.run_secs):
            # The machinery failed to measure this candidate.
            continue
        name = f"{structural_hash(record.workload.mod) % (1 << 64):016x}"
        if record.target is None:
            raise TrainingDataError(
                f"a record of workload {name} names no target, and may have been measured on any; "
                "remove it"
            )
        groups.setdefault((name, target_text(record.target)), []).append(record)
    used = extractor or ProgramFeatures()
    return [_workload(name, target, group, used) for (name, target), group in groups.items()]


def _open(path: Path) -> Database:
    if not path.is_dir():
        raise TrainingDataError(
            f"{path} is no directory and no .npz file, expected the work_dir of a tuning run or a "
            "file of training data; to learn from a measured space of the package, run `droplet-ms "
            f"space features {path} --out DIR` first and give its .npz files"
        )
    if not (path / "database_workload.json").exists():
        raise TrainingDataError(
            f"{path} holds no database_workload.json, expected the work_dir of a tuning run"
        )
    return open_database(path)


def _read_file(path: Path, extractor: Extractor) -> MeasuredWorkload:
    workload, schema = MeasuredWorkload.load(path)
    if schema != extractor.schema:
        raise TrainingDataError(
            f"{path} has features of schema {schema!r}, expected {extractor.schema!r}; make it "
            "again with droplet-ms space features, or train another --model"
        )
    return workload


def _workload(
    name: str, target: str, records: Sequence[TuningRecord], extractor: Extractor
) -> MeasuredWorkload:
    context = TuneContext(records[0].workload.mod, target=records[0].target, num_threads=1)
    parts = []
    for start in range(0, len(records), _BATCH):
        candidates = [_candidate(record) for record in records[start : start + _BATCH]]
        parts.append(extractor.extract(context, candidates))
    secs = np.array([median_secs(record.run_secs) for record in records])
    return MeasuredWorkload(name, target, np.concatenate(parts), secs)


def _candidate(record: TuningRecord) -> MeasureCandidate:
    schedule = Schedule(record.workload.mod, debug_mask="none", error_render_level="fast")
    record.trace.apply_to_schedule(schedule, remove_postproc=False)
    return MeasureCandidate(schedule, ArgInfo.from_entry_func(schedule.mod, remove_preproc=True))
