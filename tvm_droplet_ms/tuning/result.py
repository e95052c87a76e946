# SPDX-License-Identifier: Apache-2.0
"""The result of ``tune``."""

import json
import math
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from tvm.target import Target

from ..display.tables import html_table, shown_deviation, shown_share
from ..frontends.imported import Arrays, InputSpec
from ..measure.turns import quartiles, time_in_alternation
from ..runtime import InferenceSession, SessionError
from ..runtime.library_info import LibraryInfo
from ..session.errors import ModelError, first_line
from .budget.outlook import Outlook, outlook
from .check.output_check import OutputCheck
from .compile.compiled_model import CompiledModel

MOST_ROWS = 12
"""The maximum number of kernels with a line of their own in a summary."""


@dataclass(frozen=True)
class KernelRow:
    """A kernel of the tuned model.

    Parameters
    ----------
    name : str
        Name of the TIR function.
    weight : int
        Number of its calls in one run of the model.
    secs : float
        Total seconds of its calls in one run, measured inside the model; the median over runs.
    gflops : float
        Rate in GFLOP/s: the operations that the model defines, over ``secs``. Winograd's algorithm
        executes fewer operations, but counts as the direct convolution.
    roofline_share : float
        The minimum seconds that this core needs for its arithmetic and memory traffic, over
        ``secs``. The machine rates are measured when the run begins, so a kernel may be slightly
        above 1; ``summary`` shows that as ">=100%".
    trials : int
        Number of its measured schedules, in this run and in earlier runs of the directory.
    schedule : str
        Origin of its schedule: "measured", which includes the measured first picks; "predicted" by
        the cost model alone; or "untouched", even if that was measured as the fastest.
    workload : str
        Structural hash of its workload, as in the database of the work directory.
    """

    name: str
    weight: int
    secs: float
    gflops: float
    roofline_share: float
    trials: int
    schedule: str
    workload: str = ""


@dataclass(frozen=True)
class Latency:
    """The latency of a whole model. ``secs``: seconds of single runs."""

    secs: tuple[float, ...]

    @property
    def quartiles(self) -> tuple[float, float, float]:
        """The lower quartile, the median and the upper quartile in seconds."""
        return quartiles(self.secs)

    @property
    def median(self) -> float:
        """The median in seconds."""
        return self.quartiles[1]

    @property
    def milliseconds(self) -> dict[str, Any]:
        """The median and the quartiles in milliseconds, for JSON."""
        low, middle, high = (1e3 * secs for secs in self.quartiles)
        return {"median": middle, "quartiles": [low, high]}

    def __str__(self) -> str:
        low, middle, high = (1e3 * secs for secs in self.quartiles)
        return f"{middle:.4g} ms ({low:.4g} to {high:.4g})"


@dataclass(frozen=True, repr=False)
class TuneResult:
    """A tuned model, callable with NumPy arrays.

    Parameters
    ----------
    compiled : CompiledModel
        The compiled model on this machine.
    inputs : tuple[InputSpec, ...]
        Its inputs.
    target : Target
        The compilation target.
    threads : int
        Number of threads used for tuning, checking and timing.
    latency : Latency
        Times of single runs.
    deviation : float
        The largest difference from the reference over several random inputs, relative to the scale
        of its row; see ``OutputCheck.deviation``.
    check : OutputCheck
        The check against the reference.
    kernels : tuple[KernelRow, ...]
        The kernels, the slowest first.
    trials : int
        Number of schedules that this run measured.
    why_ended : str
        Why measuring ended: "time", "trials", "interrupt", "patience", "converged", or "nothing to
        measure".
    failures : Mapping[str, int]
        Number of failed schedules of this run by kind: "build", "run", "timeout" or "machinery".
    schedules : Mapping[str, str]
        Schedules as Python, by kernel name; see ``schedule``.
    secs_of : Mapping[str, float]
        Seconds of the run's parts.
    work_dir : Path
        Directory of the database and the executable. Another call with it continues the tuning.
    info : LibraryInfo
        The description of the library: names, types and shapes of inputs and outputs.
    notes : tuple[str, ...]
        Notes for the user, such as kernels without a schedule or schedules dropped for a mismatch.
    """

    compiled: CompiledModel
    inputs: tuple[InputSpec, ...]
    target: Target
    threads: int
    latency: Latency
    deviation: float
    check: OutputCheck
    kernels: tuple[KernelRow, ...]
    trials: int
    why_ended: str
    failures: Mapping[str, int]
    schedules: Mapping[str, str]
    secs_of: Mapping[str, float]
    work_dir: Path
    info: LibraryInfo
    notes: tuple[str, ...] = field(default=())

    def __repr__(self) -> str:
        """Return one line: the fields hold weights, schedules and the outputs of the check."""
        return (
            f"{type(self).__name__}({self.latency}, {self.trials} trials, "
            f"deviation {shown_deviation(self.deviation)}, work_dir={os.fspath(self.work_dir)!r})"
        )

    @property
    def shown_inputs(self) -> str:
        """The names and shapes of the inputs as text."""
        return ", ".join(f"{spec.name} {spec.shape}" for spec in self.inputs)

    def _repr_html_(self) -> str:
        """Return the summary as tables for a notebook."""
        return html_table(self.facts()) + html_table(self.kernel_cells())

    def facts(self) -> list[tuple[str, str]]:
        """Return the lines of the summary, each with its name: the latency, then the others."""
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(self.failures.items()))
        ending = f", ended by {self.why_ended}" + (f"; failed: {kinds}" if kinds else "")
        deviation, reference = shown_deviation(self.deviation), self.check.reference.name
        return [
            ("latency", f"{self.latency} on {self.threads} thread(s)"),
            ("deviation", f"{deviation} of the scale of its row, from {reference}"),
            ("trials", f"{self.trials}{ending}"),
            ("outlook", f"{self.outlook}"),
            ("work_dir", f"{self.work_dir}"),
            *(("note", note) for note in self.notes),
        ]

    def kernel_cells(self) -> list[tuple[str, ...]]:
        """Return the cells of the summary's table of kernels, the header first."""
        header = ("kernel", "calls", "ms", "GFLOP/s", "of roofline", "trials", "schedule")
        rows = [
            (
                row.name,
                str(row.weight),
                f"{1e3 * row.secs:.3f}",
                f"{row.gflops:.1f}",
                shown_share(row.roofline_share),
                str(row.trials),
                row.schedule,
            )
            for row in self.kernels[:MOST_ROWS]
        ]
        rest = self.kernels[MOST_ROWS:]
        if rest:
            others = (f"{len(rest)} others", str(sum(row.weight for row in rest)))
            secs = f"{1e3 * sum(row.secs for row in rest):.3f}"
            rows.append((*others, secs, "", "", str(sum(row.trials for row in rest)), ""))
        return [header, *rows]

    @property
    def executable(self) -> Any:
        """The ``relax.VMExecutable``, for ``relax.VirtualMachine``."""
        return self.compiled.executable

    @property
    def each_shape(self) -> tuple["TuneResult", ...]:
        """The result for each tuned shape; only this one if there is a single shape."""
        return (self,)

    @property
    def outlook(self) -> Outlook:
        """The expected gain of another minute of tuning."""
        tunable = [row for row in self.kernels if row.trials or row.schedule != "untouched"]
        return outlook(tunable, math.fsum(row.secs for row in self.kernels))

    def __call__(self, *arrays: np.ndarray, **named: np.ndarray) -> np.ndarray | Arrays:
        """Run the model.

        ``*arrays``, ``**named``: the inputs by position or by name. Returns the output, or a list
        if there are several. Raises ``ModelError`` if an input is missing or unknown, or the model
        was not tuned for the shape of one.
        """
        given = in_order([spec.name for spec in self.inputs], arrays, named)
        try:
            outputs = self.session(typed(self.inputs, given))
        except SessionError as error:
            raise ModelError(str(error)) from error
        found: np.ndarray | Arrays = outputs[0] if len(outputs) == 1 else outputs
        return found

    def export(self, path: str | os.PathLike[str]) -> None:
        """Write the executable as a shared library, for ``InferenceSession(path)``.

        Parameters
        ----------
        path : str | os.PathLike[str]
            The file, such as ``model.so``. It appears only when it is complete.
        """
        self.compiled.export(path, self.info)

    def schedule(self, kernel: str) -> str:
        """Return the schedule of a kernel as replayable Python.

        Parameters
        ----------
        kernel : str
            The kernel name, as in ``kernels``.

        Raises
        ------
        ModelError
            If there is no such kernel, or it is untouched.
        """
        if kernel not in self.schedules:
            raise ModelError(
                f"{kernel!r} is no scheduled kernel: expected one of {', '.join(self.schedules)}"
            )
        return self.schedules[kernel]

    def as_json(self) -> str:
        """Return the result as JSON: names and numbers, without the model."""
        content = {
            "milliseconds": self.latency.milliseconds,
            "shapes": shapes_of(self.inputs),
            "threads": self.threads,
            "deviation": self.deviation,
            "reference": self.check.reference.name,
            "trials": self.trials,
            "why_ended": self.why_ended,
            "outlook": asdict(self.outlook),
            "failures": dict(self.failures),
            "kernels": [asdict(row) for row in self.kernels],
            "seconds": dict(self.secs_of),
            "work_dir": str(self.work_dir),
            "notes": list(self.notes),
        }
        return json.dumps(content, indent=1)

    def beside_reference(self, rounds: int = 15) -> dict[str, Latency]:
        """Time the model and its reference in alternation.

        Parameters
        ----------
        rounds : int
            Runs of each.

        Returns
        -------
        latencies : dict[str, Latency]
            The latency of the model under "tuned", and of the reference under its name.

        Raises
        ------
        ModelError
            If the reference cannot run the model with its fastest settings.
        """
        inputs = self.check.inputs[0]
        reference = self.check.reference
        run = reference.fastest or reference.run
        # ONNX Runtime raises about a dozen error classes.
        try:
            run(inputs)
        except Exception as error:
            raise ModelError(
                f"{reference.name} cannot run the model with its optimizations, so that there is "
                f"no time to compare with: {first_line(error)}"
            ) from error

        def run_reference() -> float:
            start = time.perf_counter()
            run(inputs)
            return time.perf_counter() - start

        timers = {"tuned": self.compiled.timer(inputs), reference.name: run_reference}
        secs = time_in_alternation(timers, rounds, rests=self.threads > 1)
        return {name: Latency(tuple(runs)) for name, runs in secs.items()}

    @cached_property
    def session(self) -> InferenceSession:
        """The model as an ``InferenceSession``, which `result` calls."""
        return InferenceSession.of_module(self.executable.mod, self.info, self.threads)


def shapes_of(inputs: Sequence[InputSpec]) -> dict[str, list[int]]:
    """Return the shapes of inputs by name, for JSON."""
    return {spec.name: list(spec.shape) for spec in inputs}


def typed(inputs: Sequence[InputSpec], given: Sequence[np.ndarray]) -> Arrays:
    """Convert values of inputs to their types."""
    pairs = zip(inputs, given, strict=True)
    return [np.asarray(array, dtype=spec.dtype) for spec, array in pairs]


def in_order(
    names: Sequence[str], arrays: Sequence[np.ndarray], named: Mapping[str, np.ndarray]
) -> list[np.ndarray]:
    """Return the inputs in order. Raises ``ModelError`` unless each name is given exactly once."""
    given = dict(zip(names, arrays, strict=False)) | dict(named)
    if len(arrays) + len(named) != len(names) or set(given) != set(names):
        raise ModelError(
            f"{len(arrays)} inputs by position and {', '.join(named) or 'none'} by name: "
            f"expected {', '.join(names)}"
        )
    return [given[name] for name in names]
