# SPDX-License-Identifier: Apache-2.0
"""Error messages of a run in which the disk, the directory or the search fails."""

import errno
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tvm.ir import IRModule
from tvm.target import Target

from ...session.database import workload_hash
from ...session.work_dir import EXECUTABLE, RESULT, unusable
from .errors import KernelError, KernelInterrupted

CHECKS = "check_"
"""Prefix of the folders in which schedules are checked; a killed run leaves one behind."""

CRASH = "its process was ended by"
"""Part of the message of a failure whose kernel ended its process (``measure/pool``)."""

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
"""Errors of a disk or a directory. Other errors, such as a closed pipe, have another cause."""


@contextmanager
def refusing_full_disks(work_dir: str | os.PathLike[str]) -> Iterator[None]:
    """Context that turns a file system error into a ``KernelError`` that says what to do."""
    try:
        yield
    except OSError as error:
        if error.errno not in _UNUSABLE:
            raise
        raise KernelError(unusable(work_dir, error)) from error


def refuse_another_kernel(work_dir: Path, module: IRModule) -> None:
    """Refuse a directory with the result of another kernel or a model, which would be lost.

    A result that an earlier version wrote, or that is damaged, does not name its kernel and is not
    refused.
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
    """Remove check folders that killed runs left. Only the directory's writer may call this."""
    for left in work_dir.glob(f"{CHECKS}*"):
        shutil.rmtree(left, ignore_errors=True)


def other_inputs(names: Sequence[str]) -> str:
    """Advice for a kernel that crashes on made-up values of its arguments."""
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
    """Make the error of a run that has no measured schedule to return.

    ``known``: the number of failed schedules of earlier runs. ``failures``: the number of failed
    schedules of this run, by the first line of the reason. ``why_ended``: the stop rule that ended
    the run; empty for none.
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
