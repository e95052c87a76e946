# SPDX-License-Identifier: Apache-2.0
"""Lets one process at a time tune in a work directory. Imports no TVM."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import filelock

LOCK = ".lock"
"""The lock file, which the process that tunes in a directory holds."""


class SecondWriterError(RuntimeError):
    """Another process tunes in the directory; the message says what to do."""


@contextmanager
def only_writer(
    work_dir: str | os.PathLike[str], refusal: type[Exception] = SecondWriterError
) -> Iterator[None]:
    """Keep other processes from tuning in an existing directory; contexts may be nested.

    Raises ``refusal`` if another process tunes there, and ``OSError`` if the directory cannot be
    written.
    """
    lock = filelock.FileLock(Path(work_dir).resolve() / LOCK, timeout=0, is_singleton=True)
    try:
        lock.acquire()
    except filelock.Timeout as error:
        raise refusal(
            f"another process tunes in {os.fspath(work_dir)!r}: records name workloads by their "
            "line, and two writers would mix them up. Wait for it, or pass another work_dir"
        ) from error
    try:
        yield
    finally:
        lock.release()
