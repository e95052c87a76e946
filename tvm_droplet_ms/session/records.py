# SPDX-License-Identifier: Apache-2.0
"""Reads, counts, corrects and mends the lines of a database's files. Imports no TVM.

A line of ``RECORDS`` is ``[workload, [[instructions, decisions], seconds, target, arguments]]``,
where ``workload`` is the position of a line of ``WORKLOADS``.
"""

import json
import os
import shutil
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from .archive import replacing

WORKLOADS = "database_workload.json"
RECORDS = "database_tuning_record.json"
_FILES = (WORKLOADS, RECORDS)

FAILED_SECS = 1e10
"""The time that TVM stores for a failure (``add_to_database.cc``)."""


def read_lines(path: Path) -> list[bytes]:
    """The undecoded lines, so that invalid text is a fault of its own line only."""
    return path.read_bytes().splitlines() if path.exists() else []


def parse_line(line: bytes) -> Any:
    """The JSON value of a line. Raises ``ValueError`` if it is torn or not text."""
    return json.loads(line.decode("utf-8"))


def count_records(work_dir: str | os.PathLike[str]) -> int:
    """The number of complete lines in a database's record file, without parsing them."""
    return _count(Path(work_dir) / RECORDS)


def count_measured(work_dir: str | os.PathLike[str], after: int = 0) -> int:
    """The number of records with a time or a failure, without the first ``after`` lines.

    A record without times is a failure of the machine, and does not count. A damaged line counts.
    """
    return sum(not _is_unmeasured(line) for line in read_lines(Path(work_dir) / RECORDS)[after:])


def lost_records(work_dir: str | os.PathLike[str], expected: int) -> str:
    """A sentence about records that were not written to their file; empty if all were.

    TVM does not check whether its writes succeed. ``expected``: the expected number of records.
    """
    directory = Path(work_dir)
    found = count_records(directory)
    if found >= expected and not _lacks_workload(directory):
        return ""
    free = shutil.disk_usage(directory).free >> 20
    lost = f"{expected - found} of {expected}" if found < expected else "the workloads of the last"
    return (
        f"{lost} records could not be written to {str(directory / RECORDS)!r}; its file system has "
        f"{free} MiB free. The other {found} are kept: make room and run again, which measures "
        "what is missing"
    )


def correct_times(work_dir: str | os.PathLike[str], times: Mapping[int, Sequence[float]]) -> None:
    """Replace the times of records, by position. No other process may write the file.

    TVM's own ``compile_tir`` applies the record with the least mean time. So the records must hold
    the new times of schedules that were timed again or turned out to be wrong.
    """
    if not times:
        return
    path = Path(work_dir) / RECORDS
    lines = read_lines(path)
    for position, secs in times.items():
        workload, record = parse_line(lines[position])
        record[1] = list(secs)
        lines[position] = json.dumps([workload, record]).encode()
    _write(path, lines)


def set_aside(work_dir: str | os.PathLike[str], positions: Collection[int]) -> None:
    """Move records to the end of ``database_tuning_record.json.damaged``, by position."""
    path = Path(work_dir) / RECORDS
    lines, before, moved = read_lines(path), path.stat(), set(positions)
    with path.with_name(f"{RECORDS}.damaged").open("ab") as aside:
        aside.writelines(lines[position] + b"\n" for position in positions)
    _write(path, [line for position, line in enumerate(lines) if position not in moved])
    _keep_time(path, before)


def torn_ends(work_dir: str | os.PathLike[str]) -> list[str]:
    """The names of a database's files whose last line lacks its newline."""
    return [name for name in _FILES if _last(Path(work_dir) / name)]


def mend_torn_end(work_dir: str | os.PathLike[str]) -> list[str]:
    """Cut off a torn last line of a database's files, so that the rest can be opened.

    ``JSONDatabase`` cannot open a file with a torn line. It can open a file whose last line lacks
    only the newline, but TVM would append its next line to that line, and the file would not open
    again. So such a line gets its newline. Complete lines are left alone. Records name workloads by
    line number, and a workload is written before its first record, so no record refers to a torn
    workload.

    Only the process that writes the database should call this: a line that looks torn may be one
    that another process has not finished. Returns the names of the files that lost a line. Raises
    ``OSError`` if a file cannot be read or written.
    """
    return [name for name in _FILES if _mend(Path(work_dir) / name)]


def _mend(path: Path) -> bool:
    """Mend the end of a file; return True if a torn line was cut off."""
    last = _last(path)
    if not last:
        return False
    before = path.stat()
    try:
        parse_line(last)  # A line is an array, and a part of an array is not JSON.
        is_torn = False
    except ValueError:
        is_torn = True
    if is_torn:
        os.truncate(path, before.st_size - len(last))
    else:
        with path.open("ab") as file:
            file.write(b"\n")
    _keep_time(path, before)
    return is_torn


def _last(path: Path) -> bytes:
    """The bytes after the last newline of a file."""
    content = path.read_bytes() if path.exists() else b""
    return content[content.rfind(b"\n") + 1 :]


def _count(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def _is_unmeasured(line: bytes) -> bool:
    """True for a record without times."""
    try:
        return not parse_line(line)[1][1]
    except (ValueError, TypeError, LookupError):
        return False


def _lacks_workload(directory: Path) -> bool:
    """True if the last record names a workload whose line was not written."""
    lines = read_lines(directory / RECORDS)
    try:
        return bool(lines) and parse_line(lines[-1])[0] >= _count(directory / WORKLOADS)
    except (ValueError, TypeError, LookupError):  # A torn line counts as lost.
        return False


def _write(path: Path, lines: Sequence[bytes]) -> None:
    with replacing(path) as partial:
        partial.write_bytes(b"".join(line + b"\n" for line in lines))


def _keep_time(path: Path, before: os.stat_result) -> None:
    """Restore the modification time of a file, which tells how long a killed run took."""
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
