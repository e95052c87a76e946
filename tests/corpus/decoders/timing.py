# SPDX-License-Identifier: Apache-2.0
"""Runs of several programs in turns."""

import time
from collections.abc import Callable, Mapping
from typing import Any


def in_turns(runs: Mapping[str, Callable[[], Any]], rounds: int) -> dict[str, list[float]]:
    """The seconds of each program in each round, each after a run that is not counted."""
    secs: dict[str, list[float]] = {name: [] for name in runs}
    for run in runs.values():
        run()
    for _ in range(rounds):
        for name, run in runs.items():
            run()
            start = time.perf_counter()
            run()
            secs[name].append(time.perf_counter() - start)
    return secs
