# SPDX-License-Identifier: Apache-2.0
"""Programs that run one model, each in a process of its own, timed in turns.

Runtimes in one process share thread pools and allocators, and one that crashes ends them all.
"""

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tvm_droplet_ms.measure import TaskFailed, WorkerPool

Arrays = list[np.ndarray]

WARMING = 2
"""Rounds that do not count."""

PAUSE_SECS = 0.05
"""Between two runs: threads of the one before stop spinning."""

MAKING_SECS = 900.0
RUN_SECS = 120.0
"""The most that making a program and its first run may take, and a run."""


class Program:
    """A process that holds a model, ready to run.

    - ``settings``: ``name`` of a baseline, or ``library``, the path of a compiled model; ``model``
      and ``threads``.
    - ``inputs``: the model's inputs.
    - ``folder``: an existing directory for its files.

    ``outputs`` are those of the first run. Raises ``TaskFailed`` if the model does not run.
    """

    def __init__(self, settings: Mapping[str, Any], inputs: Arrays, folder: Path) -> None:
        # A model may be larger than what a worker may grow by.
        self._pool = WorkerPool(1, max_growth=sys.maxsize)
        making = self._pool.submit(MAKING_SECS, _begin, dict(settings), inputs, folder)
        try:
            self.outputs: Arrays = making.result()
        except BaseException:
            self.close()
            raise

    def time(self) -> float:
        """Run the model once; returns the seconds. Raises ``TaskFailed`` if it does not run."""
        return float(self._pool.submit(RUN_SECS, _timed).result())

    def close(self) -> None:
        """End the process."""
        self._pool.close()


def time_in_turns(
    programs: Mapping[str, Program], rounds: int
) -> tuple[dict[str, list[float]], dict[str, TaskFailed]]:
    """Seconds of each program in each round, by name, and the failures of those that failed."""
    secs: dict[str, list[float]] = {name: [] for name in programs}
    failures: dict[str, TaskFailed] = {}
    for number in range(-WARMING, rounds):
        for name in list(secs):
            try:
                taken = programs[name].time()
            except TaskFailed as failure:
                failures[name] = failure
                del secs[name]
                continue
            time.sleep(PAUSE_SECS)
            if number >= 0:
                secs[name].append(taken)
    return secs, failures


_run: Callable[[], Arrays]
"""What this worker process runs."""


def _begin(settings: Mapping[str, Any], inputs: Arrays, folder: Path) -> Arrays:
    """Make the program of this process, and run it once."""
    global _run
    _run = _make(settings, inputs, folder)
    return [np.array(output) for output in _run()]


def _timed() -> float:
    start = time.perf_counter()
    _run()
    return time.perf_counter() - start


def _make(
    settings: Mapping[str, Any], inputs: Sequence[np.ndarray], folder: Path
) -> Callable[[], Arrays]:
    if "library" in settings:
        from tvm_droplet_ms.session.threads import set_own_threads
        from tvm_droplet_ms.tuning.compile.compiled_model import CompiledModel

        set_own_threads(settings["threads"])
        compiled = CompiledModel.load(Path(settings["library"]))
        outputs, timer = list(compiled(inputs)), compiled.timer(inputs)

        def run() -> Arrays:
            timer()
            return outputs

        return run
    from .baselines import BASELINES, OF_HALVES, ModelFiles

    make = {**BASELINES, **OF_HALVES}[settings["name"]]
    return make(ModelFiles(settings["model"], folder), list(inputs), settings["threads"])
