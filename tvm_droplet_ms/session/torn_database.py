# SPDX-License-Identifier: Apache-2.0
"""Mends the end of a database whose writer was killed. Imports no TVM."""

import json
import os
from pathlib import Path

WORKLOADS = "database_workload.json"
RECORDS = "database_tuning_record.json"
_FILES = (WORKLOADS, RECORDS)


def mend_torn_end(work_dir: str | os.PathLike[str]) -> list[str]:
    """Cut off a torn last line of a database's files, so that the rest can be opened.

    ``JSONDatabase`` opens no file with a torn line. A last line that lacks only its newline opens,
    but TVM's next line would be added to it, and the file would not open again: it gets its
    newline. Lines that end are left alone. Records name workloads by line number, and a workload is
    written before its first record, so that no record refers to a torn one.

    Only the process that goes on writing the database should call this: what looks torn may be a
    line that another process has not finished. Returns the names of the files that lost a line.
    Raises ``OSError`` if a file cannot be read or written.
    """
    return [name for name in _FILES if _mend(Path(work_dir) / name)]


def torn_ends(work_dir: str | os.PathLike[str]) -> list[str]:
    """The names of a database's files whose last line lacks its end."""
    return [name for name in _FILES if _last(Path(work_dir) / name)]


def _last(path: Path) -> bytes:
    """The bytes after the last newline of a file."""
    content = path.read_bytes() if path.exists() else b""
    return content[content.rfind(b"\n") + 1 :]


def _mend(path: Path) -> bool:
    """True if a torn line was cut off."""
    last = _last(path)
    if not last:
        return False
    if _is_complete(last):
        with path.open("ab") as file:
            file.write(b"\n")
        return False
    os.truncate(path, path.stat().st_size - len(last))
    return True


def _is_complete(line: bytes) -> bool:
    """True if a line is JSON: all lines are arrays, and no part of an array is one."""
    try:
        json.loads(line.decode("utf-8"))
    except ValueError:
        return False
    return True
