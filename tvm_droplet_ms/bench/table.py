# SPDX-License-Identifier: Apache-2.0
"""A MetaSchedule builder and runner that look results up in a measured space."""

import math
import os
import random
import tempfile
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from tvm_ffi import structural_hash

from tvm.ir import IRModule
from tvm.ir.utils import derived_object
from tvm.s_tir.meta_schedule.builder import BuilderInput, BuilderResult, PyBuilder
from tvm.s_tir.meta_schedule.runner import PyRunner, RunnerFuture, RunnerInput, RunnerResult

from ..measure import PromptRunnerFuture
from .design_space import check_modules
from .space import MeasuredModule, Space

NEAR_BEST = 1.1
NEAR_BEST_REPEATS = 5
"""As in ``PromptRunner``: a module within 10% of the best is timed five times in total."""


class MissingModuleError(Exception):
    """A proposed module is missing from a closed space."""


@dataclass(frozen=True)
class Trial:
    """One measured candidate.

    - ``module``: the structural hash of its module.
    - ``secs``: mean of the times that the runner reports, in seconds; infinity for a failure.
    - ``best_estimate``: the time without noise, in seconds; infinity for a failure.
    - ``failure``: the kind of failure; None if the module has a time.
    """

    module: int
    secs: float
    best_estimate: float
    failure: str | None


class ReplayTable:
    """Answers the measurements of one tuning run of one task.

    ``noisy``: True if a measurement is drawn from the recorded repeats; otherwise it is their
    median. ``seed``: seed of the draws. ``trials``: the candidates in the order of measurement,
    including repeated candidates. Raises ``SpaceError`` if this TVM does not reproduce the measured
    modules of the space's points.
    """

    def __init__(self, space: Space, *, noisy: bool = False, seed: int = 0) -> None:
        check_modules(space)
        self.space, self._noisy = space, noisy
        self.trials: list[Trial] = []
        self._generator = random.Random(seed)
        self._best = math.inf

    def measure(self) -> dict[str, Any]:
        """The builder and the runner, for ``tune_tir(..., **table.measure())``."""
        return {"builder": TableBuilder(self), "runner": TableRunner()}

    def answer(self, mod: IRModule) -> MeasuredModule:
        """The measurements of a module. Raises ``MissingModuleError`` if the space lacks it."""
        name = structural_hash(mod)
        if name not in self.space.index:
            raise MissingModuleError(
                f"space {self.space.name} has no module of structural hash {name:016x}, and claims "
                f"to be closed under what MetaSchedule can reach:\n{mod}"
            )
        return self.space.modules[self.space.index[name]]

    def record(self, module: MeasuredModule, secs: Sequence[float]) -> None:
        """Add a trial, with the times that the runner reports for it."""
        reported = fmean(secs) if secs else math.inf
        self.trials.append(Trial(module.structural_hash, reported, module.time, module.failure))

    def draw(self, module: MeasuredModule) -> list[float]:
        """The times that a runner reports for a module, repeated as in ``PromptRunner``.

        With noise, all repeats come from one pass. The times of some modules differ far more
        between passes than between the repeats of a live measurement, which one process takes at
        one time.
        """
        if module.failure is not None:
            return []
        first = self._generator.choice(module.secs) if self._noisy else module.time
        self._best, is_near = min(self._best, first), first <= NEAR_BEST * self._best
        return [first] * (NEAR_BEST_REPEATS if is_near else 1)


@derived_object
class TableBuilder(PyBuilder):
    """Looks modules up instead of building them.

    Each artifact has its own folder, which TVM deletes after measuring the candidate.
    """

    def __init__(self, table: ReplayTable) -> None:
        super().__init__()
        self._table = table
        self._directory = tempfile.TemporaryDirectory(prefix="tvm_droplet_ms_")

    def build(self, build_inputs: Sequence[BuilderInput]) -> list[BuilderResult]:
        """Look up a batch. Raises ``MissingModuleError`` if a closed space lacks a module."""
        return [self._result(build_input) for build_input in build_inputs]

    def _result(self, build_input: BuilderInput) -> BuilderResult:
        module = self._table.answer(build_input.mod)
        if module.failure in ("constraint", "compile"):
            self._table.record(module, [])
            return BuilderResult(None, f"the space records a failure: {module.failure}")
        folder = tempfile.mkdtemp(dir=self._directory.name)
        secs = self._table.draw(module)
        self._table.record(module, secs)
        return BuilderResult(os.path.join(folder, ",".join(map(repr, secs)) or "failed"), None)


@derived_object
class TableRunner(PyRunner):
    """Reports the times in an artifact's name."""

    def run(self, runner_inputs: Sequence[RunnerInput]) -> list[RunnerFuture]:
        """Report the times of a batch."""
        futures: list[RunnerFuture] = []
        for runner_input in runner_inputs:
            name = os.path.basename(str(runner_input.artifact_path))
            if name == "failed":
                result = RunnerResult(None, "the space records a failure of this module")
            else:
                result = RunnerResult([float(secs) for secs in name.split(",")], None)
            done: Future[RunnerResult] = Future()
            done.set_result(result)
            futures.append(PromptRunnerFuture(done))
        return futures
