# SPDX-License-Identifier: Apache-2.0
"""Decisions measured on other tasks: candidates for the first measurements of any task.

The best schedule of a task is often also the best one of a similar task with other loop extents. So
the nearest known schedules, refitted, are candidates beside random schedules: they are what TopHub
is to AutoTVM, for loops of any extent.
"""

import json
import os
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import tvm_ffi

from tvm.target import Target

from ..published.decision_kinds import DECISION_KINDS
from .tuned_task import TunedTask

FIND_FILE = "tvm_droplet_ms.known_schedules"
"""The global function that returns the paths of the files for ``"auto"`` and a target, joined by
``os.pathsep``. This package registers it. Without it, ``"auto"`` means no known schedules."""

KnownLike: TypeAlias = str | os.PathLike[str] | None
"""``"auto"`` for the schedules of the package, the path of a file, or None for no schedules."""


def find_schedules(known: KnownLike, target: Target) -> tuple[TunedTask, ...]:
    """The tuned tasks of the files, each of which is read once.

    ``target``: the target to tune for. Raises the errors of ``check_known``.
    """
    if known == "auto":
        find = tvm_ffi.get_global_func(FIND_FILE, allow_missing=True)
        paths = [] if find is None else str(find(target)).split(os.pathsep)
        return tuple(task for path in paths for task in _read_once(Path(path)))
    check_known(known)
    return () if known is None else _read_once(Path(known))


def check_known(known: KnownLike) -> None:
    """Read a file of known schedules, if one is given.

    Raises ``ValueError`` if the file does not exist, or holds something else; see
    ``read_schedules``.
    """
    if known is None or known == "auto":
        return
    if not os.path.isfile(known):
        raise ValueError(
            f"known is {os.fspath(known)!r}, and there is no such file; expected 'auto', the path "
            "of a file of known schedules, or None"
        )
    _read_once(Path(known))


@cache
def _read_once(path: Path) -> tuple[TunedTask, ...]:
    return read_schedules(path)


def write_schedules(path: Path, tuned: Iterable[TunedTask]) -> None:
    """Write the decisions, one line of JSON per task, sorted: equal sets give equal files."""
    lines = sorted(
        json.dumps([task.sketch, [[k, *v] for k, v in zip(task.kinds, task.values, strict=True)]])
        for task in tuned
    )
    path.write_text("".join(f"{line}\n" for line in lines))


def read_schedules(path: Path) -> tuple[TunedTask, ...]:
    """Read a file of ``write_schedules``.

    Raises ``ValueError`` for an invalid line; the message names the file and the line.
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
