# SPDX-License-Identifier: Apache-2.0
"""The steps of tuning a model: prepare, build, tune, rebuild, check."""

import logging
import time
from collections.abc import Sequence

import numpy as np

import tvm
from tvm.ir import IRModule
from tvm.ir.transform import Pass

from ..frontends.imported import ImportedModel
from ..model.half_products import served_note
from ..model.kernels.registration import register_schedule_rules
from ..session.database import open_database
from ..session.errors import TooLateError, last_line
from ..session.records import mend_torn_end
from ..session.stop import StopRequest
from ..session.work_dir import EXECUTABLE
from .budget.ending import (
    CHOICE_SHARE,
    LEAST_BUILD_SECS,
    MEASURED_SHARE,
    MEASURED_SHARE_ALONE,
    FirstCosts,
    late_note,
    timed_runs,
)
from .check.agreement import Agreement, Executable
from .check.output_check import OutputCheck
from .choices.inside_model import ROUNDS, faster_inside
from .choices.winograd_tuning import with_winograd
from .compile.compiled_model import CompiledModel
from .graph_passes import graph_passes
from .held_model import what_is_kept
from .kernel_table import kernel_rows, schedules_as_python, task_secs
from .kernel_tuner import KernelTuner
from .model_kernels import ModelKernels
from .result import Latency, TuneResult
from .run_context import RunContext
from .schedules import MOST, keep_choice
from .several_shapes.one_shape import OneShape

logger = logging.getLogger(__name__)


class ModelTuning:
    """One run of ``tune`` for a model or for its shape ``shape``; ``halves``: in bfloat16."""

    def __init__(
        self,
        imported: ImportedModel,
        check: OutputCheck,
        context: RunContext,
        exact: bool,
        *,
        shape: OneShape | None = None,
        halves: bool = False,
    ) -> None:
        self._shape = shape
        self._layouts = None if shape is None else shape.layouts
        self._library = context.directory / (EXECUTABLE if shape is None else shape.executable)
        self._imported = imported
        self._check = check
        self._context = context
        self._exact = exact
        register_schedule_rules()
        for name in mend_torn_end(context.directory):
            context.note(f"the torn last line of {name}, as a killed run leaves it, is cut off")
        self._database = open_database(context.directory)
        suffix = "" if shape is None else shape.suffix
        self._tuner = KernelTuner(context, self._database, suffix=suffix)
        self._agreement = Agreement(
            imported.mod,
            graph_passes(context.target, halves=halves),
            check,
            context.parts,
            context.note,
            locate=imported.locate,
            is_rounded=halves,
        )
        self._halves = halves

    def run(self, stop: StopRequest, trials: int | None) -> TuneResult:
        """Build a first executable, tune its kernels, build the final one, and describe it.

        Raises ``ModelError`` if the time is too short for a first executable or if the imported
        model disagrees with the reference. Raises ``RuntimeError`` if the written executable
        disagrees with the reference.
        """
        self._tuner.compile_by(stop.deadline)
        try:
            return self._run(stop, trials)
        finally:
            self._tuner.close()

    def _run(self, stop: StopRequest, trials: int | None) -> TuneResult:
        made = self._first(stop)
        graph, kernels, first = made.graph, made.kernels, made.compiled
        if self._halves:
            self._context.note(served_note(graph))
        export_secs = self._keep(first, kernels)
        run_secs = self._latency(first, 1).median
        logger.info("first executable: %.4g ms", 1e3 * run_secs)
        if stop.over and not stop.is_asked:
            self._context.note(late_note(stop.over))
        # The final executable must be built, checked and timed before the deadline. Only kernels
        # that were tuned are recompiled.
        costs = FirstCosts(len(kernels.tasks), made.build_secs, export_secs, run_secs)
        ending = costs.ending_secs(stop.left)
        choosing = costs.choosing_secs(MOST - 1, ROUNDS)
        has_time_to_choose = choosing < CHOICE_SHARE * stop.left
        tuning = stop.earlier(ending + has_time_to_choose * choosing)
        share = MEASURED_SHARE_ALONE if trials == 0 else MEASURED_SHARE
        of_first = kernels.schedules()
        measured_picks = self._measure_picks(made, tuning, share, timed_runs(run_secs, 0.0))
        chosen, choice = kernels, ""
        unmeasured = "trials" if trials == 0 else "nothing to measure"
        if tuning.is_due:
            unmeasured = "interrupt" if tuning.is_asked else "time"
        if not self._exact and kernels.tasks and not tuning.is_due:
            chosen, choice = with_winograd(
                self._tuner, graph, kernels, self._context.target, tuning, trials
            )
            if chosen is kernels and choice:
                self._context.note(choice)
        if trials != 0 and kernels.tasks and not tuning.is_due:
            self._search(chosen, tuning, trials)
        if self._tuner.trials or measured_picks or chosen is not kernels:
            try:
                self._choose_layouts(chosen)
                chosen, last = self._agreement.last(chosen, kernels, first, stop)
                if last is not first:
                    self._keep(last, chosen)
                if chosen is not kernels:
                    self._context.note(choice)
                if has_time_to_choose and not stop.is_due:
                    self._choose_inside(chosen, last)
            except TooLateError as error:
                chosen = kernels
                kernels.choose(of_first)
                self._context.note(f"{error}; what was written before is kept")
        runs = timed_runs(run_secs, stop.left)
        return self._describe(chosen, runs, self._tuner.why_ended or unmeasured)

    def _first(self, stop: StopRequest) -> Executable:
        """Return the first executable. If it is too late, the error names an earlier run's file."""
        try:
            return self._agreement.first(lambda passes: self._prepare(passes, stop), stop)
        except TooLateError as error:
            raise TooLateError(f"{error}{what_is_kept(self._context.directory)}") from error

    def _prepare(self, passes: Sequence[Pass], stop: StopRequest) -> tuple[IRModule, ModelKernels]:
        with self._context.parts("graph"):
            graph = tvm.transform.Sequential(passes)(self._imported.mod)
        kernels = self._tuner.kernels(graph)
        calls = [int(task.weight) for task in kernels.tasks]
        logger.info("%d kernels, %d calls", len(calls), sum(calls))
        self._tuner.pick(kernels, stop)
        self._choose_layouts(kernels)
        return graph, kernels

    def _search(self, kernels: ModelKernels, stop: StopRequest, trials: int | None) -> None:
        """Tune the kernels, then again those whose weights other shapes pack differently."""
        share = 0.0 if self._layouts is None else self._layouts.share
        left = None if trials is None else max(0, trials - self._tuner.trials)
        most = left if left is None else left - int(share * left)
        if most != 0:
            self._tuner.tune(kernels.tasks, kernels, stop.earlier(share * stop.left), most)
        if self._layouts is not None and not stop.is_due:
            left = None if trials is None else max(0, trials - self._tuner.trials)
            self._layouts.measure(self._tuner, kernels, stop, left)

    def _choose_layouts(self, kernels: ModelKernels) -> None:
        if self._layouts is not None:
            self._layouts.choose(kernels)

    def _measure_picks(self, made: Executable, tuning: StopRequest, share: float, runs: int) -> int:
        """Measure the picks of the kernels that dominate the first executable; return the count."""
        kernels = made.kernels
        if tuning.is_due or not kernels.tasks:
            return 0
        stop = tuning.earlier((1 - share) * tuning.left)
        with self._context.parts("check"):
            found = made.compiled.kernel_secs(self._check.inputs[0], runs)
        build_secs = max(LEAST_BUILD_SECS, made.build_secs / len(kernels.tasks))
        return self._tuner.measure_picks(kernels, task_secs(kernels, found), stop, build_secs)

    def _choose_inside(self, kernels: ModelKernels, last: CompiledModel) -> None:
        try:
            with self._context.parts("choice inside the model"):
                inputs = self._check.inputs[0]
                faster = faster_inside(kernels, last, self._database, self._context.target, inputs)
        except Exception as error:  # TVM's compiler raises many error types.
            self._context.note(f"{last_line(error)}; schedules were not compared inside the model")
            return
        if faster is not None and self._agreement.agrees(faster[0]):
            self._keep(faster[0], kernels)
            kernels.preferred.update(faster[1])
            keep_choice(self._context.directory, faster[1])

    def _keep(self, compiled: CompiledModel, kernels: ModelKernels) -> float:
        """Write the executable of the work directory; return the seconds taken."""
        start = time.monotonic()
        if kernels.lost and self._is_slower_than_kept(compiled):
            note = (
                f"{self._library} stays as it was written before and is faster: schedules of "
                f"{', '.join(sorted(kernels.lost))} could not be compiled in time"
            )
            if note not in self._context.notes:
                self._context.note(note)
            return time.monotonic() - start
        with self._context.parts("export"):
            compiled.export(self._library)
            if self._shape is not None and compiled.linked is not None:
                self._shape.keep(compiled.linked)
        return time.monotonic() - start

    def _is_slower_than_kept(self, compiled: CompiledModel) -> bool:
        """Return whether the work directory has an executable that is right and faster."""
        if self._shape is not None or not self._library.exists():
            return False
        # A file of another version of TVM may not load.
        try:
            kept = CompiledModel.load(self._library)
        except Exception as error:
            logger.info("%s does not load: %s", self._library, last_line(error))
            return False
        if not self._agreement.agrees(kept):
            return False
        return self._latency(kept, 3).median < self._latency(compiled, 3).median

    def _describe(self, kernels: ModelKernels, runs: int, why_ended: str) -> TuneResult:
        """Check and time the written executable."""
        inputs = self._check.inputs[0]
        with self._context.parts("export"):
            last = CompiledModel.load(self._library)
        with self._context.parts("check"):
            deviation = self._check.deviation(last)
            if deviation > self._check.tolerance:
                raise RuntimeError(
                    f"the outputs of {self._library} differ from "
                    f"{self._check.reference.name} by {deviation:.1e} of its scale, where the "
                    f"same model gave the right ones before it was written: please report the model"
                )
            for output, steps in self._check.steps_off(last).items():
                self._context.note(
                    f"output {output} is quantized: {np.count_nonzero(steps)} of {steps.size} "
                    f"elements differ from those of {self._check.reference.name}, by at most "
                    f"{int(steps.max(initial=0))} steps"
                )
            rows = kernel_rows(
                kernels,
                last.kernel_secs(inputs, min(5, runs)),
                self._database,
                self._context.target,
                self._tuner.rates,
            )
            latency = self._latency(last, runs)
        return TuneResult(
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
            failures=dict(self._tuner.watch.failures),
            schedules=schedules_as_python(kernels),
            secs_of=dict(self._context.parts.secs),
            work_dir=self._context.directory,
            notes=tuple(self._context.notes),
        )

    def _latency(self, compiled: CompiledModel, runs: int) -> Latency:
        timer = compiled.timer(self._check.inputs[0])
        timer()
        return Latency(tuple(timer() for _ in range(runs)))
