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
        Candidates that the builder received.
    retries : int
        Candidates that it tried once more after a machinery failure.
    failures : Counter[str]
        Candidates that failed in the end, by kind: "error", "timeout", "crash", or for machinery
        failures "machinery" and "closed".
    build_secs, export_secs : float
        Seconds that the workers spent building and exporting the successful candidates.
    wall_secs : float
        Seconds that TVM waited for builds.
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
        Candidates that the runner received.
    retries : int
        Candidates that it tried once more after a machinery failure.
    hopeless, near_best : int
        Candidates that it gave up after one call, and candidates near the best that it repeated.
    failures : Counter[str]
        Candidates that failed in the end, by kind: "error", "timeout", "crash", "invalid time", or
        for machinery failures, the builder's included, "machinery" and "closed".
    load_secs, timing_secs : float
        Seconds that the worker spent loading candidates, and seconds that it spent filling their
        arguments and running them.
    wall_secs : float
        Seconds that measuring took.
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
