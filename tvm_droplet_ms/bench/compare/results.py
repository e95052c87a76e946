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
"""Results of runs, and their files."""

import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from ..table import Trial

FORMAT = "tvm-droplet-ms run"
VERSION = 2


class CompareError(Exception):
    """A comparison cannot begin or go on; the message says why and what to do."""


@dataclass(frozen=True)
class RunSettings:
    """Settings that determine a run.

    Parameters
    ----------
    space : str
        The name of the space.
    space_digest : str
        The SHA-256 of its file.
    strategy : str
        One of ``strategies.STRATEGIES``.
    seed : int
        Seeds the search, the cost model and the noise.
    trials : int
        Maximum number of measurements.
    num_trials_per_iter : int
        Maximum number of measurements in a batch.
    noisy : bool
        True if a measurement is drawn from the recorded repeats, rather than their median.
    versions : Mapping[str, str]
        Versions of TVM and of this package.
    code : str
        ``source_digest`` of the code that ran.
    learned : str
        The SHA-256 of the files that the strategy begins with, one after the other.
    """

    space: str
    space_digest: str
    strategy: str
    seed: int
    trials: int
    num_trials_per_iter: int
    noisy: bool
    versions: Mapping[str, str]
    code: str
    learned: str = ""

    def file(self, directory: Path) -> Path:
        """File of the result: ``runs/<code>/<space>/<strategy>/<seed>.json``."""
        return directory / "runs" / self.code[:12] / self._place

    def files_of_other_code(self, directory: Path) -> list[Path]:
        """Files of results of the same run by other code, or from before code was recorded."""
        own = self.file(directory)
        runs = directory / "runs"
        return [
            path
            for path in [runs / self._place, *runs.glob(f"*/{self._place}")]
            if path != own and path.exists()
        ]

    @property
    def _place(self) -> str:
        strategy = re.sub(r"[^\w.-]+", "-", self.strategy)
        return f"{self.space}/{strategy}/{self.seed}.json"


@dataclass(frozen=True)
class RunResult:
    """Outcome of a run.

    Parameters
    ----------
    settings : RunSettings
        Settings of the run.
    trials : tuple[Trial, ...]
        Its trials in order; none if it failed.
    error : str | None
        Traceback of its error; None if it finished.
    """

    settings: RunSettings
    trials: tuple[Trial, ...]
    error: str | None = None

    def save(self, path: Path) -> None:
        """Write it as JSON: the trials as columns of equal lengths.

        Infinite times are null, and structural hashes are in hexadecimal as in a space's file.
        The file is whole or not there.
        """
        columns: dict[str, list[Any]] = {
            field.name: [_as_json(field.name, getattr(trial, field.name)) for trial in self.trials]
            for field in fields(Trial)
        }
        content = {
            "format": FORMAT,
            "version": VERSION,
            "settings": asdict(self.settings),
            "status": "finished" if self.error is None else "failed",
            "error": self.error,
            "trials": columns,
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(path.name + ".partial")
        partial.write_text(json.dumps(content, allow_nan=False) + "\n")
        partial.replace(path)

    @staticmethod
    def load(path: Path) -> "RunResult":
        """Read a result.

        Raises
        ------
        CompareError
            If the file cannot be read, or is no result of this version.
        """
        try:
            content = json.loads(path.read_text())
            if (content["format"], content["version"]) != (FORMAT, VERSION):
                raise ValueError(f"expected format {FORMAT!r}, version {VERSION}")
            columns = content["trials"]
            rows = zip(*(columns[field.name] for field in fields(Trial)), strict=True)
            return RunResult(
                settings=RunSettings(**content["settings"]),
                trials=tuple(_trial(row) for row in rows),
                error=content["error"],
            )
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise CompareError(
                f"{path} is no result of a run: {error!r}; delete it to run it again"
            ) from error


def file_digest(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _as_json(name: str, value: Any) -> Any:
    if name == "module":
        return f"{value:016x}"
    return None if value == math.inf else value


def _trial(row: tuple[Any, ...]) -> Trial:
    values = dict(zip((field.name for field in fields(Trial)), row))
    for name in ("secs", "best_estimate"):
        values[name] = math.inf if values[name] is None else values[name]
    values["module"] = int(values["module"], 16)
    return Trial(**values)
