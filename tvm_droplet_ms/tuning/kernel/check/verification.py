# SPDX-License-Identifier: Apache-2.0
"""Checks and times the best schedules of a kernel, in worker processes or on servers.

A wrong kernel may crash its process, so no kernel runs in the user's process.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any

import numpy as np

from tvm.ir import IRModule, load_json, save_json
from tvm.target import Target

from ....display.state import shortened
from ....measure import TaskFailed, WorkerPool, build_scheduled, prepare_to_time
from ....measure.allocation import read_array, save_arrays
from ....measure.build import prepare_to_build
from ....measure.deviation import deviation, element_scales, noise
from ....session.target import runs_on
from ..faults import other_inputs
from .arguments import Argument, moved_arrays, written_arguments
from .library_runs import run_library, time_libraries

OCCASION_SPREAD = 0.05
"""Standard deviation of the logarithm of a time between occasions, which are seconds or more apart.
It adds to the deviation between processes of one occasion. Without it 6 of 10 intervals held, with
it 9 of 10 (2026-11-24, commit 70d408a)."""

_STUDENT_90 = {2: 2.920, 3: 2.353, 4: 2.132, 5: 2.015, 6: 1.943, 7: 1.895, 8: 1.860, 9: 1.833}
"""95% quantiles of Student's t-distribution by degrees of freedom, for two-sided 90% intervals."""


@dataclass(frozen=True)
class KernelTime:
    """The median time of a kernel over processes, in seconds.

    90% of the medians of other processes, including later ones, should be between ``low`` and
    ``high``.
    """

    secs: float
    low: float
    high: float

    @staticmethod
    def of(rounds: Sequence[float]) -> "KernelTime":
        """Compute the time from the medians of several processes."""
        logs = [math.log(secs) for secs in rounds]
        middle = median(rounds)
        if len(logs) < 3:
            return KernelTime(middle, min(rounds), max(rounds))
        freedom = min(len(logs) - 1, max(_STUDENT_90))
        spread = math.hypot(stdev(logs) * math.sqrt(1.0 + 1.0 / len(logs)), OCCASION_SPREAD)
        half = _STUDENT_90[freedom] * spread
        center = fmean(logs)
        low, high = math.exp(center - half), math.exp(center + half)
        return KernelTime(middle, min(low, middle), max(high, middle))


BUILD_SECS = 120.0
"""Maximum seconds of a build."""

RUN_SECS = 120.0
"""Maximum seconds of a check, and of a round of timings."""

DEVICE_SECS = 30.0
"""Maximum seconds of a check on a GPU, and of each schedule in a round of timings. This is the
limit of a measurement, within which the schedule ran before. A run that hangs is tried twice."""

ROUNDS = 7
"""Number of processes that time all schedules: times vary more between processes than in one."""


@dataclass(frozen=True)
class Verdict:
    """Whether a schedule computes the same outputs as the unscheduled kernel.

    ``is_right``: None if it could not be checked. ``deviation``: NaN if unknown. ``reason``: why
    the schedule is wrong or could not be checked, or which part could not be checked.
    """

    is_right: bool | None
    deviation: float
    reason: str


@dataclass(frozen=True)
class Expected:
    """The unscheduled kernel.

    ``library``: None if it could not be built, or does not run on its schedules' device.
    ``reason``: why it could not run; empty if it ran. ``secs``: the seconds of its only call; NaN
    if it did not run on its schedules' device.
    """

    library: Path | None
    reason: str
    secs: float


class CannotCheck(RuntimeError):
    """A schedule could not be checked or timed; ``is_crash`` tells whether a kernel crashed."""

    def __init__(self, reason: str, is_crash: bool = False) -> None:
        super().__init__(reason)
        self.is_crash = is_crash


class DeviceFailed(RuntimeError):
    """A GPU failed twice, in two processes, to run schedules, which may not be at fault."""


class Verifier:
    """Builds, checks and times schedules of one kernel.

    - ``directory``: an existing directory for the libraries and the inputs.
    - ``tolerances``: the maximum deviation of each argument.
    - ``run``: calls a function in a separate process where kernels are to run. It takes the maximum
      seconds, the function and its arguments, and raises ``TaskFailed``. None for the workers of
      ``pool``.
    - ``reference``: the target of this machine's CPU, for the unscheduled kernel if it cannot be
      built for ``target``.
    """

    def __init__(
        self,
        directory: Path,
        target: Target,
        arguments: Sequence[Argument],
        arrays: Sequence[np.ndarray],
        tolerances: Sequence[float],
        pool: WorkerPool,
        run: Callable[..., Any] | None = None,
        reference: Target | None = None,
    ) -> None:
        self._directory = directory
        self._target = target
        self._arguments = list(arguments)
        self._tolerances = list(tolerances)
        self._pool = pool
        self._call = run or self._run_in_worker
        self._device = runs_on(target)
        self._reference = reference
        self._inputs = directory / "inputs.npz"
        self._arrays = list(arrays)
        self._moved: list[Path] | None = None
        self._written: set[str] = set()
        save_arrays(self._inputs, dict(enumerate(arrays)))

    @property
    def advice(self) -> str:
        """Advice to give other values for the arguments."""
        return other_inputs([argument.name for argument in self._arguments])

    def _run_in_worker(self, secs: float, function: Callable[..., Any], *arguments: Any) -> Any:
        return self._pool.submit(secs, function, *arguments, fresh=True).result()

    def build(self, name: str, mod: IRModule, target: Target | None = None) -> Path:
        """Build a module and write its library. Raises ``TaskFailed`` if it cannot be built."""
        path = self._directory / f"{name}.so"
        kind = save_json(self._target if target is None else target)
        self._pool.submit(BUILD_SECS, _build, save_json(mod), kind, str(path)).result()
        return path

    def expect(self, mod: IRModule) -> Expected:
        """Build and run the unscheduled kernel, which gives the expected outputs."""
        self._written = written_arguments(mod)
        try:
            library = self.build("untuned", mod, self._reference)
        except TaskFailed as error:
            reason = f"the kernel without a schedule could not be built: {error}"
            return Expected(None, reason, math.nan)
        try:
            secs = self._run_untuned(self._directory / "expected.npz", self._inputs)
            if self._reference is not None:
                return Expected(None, "", math.nan)
        except TaskFailed as error:
            return Expected(
                library, f"the kernel without a schedule did not run: {error}", math.nan
            )
        return Expected(library, "", secs)

    def check(self, library: Path) -> Verdict:
        """Compare the outputs of a schedule with the expected ones.

        Raises ``CannotCheck`` if the machine is at fault, such as a full disk, and ``DeviceFailed``
        if a GPU is at fault.
        """
        found = self._directory / "found.npz"
        try:
            self._run(library, found, self._device, self._call_on_device)
        except TaskFailed as error:
            return Verdict(False, math.nan, str(error))
        largest, reasons = 0.0, dict.fromkeys((True, None), "")
        expected = self._directory / "expected.npz"
        for number, argument in enumerate(self._arguments):
            ours, theirs = self._read(found, number), self._read(expected, number)
            differs = deviation(ours, theirs)
            limit = self._tolerances[number]
            if not differs <= limit and limit:
                # Operations after a sum may amplify its rounding error.
                scales = element_scales(theirs)
                moved = noise(theirs, [self._read(path, number) for path in self._moved_runs()])
                allowed = np.maximum(moved, limit * scales)
                if deviation(ours, theirs, allowed) <= 1.0:
                    limit = math.inf
                    scales = np.where(np.isfinite(allowed), scales, np.inf)
                    differs = deviation(ours, theirs, scales)
            if not differs <= limit:
                return Verdict(
                    False,
                    differs,
                    f"argument {argument.name!r} differs by {differs:.1e} of the scale "
                    f"of its row, where {limit:.1e} is allowed",
                )
            largest = max(largest, differs)
            if argument.name in self._written:
                is_compared, reason = _compared(argument.name, theirs)
                reasons[is_compared] = reasons[is_compared] or reason
        if reasons[None]:
            return Verdict(None, math.nan, f"{reasons[None]}. {self.advice}")
        return Verdict(True, largest, reasons[True] and f"{reasons[True]}. {self.advice}")

    def _read(self, path: Path, number: int) -> np.ndarray:
        argument = self._arguments[number]
        with np.load(path) as content:
            return read_array(content, number, argument.numpy_dtype, argument.shape)

    def _run_untuned(self, out: Path, inputs: Path) -> float:
        library = self._directory / "untuned.so"
        if self._reference is not None:
            return self._run(library, out, runs_on(self._reference), self._run_in_worker, inputs)
        return self._run(library, out, self._device, self._call, inputs)

    def _moved_runs(self) -> list[Path]:
        """Files of the unscheduled kernel's outputs on inputs perturbed by rounding errors."""
        if self._moved is None:
            self._moved = []
            for number, arrays in enumerate(moved_arrays(self._arrays, self._tolerances)):
                inputs = self._directory / f"moved{number}.npz"
                save_arrays(inputs, dict(enumerate(arrays)))
                try:
                    self._run_untuned(inputs, inputs)
                except TaskFailed:
                    continue  # A failed run gives no information.
                self._moved.append(inputs)
        return self._moved

    def _run(
        self,
        library: Path,
        out: Path,
        device: str,
        call: Callable[..., Any],
        inputs: Path | None = None,
    ) -> float:
        """Run a library in a separate process: a wrong library may corrupt later runs."""
        task = (str(library), self._arguments, str(inputs or self._inputs), str(out), device)
        try:
            secs, unwritten = call(RUN_SECS if device == "cpu" else DEVICE_SECS, run_library, *task)
        except TaskFailed as error:
            if error.failure.is_machinery:
                raise CannotCheck(str(error)) from error
            raise
        if unwritten:
            raise CannotCheck(unwritten)
        return float(secs)

    def _call_on_device(self, secs: float, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function where schedules run; retry in a new process if a GPU fails.

        On a CPU a failed run is the schedule's fault. A GPU may fail for other reasons: too little
        memory beside other programs, or an error that another process caused.
        """
        failures: list[str] = []
        while len(failures) < 2:
            try:
                return self._call(secs, function, *arguments)
            except TaskFailed as error:
                if self._device == "cpu" or error.failure.is_machinery:
                    raise
                failures.append(shortened(str(error)))
        raise DeviceFailed(f"the device failed twice: {' and '.join(dict.fromkeys(failures))}")

    def time(self, libraries: Mapping[str, Path]) -> dict[str, KernelTime]:
        """Time schedules in several processes, in a rotating order.

        Raises ``CannotCheck`` if a schedule ends its process or the machine is at fault, and
        ``DeviceFailed`` if a GPU is at fault.
        """
        names = list(libraries)
        limit = RUN_SECS if self._device == "cpu" else DEVICE_SECS * len(names)
        rounds = []
        for number in range(ROUNDS):
            turn = names[number % len(names) :] + names[: number % len(names)]
            paths = [str(libraries[name]) for name in turn]
            task = (paths, self._arguments, str(self._inputs), self._device)
            try:
                secs = self._call_on_device(limit, time_libraries, *task)
                rounds.append(dict(zip(turn, secs, strict=True)))
            except TaskFailed as error:
                is_crash = error.failure.kind == "crash"
                raise CannotCheck(f"timing them: {error}", is_crash) from error
        return {name: KernelTime.of([one[name] for one in rounds]) for name in names}


def verifying_pool(target: Target | None = None) -> WorkerPool:
    """Make the pool of a ``Verifier``, with one worker because timings must not overlap."""
    is_cpu = target is None or runs_on(target) == "cpu"
    return WorkerPool(1, prepare=prepare_to_time if is_cpu else partial(prepare_to_build, target))


def _build(mod: str, target: str, path: str) -> None:
    build_scheduled(load_json(mod), load_json(target)).export_library(path)


def _compared(name: str, expected: np.ndarray) -> tuple[bool | None, str]:
    """Return whether an expected output can be compared, and why it or a part of it cannot.

    The first value is True, or None if nothing can be compared.
    """
    finite = np.isfinite(expected.astype(np.float64))
    count = int(finite.size - finite.sum())
    if count == finite.size:
        return None, f"the kernel without a schedule gives no finite number in {name!r}"
    if not expected[finite].any():
        return None, f"the kernel without a schedule gives only 0 in {name!r}"
    return True, f"{count} of the {finite.size} numbers of {name!r} are not finite" if count else ""
