# SPDX-License-Identifier: Apache-2.0
"""The command of a run, kept in its directory, so that it can be resumed. Imports no TVM."""

import json
import math
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..session.torn_database import RECORDS, count_records

FILE = "command.json"


class ManifestError(ValueError):
    """A directory cannot be resumed; the message says why."""


@dataclass(frozen=True)
class Manifest:
    """The command of a run.

    ``options``: its options, as argparse names them. ``spent_secs``: seconds of wall clock that
    runs of it have taken. ``known``: the records that the directory had before them.
    """

    options: Mapping[str, Any]
    spent_secs: float
    known: int


def read_manifest(work_dir: str | os.PathLike[str]) -> Manifest:
    """Read the command of a directory.

    A run that was killed has taken until its last record, as far as is known. Raises
    ``ManifestError`` if there is none, or it is damaged.
    """
    path = Path(work_dir) / FILE
    if not path.exists():
        raise ManifestError(
            f"{os.fspath(work_dir)} has no {FILE}: expected the directory of droplet-ms tune"
        )
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        options, spent = dict(content["options"]), float(content["spent_secs"])
        started, known = content["started"], int(content.get("known", 0))
        if started is not None:
            records = Path(work_dir) / RECORDS
            last = records.stat().st_mtime if records.exists() else 0.0
            # A clock that was set forward must not spend more than the command was given.
            most = max(0.0, 60.0 * float(options.get("minutes", math.inf)) - spent)
            spent += min(most, max(0.0, last - float(started)))
    except OSError as error:
        raise ManifestError(f"{path} cannot be read: {error}") from error
    except (ValueError, TypeError, LookupError) as error:
        raise ManifestError(f"{path} is damaged: {error}; run droplet-ms tune again") from error
    return Manifest(options, spent, known)


def run_kept(
    work_dir: str | os.PathLike[str],
    options: Mapping[str, Any],
    run: Callable[[], int],
    spent_secs: float = 0.0,
    known: int | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> int:
    """Run a command and keep it in its directory, with what it took afterwards.

    One that fails before it has measured anything, such as a command for another target, does not
    take the place of the one before.

    ``spent_secs``: seconds of wall clock that runs of it have taken before, where it goes on.
    ``known``: the records that the directory had before them; None for those that it has. Returns
    the exit status of the command.
    """
    path = Path(work_dir) / FILE
    kept = path.read_bytes() if path.exists() else None
    measured = _size(work_dir)
    known = count_records(work_dir) if known is None else known
    started = clock()
    # Of a run that is killed, what it took is told by the times of its files.
    _write(path, options, spent_secs, known, time.time())
    status = run()
    if status and kept is not None and _size(work_dir) == measured:
        _replace(path, kept)
    else:
        _write(path, options, spent_secs + clock() - started, known, None)
    return status


def _size(work_dir: str | os.PathLike[str]) -> int:
    """The size of the records of a directory."""
    records = Path(work_dir) / RECORDS
    return records.stat().st_size if records.exists() else 0


def _write(
    path: Path, options: Mapping[str, Any], spent_secs: float, known: int, started: float | None
) -> None:
    content = {"options": dict(options), "spent_secs": spent_secs, "known": known}
    content["started"] = started
    _replace(path, json.dumps(content, indent=1).encode())


def _replace(path: Path, content: bytes) -> None:
    partial = path.with_suffix(".part")
    partial.write_bytes(content)
    partial.replace(path)
