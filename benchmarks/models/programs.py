# SPDX-License-Identifier: Apache-2.0
"""Programs that run one model, each in a separate process, timed in turns.

In a single process, runtimes would share thread pools and allocators, and a crash would end all.
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
"""The number of warm-up rounds, which do not count."""

PAUSE_SECS = 0.05
"""Pause between two runs in seconds, in which the threads of the first stop spinning."""

MAKING_SECS = 900.0
RUN_SECS = 120.0
"""The time limits in seconds: ``MAKING_SECS`` for making a program and its first run, ``RUN_SECS``
for each later run."""


class Program:
    """A process with a model that is ready to run.

    - ``settings``: ``name`` of a baseline, or ``library``, the path of a compiled model; ``model``
      and ``threads``.
    - ``inputs``: the model's inputs.
    - ``folder``: an existing directory for its files.

    ``outputs``: the outputs of the first run. Raises ``TaskFailed`` if the model does not run.
    """

    def __init__(self, settings: Mapping[str, Any], inputs: Arrays, folder: Path) -> None:
        # A model may exceed the default limit on a worker's memory growth.
        self._pool = WorkerPool(1, max_growth=sys.maxsize)
        making = self._pool.submit(MAKING_SECS, _begin, dict(settings), inputs, folder)
        try:
            self.outputs: Arrays = making.result()
        except BaseException:
            self.close()
            raise

    def time(self) -> float:
        """Run the model once and return the seconds. Raises ``TaskFailed`` if it does not run."""
        return float(self._pool.submit(RUN_SECS, _timed).result())

    def close(self) -> None:
        """End the process."""
        self._pool.close()


def time_in_turns(
    programs: Mapping[str, Program], rounds: int
) -> tuple[dict[str, list[float]], dict[str, TaskFailed]]:
    """The seconds of each program in each round, and the failures of programs, both by name."""
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
"""The program of this worker process."""


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
