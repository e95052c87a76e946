# SPDX-License-Identifier: Apache-2.0
"""Messages of a run that the disk, the directory or the search lets down."""

import errno
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tvm.ir import IRModule
from tvm.target import Target

from ..session.torn_database import lost_records
from ..session.work_dir import EXECUTABLE, RESULT
from .errors import KernelError, KernelInterrupted
from .records import workload_hash

CHECKS = "check_"
"""The prefix of the folders that schedules are checked in; a killed run leaves one."""

CRASH = "its process was ended by"
"""The words of a failure whose kernel ended its process (``measure/pool``)."""

_UNUSABLE = (
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EFBIG,
    errno.EIO,
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.ENOTDIR,
)
"""Errors of a disk or a directory; others, such as a closed pipe, are not the work directory's."""


@contextmanager
def refusing_full_disks(work_dir: str | os.PathLike[str]) -> Iterator[None]:
    """Within it, an error of the file system ends in a ``KernelError`` that says what to do."""
    try:
        yield
    except OSError as error:
        if error.errno not in _UNUSABLE:
            raise
        raise KernelError(
            f"work_dir {os.fspath(work_dir)!r} cannot be used: {error}. What is in it is kept: "
            "make room or permit writing there and run again, or pass another work_dir"
        ) from error


def refuse_another_kernel(work_dir: Path, module: IRModule) -> None:
    """Refuse a directory that holds the result of another kernel, or a model, whose would be lost.

    A result that an earlier version wrote, or that is damaged, does not tell its kernel.
    """
    if (work_dir / EXECUTABLE).exists():
        raise KernelError(
            f"work_dir {str(work_dir)!r} holds the executable of a model, and this run tunes a "
            "kernel: pass another work_dir (--work-dir)"
        )
    try:
        kept = json.loads((work_dir / RESULT).read_text(encoding="utf-8"))
        name, workload = kept["name"], kept["workload"]
    except (FileNotFoundError, ValueError, LookupError, TypeError):
        return
    if workload != workload_hash(module):
        raise KernelError(
            f"work_dir {str(work_dir)!r} holds the result of another kernel, {name!r}, which this "
            "run would overwrite: pass another work_dir; droplet-ms merge joins the records of "
            "several"
        )


def remove_left_checks(work_dir: Path) -> None:
    """Remove the folders in which killed runs checked schedules. Only the writer may."""
    for left in work_dir.glob(f"{CHECKS}*"):
        shutil.rmtree(left, ignore_errors=True)


def check_written(work_dir: Path, expected: int) -> None:
    """Refuse to go on where records did not reach their file."""
    if lost := lost_records(work_dir, expected):
        raise KernelError(lost)


def other_inputs(names: Sequence[str]) -> str:
    """Advice where made-up values of the arguments crash a kernel."""
    return (
        "Made-up values may be none that it takes, such as indices or divisors: give others with "
        f"inputs={{name: array}}, or --inputs FILE.npz, by the names {', '.join(names)}"
    )


def nothing_measured(
    name: str,
    arguments: Sequence[str],
    target: Target,
    work_dir: Path,
    known: int,
    failures: Mapping[str, int],
    why_ended: str,
) -> KernelError:
    """The error of a run that has no measured schedule to hand over.

    ``known``: failed schedules of earlier runs. ``failures``: those of this run, by the first line
    of the reason. ``why_ended``: the stop rule that ended the run; empty for none.
    """
    if failures:
        count = sum(failures.values())
        crashed = all(CRASH in reason for reason in failures)
        return KernelError(
            f"no schedule of {name} could be measured for {target}: all {count} failed; the "
            f"first: {next(iter(failures))}{f'. {other_inputs(arguments)}' if crashed else ''}"
        )
    if why_ended == "interrupt":
        return KernelInterrupted(
            f"interrupted before a schedule of {name} was measured; nothing is lost: run again"
        )
    if why_ended == "time":
        return KernelError(
            f"the time was over before a schedule of {name} was measured: give it more"
        )
    if known:
        return KernelError(
            f"all {known} schedules of {name} in {str(work_dir)!r} failed: pass more trials, or "
            "another work_dir if the fault is mended"
        )
    return KernelError(
        f"no schedule of {name} could be measured for {target}: the search proposed none, because "
        "trials is 0, the design space is empty, or its postprocessors reject all; the log's "
        "warnings say which"
    )
