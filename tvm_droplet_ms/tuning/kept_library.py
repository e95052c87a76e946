# SPDX-License-Identifier: Apache-2.0
"""The library of a run on disk: written, described, checked and timed."""

import json
import logging
import time
from collections.abc import Mapping, Sequence

import numpy as np

from ..frontends.imported import ImportedModel
from ..runtime.library_info import LibraryInfo
from ..session.errors import last_line
from ..session.work_dir import EXECUTABLE
from .agreement import Agreement
from .check.output_check import OutputCheck
from .compile.compiled_model import CompiledModel
from .compile.description import describe
from .kernel_table import kernel_rows, schedules_as_python
from .kernel_tuner import KernelTuner
from .model_kernels import ModelKernels
from .result import KernelRow, Latency, TuneResult
from .schedules import keep_schedules
from .several_shapes.joined_model import OneShape

logger = logging.getLogger(__name__)


class KeptLibrary:
    """The library of a model, or of its shape ``shape``. ``path``: its file."""

    def __init__(
        self,
        imported: ImportedModel,
        check: OutputCheck,
        tuner: KernelTuner,
        agreement: Agreement,
        shape: OneShape | None,
    ) -> None:
        self._imported, self._check, self._shape = imported, check, shape
        self._tuner, self._agreement, self._context = tuner, agreement, tuner.context
        self._described: LibraryInfo | None = None
        name = EXECUTABLE if shape is None else shape.executable
        self.path = self._context.directory / name

    def keep(self, compiled: CompiledModel, kernels: ModelKernels) -> float:
        """Write the executable of the work directory; return the seconds taken."""
        start = time.monotonic()
        kept = self._faster_kept(compiled) if kernels.lost else None
        if kept is not None:
            # The library of an earlier version may lack the description.
            kept.export(self.path, self._info(kept))
            note = (
                f"{self.path} stays as it was written before and is faster: schedules of "
                f"{', '.join(sorted(kernels.lost))} could not be compiled in time"
            )
            if note not in self._context.notes:
                self._context.note(note)
            return time.monotonic() - start
        with self._context.phases("export"):
            compiled.export(self.path, self._info(compiled))
            if self._shape is not None and compiled.linked is not None:
                self._shape.keep(compiled.linked)
        return time.monotonic() - start

    def _faster_kept(self, compiled: CompiledModel) -> CompiledModel | None:
        """The executable of the work directory, if it is right and faster."""
        if self._shape is not None or not self.path.exists():
            return None
        # A file of another version of TVM may not load.
        try:
            kept = CompiledModel.load(self.path)
        except Exception as error:
            logger.info("%s does not load: %s", self.path, last_line(error))
            return None
        if not self._agreement.agrees(kept):
            return None
        is_faster = self.latency(kept, 3).median < self.latency(compiled, 3).median
        return kept if is_faster else None

    def result(self, kernels: ModelKernels, runs: int, why_ended: str) -> TuneResult:
        """Check and time the written executable, and describe it.

        Raises ``RuntimeError`` if its outputs disagree with those of the reference.
        """
        inputs = self._check.inputs[0]
        with self._context.phases("export"):
            last = CompiledModel.load(self.path)
        with self._context.phases("check"):
            deviation = self._check.require(last, self.path, "written")
            for output, steps in self._check.steps_off(last).items():
                self._context.note(
                    f"output {output} is quantized: {np.count_nonzero(steps)} of {steps.size} "
                    f"elements differ from those of {self._check.reference.name}, by at most "
                    f"{int(steps.max(initial=0))} steps"
                )
            rows = self.rows(kernels, last.kernel_secs(inputs, min(5, runs)))
            latency = self.latency(last, runs)
        result = TuneResult(
            compiled=last,
            inputs=self._imported.inputs,
            target=self._context.target,
            threads=self._context.threads,
            latency=latency,
            deviation=deviation,
            check=self._check,
            kernels=rows,
            trials=self._tuner.trials,
            why_ended=why_ended,
            failures=dict(self._context.observer.failures),
            schedules=schedules_as_python(kernels),
            secs_of=dict(self._context.phases.secs),
            work_dir=self._context.directory,
            info=self._info(last),
            notes=tuple(self._context.notes),
        )
        self._context.observer.tell("result", json.loads(result.as_json()))
        keep_schedules(self._context.directory, result.schedules)
        return result

    def rows(
        self, kernels: ModelKernels, secs: Mapping[str, Sequence[float]]
    ) -> tuple[KernelRow, ...]:
        """Describe the kernels by the times of their functions in the model."""
        return kernel_rows(
            kernels, secs, self._tuner.database, self._context.target, self._tuner.rates
        )

    def _info(self, compiled: CompiledModel) -> LibraryInfo:
        """The description of the library: the same for each executable of the model."""
        if self._described is None:
            inputs, context = self._check.inputs[0], self._context
            self._described = describe(
                compiled, self._imported, inputs, context.target, context.threads
            )
        return self._described

    def latency(self, compiled: CompiledModel, runs: int) -> Latency:
        """Time some runs of an executable, after one that warms up."""
        timer = compiled.timer(self._check.inputs[0])
        timer()
        return Latency(tuple(timer() for _ in range(runs)))
