# SPDX-License-Identifier: Apache-2.0
"""Opens the database of a work directory, and names the faulty lines if TVM cannot open it."""

import logging
import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tvm_ffi import structural_hash

from tvm.ir import IRModule
from tvm.s_tir.meta_schedule.database import JSONDatabase, TuningRecord, Workload

from ..compat import fast_tune_contexts
from ..design_space.matrix_tiles.tile_intrinsics import register_named
from .errors import message_lines
from .one_writer import only_writer
from .records import RECORDS, WORKLOADS, mend_torn_end, parse_line, read_lines, set_aside

logger = logging.getLogger(__name__)


def open_database(
    work_dir: str | os.PathLike[str], module_equality: str = "structural"
) -> JSONDatabase:
    """Open the JSON database of a work directory, or create one.

    ``JSONDatabase`` replays every record when it opens. One record that is torn, does not replay or
    has NaN as a time makes all others unreadable.

    Parameters
    ----------
    work_dir : str | os.PathLike[str]
        Directory of ``database_workload.json`` and ``database_tuning_record.json``. Created if
        missing.
    module_equality : str
        The comparison of workloads, as in ``JSONDatabase``.

    Returns
    -------
    database : JSONDatabase
        The database, as for ``ms.tune_tir(..., database=database)``.

    Raises
    ------
    ValueError
        If a line cannot be read. The message names the file, the lines and the number of intact
        lines, and says what to do.
    """
    directory = Path(work_dir)
    directory.mkdir(parents=True, exist_ok=True)
    # Records may name tensor intrinsics that are not registered yet.
    if (records := directory / RECORDS).exists():
        register_named(records.read_text(errors="replace"))
    with fast_tune_contexts():
        try:
            return JSONDatabase(work_dir=str(directory), module_equality=module_equality)
        # TVM raises errors of several types here. Each one is explained or raised again.
        except Exception as error:
            explanation = _explain(directory)
            if explanation is None:
                raise
            raise ValueError(explanation) from error


@contextmanager
def writing_database(work_dir: str | os.PathLike[str]) -> Iterator[JSONDatabase]:
    """Open the database of a work directory for writing, and lock out other writers.

    A torn last line, which a killed writer or a full disk leaves, is cut off first, with a warning
    in the log. ``work_dir``: as for ``open_database``. Raises ``SecondWriterError`` if another
    process tunes in the directory, ``ValueError`` if a line cannot be read, as ``open_database``
    does, and ``OSError`` if the directory cannot be written.
    """
    Path(work_dir).mkdir(parents=True, exist_ok=True)
    with only_writer(work_dir):
        for torn in mend_torn_end(work_dir):
            logger.warning("%s: the torn last line of %s was cut off", work_dir, torn)
        yield open_database(work_dir)


def read_records(work_dir: str | os.PathLike[str]) -> list[tuple[int, TuningRecord]]:
    """Read the records of a valid database, each with its position in the file.

    ``Database.get_all_tuning_records`` would sort them by time.
    """
    workloads, records = (read_lines(Path(work_dir) / name) for name in (WORKLOADS, RECORDS))
    mods = [Workload.from_json(parse_line(line)) for line in workloads]
    return [
        (position, TuningRecord.from_json(record, mods[workload]))
        for position, (workload, record) in enumerate(map(parse_line, records))
    ]


def workload_hash(mod: IRModule) -> str:
    """Hash a kernel's structure without its name; the hash is the same in every process."""
    return f"{structural_hash(mod) & 0xFFFFFFFFFFFFFFFF:016x}"


_LINE_ERRORS = (ValueError, TypeError, LookupError, RuntimeError)
"""Errors of JSON, Python and TVM for a faulty line. Any other error is a bug in this check."""


def _explain(directory: Path) -> str | None:
    """The reason why a database does not open; None if no line is faulty."""
    workload_path = directory / WORKLOADS
    workloads, faults = _read_workloads(directory)
    if faults:
        # A record names its workload by line number, so deleting a line would shift the others.
        advice = (
            "Records refer to workloads by line number, so delete only a torn last line; otherwise "
            "restore the lines named, or move both files away, and run again."
        )
        return _message(workload_path, faults, len(workloads), advice)
    lines = read_lines(directory / RECORDS)
    faults = _faulty_records(lines, workloads)
    advice = (
        "Move the lines named to another file with droplet-ms doctor --repair, or delete them, or "
        "move the file away, and run again."
    )
    intact = len(lines) - len(faults)
    return _message(directory / RECORDS, faults, intact, advice) if faults else None


def set_faulty_records_aside(work_dir: str | os.PathLike[str]) -> int:
    """Move the lines of unreadable records to another file.

    Call this only while no other process writes the database. The lines are appended to
    ``database_tuning_record.json.damaged``. Nothing changes if a workload cannot be read, because
    records name workloads by line. ``work_dir``: directory of the database. Returns the number of
    moved lines. Raises ``OSError`` if a file cannot be read or written.
    """
    directory = Path(work_dir)
    with fast_tune_contexts():
        workloads, damaged = _read_workloads(directory)
        faults = {} if damaged else _faulty_records(read_lines(directory / RECORDS), workloads)
    if faults:
        set_aside(directory, [number - 1 for number in faults])
    return len(faults)


def _read_workloads(directory: Path) -> tuple[dict[int, Workload], dict[int, str]]:
    """The workloads by position, and the faults of the other lines by line number, from 1."""
    workloads: dict[int, Workload] = {}
    faults: dict[int, str] = {}
    for number, line in enumerate(read_lines(directory / WORKLOADS)):
        try:
            workloads[number] = Workload.from_json(parse_line(line))
        except _LINE_ERRORS as error:
            faults[number + 1] = _reason(error)
    return workloads, faults


def _faulty_records(lines: Sequence[bytes], workloads: dict[int, Workload]) -> dict[int, str]:
    """The faults of invalid record lines by line number, from 1."""
    faults: dict[int, str] = {}
    for number, line in enumerate(lines, 1):
        try:
            _check_record(line, workloads)
        except _LINE_ERRORS as error:
            faults[number] = _reason(error)
    return faults


def _check_record(line: bytes, workloads: dict[int, Workload]) -> None:
    workload, record = parse_line(line)
    if workload not in workloads:
        raise ValueError(f"workload {workload} is not in database_workload.json")
    for sec in record[1] or []:
        if not math.isfinite(sec):
            raise ValueError(f"a time of {sec} seconds")
    TuningRecord.from_json(record, workloads[workload])


def _reason(error: Exception) -> str:
    # TVM prints the whole record first, which is long.
    lines = message_lines(error)
    reasons = [line for line in lines if line.startswith("The error is:")]
    return (reasons or lines)[-1][:300]


def _message(path: Path, faults: dict[int, str], intact: int, advice: str) -> str:
    listed = "; ".join(f"line {number}: {reason}" for number, reason in list(faults.items())[:5])
    more = f"; and {len(faults) - 5} more" if len(faults) > 5 else ""
    return f"{path} cannot be opened: {listed}{more}. The other {intact} lines are intact. {advice}"
