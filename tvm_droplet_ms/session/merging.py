# SPDX-License-Identifier: Apache-2.0
"""Joins the databases of several work directories into one."""

import math
import os
import shutil
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from tvm_ffi import structural_hash

from tvm.ir import save_json
from tvm.s_tir.meta_schedule.database import TuningRecord

from ..search_strategy.candidates import is_unmeasured
from ..search_strategy.published.candidates import valid_secs
from .archive import replacing
from .database import open_database, read_records
from .one_writer import only_writer
from .records import RECORDS, WORKLOADS, lost_records, torn_ends
from .work_dir import SETTINGS, read_settings


class MergeError(ValueError):
    """Directories cannot be joined; the message says why and what to do."""


@dataclass(frozen=True)
class Merged:
    """The counts of a join.

    Parameters
    ----------
    records : int
        Records in the joined directory.
    repeated : int
        Duplicate records left out. Of the records of one schedule, only the fastest is kept.
    """

    records: int
    repeated: int


def merge_work_dirs(
    work_dirs: Sequence[str | os.PathLike[str]], out: str | os.PathLike[str]
) -> Merged:
    """Join the databases of several work directories into a new one.

    Times of different targets, threads or machines cannot be compared: directories whose settings
    differ are refused. If several directories measured a schedule, the fastest record is kept. A
    schedule that failed anywhere stays failed, because a failure also marks wrong outputs.

    Parameters
    ----------
    work_dirs : Sequence[str | os.PathLike[str]]
        The directories, at least one. They stay unchanged.
    out : str | os.PathLike[str]
        The new directory.

    Returns
    -------
    merged : Merged
        The counts of the join.

    Raises
    ------
    MergeError
        If a directory has no database, has a damaged or torn database, or has settings other than
        the first directory's; if `out` already has records, or not all records could be written
        there; or if another process tunes in one of the directories.
    """
    directories = [Path(work_dir) for work_dir in work_dirs]
    new = Path(out)
    if not directories:
        raise MergeError("no directory is given, expected at least one")
    for directory in directories:
        if not directory.is_dir():
            raise MergeError(f"{directory} is no directory: expected that of a run")
    if (new / RECORDS).exists():
        raise MergeError(f"{new} has records already: name a new directory")
    with ExitStack() as held:
        # Lock each directory once: a second lock by this process would conflict with the first.
        for directory in dict.fromkeys(path.resolve() for path in directories):
            # If this process cannot write a directory, no other process of this user can either.
            if os.access(directory, os.W_OK):
                held.enter_context(only_writer(directory, MergeError))
        settings = _same_settings(directories)
        best, found = _best_records(directories)
        new.mkdir(parents=True, exist_ok=True)
        held.enter_context(only_writer(new.resolve(), MergeError))
        _write(new, best, settings)
    return Merged(len(best), found - len(best))


def _best_records(directories: Sequence[Path]) -> tuple[list[TuningRecord], int]:
    """The record to keep for each schedule, and the number of records in all directories."""
    best: dict[tuple[int, str], TuningRecord] = {}
    found = 0
    for directory in directories:
        for record in _records(directory):
            key = (structural_hash(record.workload.mod), _text(record))
            found += 1
            if key not in best or _rank(record) < _rank(best[key]):
                best[key] = record
    return list(best.values()), found


def _write(new: Path, records: Sequence[TuningRecord], settings: str | None) -> None:
    """Write records and settings to a directory that has no records."""
    if (new / RECORDS).exists():
        raise MergeError(f"{new} has records already: name a new directory")
    if settings is not None:
        with replacing(new / SETTINGS) as partial:
            partial.write_text(settings, encoding="utf-8")
    try:
        _commit(new, records)
    except BaseException:
        # Leave no records, so that the command can run again.
        for name in (RECORDS, WORKLOADS):
            (new / name).unlink(missing_ok=True)
        raise


def _commit(new: Path, records: Sequence[TuningRecord]) -> None:
    database = open_database(new)
    for record in records:
        workload = database.commit_workload(record.workload.mod)
        database.commit_tuning_record(
            TuningRecord(record.trace, workload, record.run_secs, record.target, record.args_info)
        )
    # TVM does not check whether its writes succeeded.
    if lost_records(new, len(records)):
        free = shutil.disk_usage(new).free >> 20
        raise MergeError(
            f"the {len(records)} records could not all be written to {str(new)!r}, and none are "
            f"kept; its file system has {free} MiB free: make room and run again"
        )


def _same_settings(directories: Sequence[Path]) -> str | None:
    """The settings that all directories share; None if no directory has settings."""
    texts = {}
    for directory in directories:
        path = directory / SETTINGS
        try:
            texts[directory] = path.read_text(encoding="utf-8") if path.exists() else None
        except UnicodeDecodeError as error:
            raise MergeError(f"{path} is damaged: {error}") from error
    first = directories[0]
    for directory, text in texts.items():
        if _parsed(text) != _parsed(texts[first]):
            raise MergeError(
                f"{directory} was made with {text or 'unknown settings'}, and {first} with "
                f"{texts[first] or 'unknown settings'}: times of different targets, threads or "
                "versions cannot be compared; merge those of one at a time"
            )
    return texts[first]


def _parsed(text: str | None) -> object:
    try:
        return None if text is None else read_settings(text)
    except ValueError:
        return text


def _records(directory: Path) -> list[TuningRecord]:
    if torn_ends(directory):
        raise MergeError(
            f"the database of {directory} has a torn end: droplet-ms doctor {directory} --repair"
        )
    path = directory / RECORDS
    if not path.exists() or not path.stat().st_size:
        raise MergeError(f"{directory} has no records: expected the directory of a run")
    try:
        open_database(directory)
    except ValueError as error:
        raise MergeError(f"{directory}: {error}") from error
    return [record for _, record in read_records(directory)]


def _text(record: TuningRecord) -> str:
    """The trace and the target of a record, as text.

    ``TuningRecord.as_json`` is unusable here: it fails at the layout of a packed weight.
    """
    return f"{save_json(record.trace.as_json())} {record.target}"


def _rank(record: TuningRecord) -> float:
    """Sort key for the record to keep: failures first, then by time, unmeasured records last."""
    secs = valid_secs(record.run_secs)
    if secs:
        return sum(secs) / len(secs)
    return math.inf if is_unmeasured(record.run_secs) else -math.inf
