# SPDX-License-Identifier: Apache-2.0
"""Stores the command of a run in its directory, so that it can be resumed. Imports no TVM."""

import json
import math
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..session.archive import replacing
from ..session.records import RECORDS, count_records

FILE = "command.json"


class ManifestError(ValueError):
    """A directory cannot be resumed; the message says why."""


@dataclass(frozen=True)
class Manifest:
    """The command of a run.

    ``options``: its options, as argparse names them. ``spent_secs``: total wall-clock seconds of
    its runs so far. ``known``: the number of records in the directory before these runs.
    """

    options: Mapping[str, Any]
    spent_secs: float
    known: int


def read_manifest(work_dir: str | os.PathLike[str]) -> Manifest:
    """Read the command of a directory.

    A killed run counts as running until its last record. Raises ``ManifestError`` if the manifest
    is missing, unreadable or damaged.
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
            # A clock that was set forward must not charge more than the command's budget.
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
    """Run a command, and store it in its directory with the time it took.

    A command that fails before it measures anything, such as a command for another target, does not
    replace the stored command.

    ``spent_secs``: total wall-clock seconds of earlier runs of a resumed command. ``known``: the
    number of records in the directory before these runs; None for the current number. Returns the
    exit status of the command.
    """
    path = Path(work_dir) / FILE
    kept = path.read_bytes() if path.exists() else None
    measured = _size(work_dir)
    known = count_records(work_dir) if known is None else known
    started = clock()
    # If the run is killed, the file times tell how long it took.
    _write(path, options, spent_secs, known, time.time())
    status = run()
    if status and kept is not None and _size(work_dir) == measured:
        _replace(path, kept)
    else:
        _write(path, options, spent_secs + clock() - started, known, None)
    return status


def _size(work_dir: str | os.PathLike[str]) -> int:
    """The size of a directory's record file in bytes; 0 if there is none."""
    records = Path(work_dir) / RECORDS
    return records.stat().st_size if records.exists() else 0


def _write(
    path: Path, options: Mapping[str, Any], spent_secs: float, known: int, started: float | None
) -> None:
    content = {"options": dict(options), "spent_secs": spent_secs, "known": known}
    _replace(path, json.dumps({**content, "started": started}, indent=1).encode())


def _replace(path: Path, content: bytes) -> None:
    with replacing(path) as partial:
        partial.write_bytes(content)
