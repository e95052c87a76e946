# SPDX-License-Identifier: Apache-2.0
"""The result of ``tune_kernel``."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import tvm
from tvm.ir import IRModule
from tvm.target import Target

from ...display.state import shown_us
from ...display.tables import html_table, shown_deviation
from ...measure.build import source_of
from ...runtime.library_file import LibraryFile
from ...session.archive import replacing
from ...session.cuda import why_no_device
from ...session.database import workload_hash
from ...session.target import runs_on
from ...session.work_dir import RESULT
from .check.arguments import Argument
from .check.verification import KernelTime
from .errors import KernelError


@dataclass(frozen=True)
class KernelResult:
    """A tuned kernel. Call it with NumPy arrays.

    Parameters
    ----------
    name : str
        The kernel's name.
    arguments : tuple[Argument, ...]
        The kernel's arguments.
    target : Target
        The target.
    mod_before : IRModule
        The unscheduled kernel.
    library : Path
        The shared library of the winner. The result keeps the file open, and runs and exports it
        even if another file has replaced it.
    mod : IRModule
        The winner's scheduled module; ``mod_before`` if no schedule is faster.
    trace : str
        The winner's schedule as Python.
    time : KernelTime
        The winner's time, measured along with the other best schedules in several processes.
    untuned : KernelTime | None
        The time of the unscheduled kernel, in the same processes, or of one call if it is slow.
        None if it takes too long or does not run on the target.
    flop : float
        Arithmetic operations of one call; NaN if TVM cannot count them.
    peak_gflops : float
        The float32 peak of the machine's threads, in GFLOP/s; NaN if unknown.
    is_untuned : bool
        Whether the winner is the unscheduled kernel, because no schedule is faster.
    verified : bool
        Whether the outputs were compared with the outputs of the unscheduled kernel. For a GPU, the
        unscheduled kernel is built for the CPU.
    reason : str
        Why the outputs, or which part of them, could not be compared; empty if all were compared.
    deviation : float
        The largest difference of an output, relative to the scale of its row; see ``deviation``.
    trials : int
        Schedules that this run measured.
    known_trials : int
        Schedules that earlier runs in the directory measured.
    failures : Mapping[str, int]
        Failed schedules of this run, by the first line of the reason.
    wrong : tuple[str, ...]
        The reasons that schedules with a wrong output were refused.
    unchecked : tuple[str, ...]
        The reasons that schedules could not be checked or timed again. These are not the schedules'
        fault: for example a full disk, or a GPU that failed twice.
    why_ended : str
        "trials", "time", "patience", "target", "interrupt", or "converged": the search expects too
        little gain from further trials, or has measured all schedules.
    forecast : str
        The expected gain of further trials; empty if the strategy makes no forecast, nothing was
        left to measure, or this run measured nothing.
    work_dir : Path
        Directory of the database and the library. Another call with it continues the tuning.
    """

    name: str
    arguments: tuple[Argument, ...]
    target: Target
    mod_before: IRModule
    library: Path
    mod: IRModule
    trace: str
    time: KernelTime
    untuned: KernelTime | None
    flop: float
    peak_gflops: float
    is_untuned: bool
    verified: bool
    reason: str
    deviation: float
    trials: int
    known_trials: int
    failures: Mapping[str, int]
    wrong: tuple[str, ...]
    unchecked: tuple[str, ...]
    why_ended: str
    forecast: str
    work_dir: Path
    _file: LibraryFile = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_file", LibraryFile(self.library))

    @property
    def gflops(self) -> float:
        """The kernel's rate in GFLOP/s."""
        return self.flop / self.time.secs / 1e9

    @property
    def _device(self) -> str:
        """TVM's name of the device type that the kernel runs on."""
        return runs_on(self.target)

    def export(self, path: str | os.PathLike[str]) -> None:
        """Write the shared library, for ``tvm.runtime.load_module(path)["main"]``."""
        with replacing(path) as partial:
            self._file.copy(partial)

    def source(self) -> str:
        """Build the module again and return its code: CUDA C++ or LLVM IR."""
        return source_of(self.mod, self.target)

    def __call__(self, *arrays: np.ndarray) -> list[np.ndarray]:
        """Run the kernel on all arguments, outputs included; returns their values after the call.

        Raises ``KernelError`` if the number of arrays or a shape is wrong, or there is no device to
        run on.
        """
        device = self._device
        if device == "cuda" and (reason := why_no_device()):
            raise KernelError(f"{self.name} needs a CUDA device to run on: {reason}")
        if len(arrays) != len(self.arguments):
            names = ", ".join(argument.name for argument in self.arguments)
            raise KernelError(f"{len(arrays)} arrays are given, expected {names}")
        tensors = []
        for array, argument in zip(arrays, self.arguments, strict=True):
            if np.shape(array) != argument.shape:
                raise KernelError(
                    f"{argument.name} has the shape {np.shape(array)}, expected {argument.shape}"
                )
            values = np.asarray(array, dtype=argument.numpy_dtype)
            tensors.append(tvm.runtime.tensor(values, tvm.runtime.device(device, 0)))
        self._file.module["main"](*tensors)
        return [tensor.numpy() for tensor in tensors]

    def keep(self) -> None:
        """Write the result and its schedule as Python to ``result.json`` in its directory."""
        content = {
            **json.loads(self.as_json()),
            "workload": workload_hash(self.mod_before),
            "schedule": self.trace,
        }
        with replacing(self.work_dir / RESULT) as partial:
            partial.write_text(json.dumps(content, indent=1), encoding="utf-8")

    def as_json(self) -> str:
        """The result as JSON: names and numbers, without the module."""
        content: dict[str, Any] = {
            "name": self.name,
            "microseconds": {
                "median": 1e6 * self.time.secs,
                "interval_90": [1e6 * self.time.low, 1e6 * self.time.high],
                "untuned": None if self.untuned is None else 1e6 * self.untuned.secs,
            },
            "gflops": None if self.flop != self.flop else self.gflops,
            "peak_gflops": None if self.peak_gflops != self.peak_gflops else self.peak_gflops,
            "is_untuned": self.is_untuned,
            "verified": self.verified,
            "reason": self.reason,
            "deviation": None if self.deviation != self.deviation else self.deviation,
            "trials": self.trials,
            "known_trials": self.known_trials,
            "failures": dict(self.failures),
            "wrong": list(self.wrong),
            "unchecked": list(self.unchecked),
            "why_ended": self.why_ended,
            "forecast": self.forecast,
            "work_dir": str(self.work_dir),
            "library": str(self.library),
        }
        return json.dumps(content, indent=1)

    def _repr_html_(self) -> str:
        """Return the lines of ``str(result)`` as a table for a notebook."""
        return html_table([[line.strip()] for line in str(self).splitlines()])

    def __str__(self) -> str:
        rate = "" if self.flop != self.flop else f", {self.gflops:.1f} GFLOP/s"
        median, low, high = map(shown_us, (self.time.secs, self.time.low, self.time.high))
        lines = [
            f"{self.name}: {median} us (90%: {low} to {high}){rate}",
            f"  {self.trials} schedules measured, {self.known_trials} known before; ended by "
            f"{self.why_ended}",
        ]
        if self.forecast:
            lines.append(f"  {self.forecast}")
        if self.is_untuned:
            lines.append("  no schedule is faster than the kernel without one, which this is")
        elif self.untuned is not None:
            gain = self.untuned.secs / self.time.secs
            lines.append(
                f"  without a schedule: {shown_us(self.untuned.secs)} us, {gain:.1f} times"
            )
        elif self._device == "cuda":
            lines.append("  the unscheduled kernel does not run on a GPU: no time to compare with")
        for reason, count in self.failures.items():
            lines.append(f"  {count} failed: {reason}")
        lines += [f"  refused: {reason}" for reason in self.wrong]
        lines += [f"  left out: {reason}" for reason in self.unchecked]
        checked = (
            f"checked, outputs differ by {shown_deviation(self.deviation)} of the scale of a row"
        )
        if self.reason:
            checked += f", but {self.reason}"
        lines.append(f"  {checked if self.verified else f'not checked: {self.reason}'}")
        lines.append(f"  {self.library}")
        return "\n".join(lines)
