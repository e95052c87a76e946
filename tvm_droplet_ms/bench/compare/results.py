# SPDX-License-Identifier: Apache-2.0
"""Results of replayed runs, and their files."""

import hashlib
import json
import re
from dataclasses import asdict, dataclass
from math import inf
from pathlib import Path

from ...session.archive import replacing
from ..table import Trial

FORMAT = "tvm-droplet-ms run"
VERSION = 2


class CompareError(Exception):
    """A comparison cannot begin or continue; the message says why and what to do."""


@dataclass(frozen=True)
class RunSettings:
    """Settings that determine a run.

    - ``space``: the name of the space.
    - ``space_digest``: the SHA-256 of its file.
    - ``strategy``: one of ``replay.STRATEGIES``.
    - ``seed``: seeds the search, the cost model and the noise.
    - ``trials``: maximum number of measurements.
    - ``num_trials_per_iter``: maximum number of measurements in a batch.
    - ``noisy``: True if a measurement is drawn from the recorded repeats, rather than their median.
    - ``code``: ``source_digest`` of the code that ran.
    - ``learned``: the SHA-256 digests of the strategy's prior and draft files, concatenated.
    """

    space: str
    space_digest: str
    strategy: str
    seed: int
    trials: int
    num_trials_per_iter: int
    noisy: bool
    version: str
    code: str
    learned: str = ""

    def file(self, directory: Path) -> Path:
        """File of the result: ``runs/<code>/<space>/<strategy>/<seed>.json``."""
        strategy = re.sub(r"[^\w.-]+", "-", self.strategy)
        return directory.joinpath("runs", self.code[:12], self.space, strategy, f"{self.seed}.json")


@dataclass(frozen=True)
class RunResult:
    """Outcome of a run: its trials in order, or the traceback of its error."""

    settings: RunSettings
    trials: tuple[Trial, ...]
    error: str | None = None

    def save(self, path: Path) -> None:
        """Write the result as JSON: one row per trial, null for infinite times."""
        content = {
            "format": FORMAT,
            "version": VERSION,
            "settings": asdict(self.settings),
            "error": self.error,
            "trials": [
                [f"{one.module:016x}", _finite(one.secs), _finite(one.best_estimate), one.failure]
                for one in self.trials
            ],
        }
        with replacing(path) as partial:
            partial.write_text(json.dumps(content, allow_nan=False) + "\n")

    @staticmethod
    def load(path: Path) -> "RunResult":
        """Read a result.

        Raises ``CompareError`` if the file cannot be read or is not a result of this version.
        """
        try:
            content = json.loads(path.read_text())
            if (content["format"], content["version"]) != (FORMAT, VERSION):
                raise ValueError(f"expected format {FORMAT!r}, version {VERSION}")
            trials = tuple(
                Trial(int(module, 16), _secs(secs), _secs(best), failure)
                for module, secs, best, failure in content["trials"]
            )
            return RunResult(RunSettings(**content["settings"]), trials, content["error"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise CompareError(
                f"{path} is no result of a run: {error!r}; delete it to run it again"
            ) from error


def file_digest(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _finite(secs: float) -> float | None:
    return None if secs == inf else secs


def _secs(value: float | None) -> float:
    return inf if value is None else value
