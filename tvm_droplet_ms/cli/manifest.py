# Licensed to the Apache Software Foundation (ASF) under one
# or more contributor license agreements.  See the NOTICE file
# distributed with this work for additional information
# regarding copyright ownership.  The ASF licenses this file
# to you under the Apache License, Version 2.0 (the
# "License"); you may not use this file except in compliance
# with the License.  You may obtain a copy of the License at
#
#   http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing,
# software distributed under the License is distributed on an
# "AS IS" BASIS, WITHOUT WARRANTIES OR CONDITIONS OF ANY
# KIND, either express or implied.  See the License for the
# specific language governing permissions and limitations
# under the License.
"""The command of a run, kept in its directory, so that it can be resumed. Imports no TVM."""

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FILE = "command.json"
RECORDS = "database_tuning_record.json"


class ManifestError(ValueError):
    """A directory cannot be resumed; the message says why."""


@dataclass(frozen=True)
class Manifest:
    """The command of a run.

    Parameters
    ----------
    options : Mapping[str, Any]
        Its options, as argparse names them.
    spent_secs : float
        Seconds of wall clock that runs of it have taken.
    """

    options: Mapping[str, Any]
    spent_secs: float


def read_manifest(work_dir: str | os.PathLike[str]) -> Manifest:
    """Read the command of a directory.

    A run that was killed has taken until its last record, as far as is known.

    Raises
    ------
    ManifestError
        If there is none, or it is damaged.
    """
    path = Path(work_dir) / FILE
    if not path.exists():
        raise ManifestError(
            f"{os.fspath(work_dir)} has no {FILE}: expected the directory of droplet-ms tune"
        )
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        options, spent = dict(content["options"]), float(content["spent_secs"])
        started = content["started"]
        if started is not None:
            records = Path(work_dir) / RECORDS
            last = records.stat().st_mtime if records.exists() else 0.0
            spent += max(0.0, last - float(started))
    except (ValueError, TypeError, LookupError) as error:
        raise ManifestError(f"{path} is damaged: {error}; run droplet-ms tune again") from error
    return Manifest(options, spent)


@contextmanager
def kept_command(
    work_dir: str | os.PathLike[str],
    options: Mapping[str, Any],
    clock: Callable[[], float] = time.time,
) -> Iterator[None]:
    """Keep a command in its directory while it runs, and what it took afterwards.

    Parameters
    ----------
    work_dir : str | os.PathLike[str]
        The directory; made where it is missing.
    options : Mapping[str, Any]
        The options, in the types of JSON.
    clock : Callable[[], float]
        Seconds, comparable with the times of files.
    """
    path = Path(work_dir) / FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        before = read_manifest(work_dir)
        spent = before.spent_secs if before.options.get("model") == options["model"] else 0.0
    except ManifestError:  # There is none, or one that this takes the place of.
        spent = 0.0
    started = clock()
    _write(path, options, spent, started)
    yield
    _write(path, options, spent + clock() - started, None)


def _write(
    path: Path, options: Mapping[str, Any], spent_secs: float, started: float | None
) -> None:
    content = {"options": dict(options), "spent_secs": spent_secs, "started": started}
    partial = path.with_suffix(".part")
    partial.write_text(json.dumps(content, indent=1), encoding="utf-8")
    partial.replace(path)
