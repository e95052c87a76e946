# SPDX-License-Identifier: Apache-2.0
"""Counts and seconds of builders and runners."""

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class BuildStats:
    """Counts and seconds of a builder.

    Parameters
    ----------
    builds : int
        The candidates that it was given.
    retries : int
        The candidates that it tried once more after a failure of the machinery.
    failures : Counter[str]
        The candidates that failed in the end, by kind: "error", "timeout", "crash", and
        "machinery" or "closed" where the machinery failed.
    build_secs, export_secs : float
        The seconds that the workers spent building and exporting the successful candidates.
    wall_secs : float
        The seconds for which TVM waited for builds.
    """

    builds: int = 0
    retries: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    build_secs: float = 0.0
    export_secs: float = 0.0
    wall_secs: float = 0.0


@dataclass
class RunStats:
    """Counts and seconds of a runner.

    Parameters
    ----------
    runs : int
        The candidates that it was given.
    retries : int
        The candidates that it tried once more after a failure of the machinery.
    hopeless, near_best : int
        The candidates that it gave up after one call, and those that it repeated for being near the
        best.
    failures : Counter[str]
        The candidates that failed in the end, by kind: "error", "timeout", "crash", "invalid time",
        and "machinery" or "closed" where the machinery failed, the builder's included.
    load_secs, timing_secs : float
        The seconds that its worker spent loading candidates, and filling their arguments and
        running them.
    wall_secs : float
        The seconds that measuring took.
    process : int | None
        The id of the worker process that timed the last candidate; None before the first.
    """

    runs: int = 0
    retries: int = 0
    hopeless: int = 0
    near_best: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    load_secs: float = 0.0
    timing_secs: float = 0.0
    wall_secs: float = 0.0
    process: int | None = None
