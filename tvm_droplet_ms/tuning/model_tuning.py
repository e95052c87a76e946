# SPDX-License-Identifier: Apache-2.0
"""One way for a model: prepare, lower, pick, search, choose in the model, check, export."""

import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Literal

import numpy as np

from tvm.s_tir.meta_schedule.measure_callback import MeasureCallback

from ..frontends.imported import ImportedModel
from ..model.half_products import served_note
from ..model.kernels.lowering_passes import register_schedule_rules
from ..runtime.library_info import LibraryInfo
from ..search_strategy.stopping import Stop
from ..session.database import open_database
from ..session.errors import RoundingError, TooLateError, last_line
from ..session.records import mend_torn_end
from ..session.stop import StopRequest
from ..session.work_dir import EXECUTABLE
from .agreement import Agreement, Executable
from .budget.ending import (
    CHOICE_SHARE,
    LEAST_BUILD_SECS,
    MEASURED_SHARE,
    MEASURED_SHARE_ALONE,
    FirstCosts,
    late_note,
    timed_runs,
)
from .check.output_check import OutputCheck
from .choices import ROUNDS, faster_inside, with_winograd
from .compile.compiled_model import CompiledModel
from .compile.description import describe
from .graph_passes import graph_passes
from .held_model import what_is_kept
from .kernel.machine import write_machine
from .kernel_table import begun_kernels, kernel_rows, schedules_as_python, task_secs
from .kernel_tuner import KernelTuner
from .model_kernels import ModelKernels
from .result import KernelRow, Latency, TuneResult, shapes_of
from .run_context import RunContext, RunObserver
from .schedules import MOST, keep_choice, keep_schedules
from .several_shapes.joined_model import OneShape

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ModelOptions:
    """The options of ``tune`` that hold for each of its shapes.

    ``halves``: whether to compute in bfloat16. ``tolerance_in_float32``: the tolerance if that is
    not right, and the model is computed in float32.
    """

    exact: bool
    halves: bool
    tolerance: float
    tolerance_in_float32: float
    callbacks: Sequence[MeasureCallback]
    progress: Callable[[str], None] | Literal["auto"] | None
    patience: int | None
    stop: Stop


@dataclass(frozen=True)
class ReadModel:
    """A model with fixed shapes, the check of its outputs, and its run."""

    imported: ImportedModel
    check: OutputCheck
    context: RunContext


def tune_model(
    model: ReadModel,
    options: ModelOptions,
    stop: StopRequest,
    trials: int | None,
    shape: OneShape | None = None,
) -> TuneResult:
    """Tune a model, or its shape ``shape``; in float32 if it is not right in bfloat16."""
    context, told = model.context, len(model.context.notes)
    try:
        return ModelTuning(model, options, shape).run(stop, trials)
    except RoundingError as error:
        del context.notes[told:]
        context.note(
            f"in bfloat16 the outputs deviate by {error.deviation:.1e}, where the tolerance is "
            f"{model.check.tolerance:.1e}: the model is computed in float32; pass a larger "
            "tolerance (--tolerance) to have it in bfloat16"
        )
        check = replace(model.check, tolerance=options.tolerance_in_float32, is_strict=False)
        again = ModelTuning(replace(model, check=check), replace(options, halves=False), shape)
        return again.run(stop, trials)


@dataclass(frozen=True)
class _Plan:
    """What follows from the first executable.

    - ``tuning``: when to end tuning. ``may_choose``: whether there is time to choose near-best
      schedules inside the model.
    - ``run_secs``: the seconds of a run.
    """

    tuning: StopRequest
    may_choose: bool
    run_secs: float


class ModelTuning:
    """One run of ``tune`` for a model, or for its shape ``shape``."""

    def __init__(
        self, model: ReadModel, options: ModelOptions, shape: OneShape | None = None
    ) -> None:
        observer = RunObserver(
            model.context.directory,
            options.callbacks,
            options.progress,
            options.patience,
            options.stop,
        )
        self._imported, self._check = model.imported, model.check
        self._context = context = replace(model.context, observer=observer)
        self._exact, self._halves = options.exact, options.halves
        self._shape = shape
        self._layouts = None if shape is None else shape.layouts
        self._described: LibraryInfo | None = None
        self._library = context.directory / (EXECUTABLE if shape is None else shape.executable)
        register_schedule_rules()
        for name in mend_torn_end(context.directory):
            context.note(f"the torn last line of {name}, as a killed run leaves it, is cut off")
        self._database = open_database(context.directory)
        suffix = "" if shape is None else shape.suffix
        self._tuner = KernelTuner(context, self._database, suffix=suffix)
        write_machine(context.directory, context.threads)
        passes = graph_passes(context.target, halves=options.halves)
        self._agreement = Agreement(
            model.imported,
            passes,
            model.check,
            self._tuner,
            self._layouts,
            is_rounded=options.halves,
        )

    def run(self, stop: StopRequest, trials: int | None) -> TuneResult:
        """Build a first executable, tune its kernels, build the final one, and describe it.

        Raises ``ModelError`` if the time is too short for a first executable or if the imported
        model disagrees with the reference. Raises ``RuntimeError`` if the written executable
        disagrees with the reference.
        """
        self._tuner.compile_by(stop.deadline)
        try:
            made = self._first(stop)
            plan = self._write_first(made, stop)
            measured_picks = self._measure_picks(made, plan, stop, trials)
            self._agreement.shed(made, self._library)
            unmeasured = "trials" if trials == 0 else "nothing to measure"
            if plan.tuning.is_due:
                unmeasured = "interrupt" if plan.tuning.is_asked else "time"
            chosen, choice = self._choose_algorithms(made, plan.tuning, trials)
            if chosen is not made.kernels:
                self._context.observer.leave_model()
            self._search(chosen, plan.tuning, trials)
            if self._tuner.trials or measured_picks or chosen is not made.kernels:
                chosen = self._write_last(made, chosen, choice, plan, stop)
            runs = timed_runs(plan.run_secs, stop.left)
            self._agreement.shed(made, self._library)
            return self._describe(chosen, runs, self._tuner.why_ended or unmeasured)
        finally:
            self._tuner.close()

    def _first(self, stop: StopRequest) -> Executable:
        """Return the first executable. If it is too late, the error names an earlier run's file."""
        try:
            return self._agreement.first(stop)
        except TooLateError as error:
            raise TooLateError(f"{error}{what_is_kept(self._context.directory)}") from error

    def _write_first(self, made: Executable, stop: StopRequest) -> _Plan:
        """Write the first executable, and plan the time that is left.

        The final executable must be built, checked and timed before the deadline. Only kernels that
        were tuned are recompiled.
        """
        if self._halves:
            self._context.note(served_note(made.graph))
        export_secs = self._keep(made.compiled, made.kernels)
        run_secs = self._latency(made.compiled, 1).median
        logger.info("first executable: %.4g ms", 1e3 * run_secs)
        if stop.over and not stop.is_asked:
            self._context.note(late_note(stop.over))
        costs = FirstCosts(len(made.kernels.tasks), made.build_secs, export_secs, run_secs)
        ending = costs.ending_secs(stop.left)
        choosing = costs.choosing_secs(MOST - 1, ROUNDS)
        may_choose = choosing < CHOICE_SHARE * stop.left
        tuning = stop.earlier(ending + may_choose * choosing)
        return _Plan(tuning, may_choose, run_secs)

    def _measure_picks(
        self, made: Executable, plan: _Plan, end: StopRequest, trials: int | None
    ) -> int:
        """Measure the picks of the kernels that dominate the first executable; return the count.

        The times of the first executable are an event of the run, and the displays show what is
        gained from then on.
        """
        kernels, tuning = made.kernels, plan.tuning
        latency = Latency((plan.run_secs,))
        if tuning.is_due or not kernels.tasks:
            self._tell_first(latency, ())
            return 0
        share = MEASURED_SHARE_ALONE if trials == 0 else MEASURED_SHARE
        stop = tuning.earlier((1 - share) * tuning.left)
        with self._context.phases("check"):
            runs = timed_runs(plan.run_secs, 0.0)
            if runs > 1:
                latency = self._latency(made.compiled, runs)
            found = made.compiled.kernel_secs(self._check.inputs[0], runs)
        rows = self._rows(kernels, found)
        self._tell_first(latency, rows)
        build_secs = max(LEAST_BUILD_SECS, made.build_secs / len(kernels.tasks))
        count = self._tuner.measure_picks(kernels, task_secs(kernels, found), stop, build_secs)
        begun = begun_kernels(kernels, rows, self._database, self._context.target)
        self._context.observer.follow_model(latency.median, begun, end)
        return count

    def _choose_algorithms(
        self, made: Executable, tuning: StopRequest, trials: int | None
    ) -> tuple[ModelKernels, str]:
        """Return the kernels with the faster algorithm of each convolution, and a note on them."""
        kernels = made.kernels
        if self._exact or not kernels.tasks or tuning.is_due:
            return kernels, ""
        chosen, choice = with_winograd(self._tuner, made.graph, kernels, tuning, trials)
        if chosen is kernels and choice:
            self._context.note(choice)
        return chosen, choice

    def _search(self, kernels: ModelKernels, stop: StopRequest, trials: int | None) -> None:
        """Tune the kernels, then again those whose weights other shapes pack differently."""
        if trials == 0 or not kernels.tasks or stop.is_due:
            return
        share = 0.0 if self._layouts is None else self._layouts.share
        left = None if trials is None else max(0, trials - self._tuner.trials)
        most = left if left is None else left - int(share * left)
        if most != 0:
            self._tuner.tune(kernels.tasks, kernels, stop.earlier(share * stop.left), most)
        if self._layouts is not None and not stop.is_due:
            left = None if trials is None else max(0, trials - self._tuner.trials)
            self._layouts.measure(self._tuner, kernels, stop, left)

    def _write_last(
        self,
        made: Executable,
        chosen: ModelKernels,
        choice: str,
        plan: _Plan,
        stop: StopRequest,
    ) -> ModelKernels:
        """Choose in the model, and write the final executable; return its kernels."""
        try:
            if self._layouts is not None:
                self._layouts.choose(chosen)
            chosen, last = self._agreement.last(chosen, made.kernels, made.compiled, stop)
            if last is not made.compiled:
                self._keep(last, chosen)
            if chosen is not made.kernels:
                self._context.note(choice)
            if plan.may_choose and not stop.is_due:
                self._choose_inside(chosen, last)
            return chosen
        except TooLateError as error:
            made.kernels.go_back((), self._agreement.right)
            self._context.note(f"{error}; what was written before is kept")
            return made.kernels

    def _choose_inside(self, kernels: ModelKernels, last: CompiledModel) -> None:
        try:
            with self._context.phases("choice inside the model"):
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
        kept = self._faster_kept(compiled) if kernels.lost else None
        if kept is not None:
            # The library of an earlier version may lack the description.
            kept.export(self._library, self._info(kept))
            note = (
                f"{self._library} stays as it was written before and is faster: schedules of "
                f"{', '.join(sorted(kernels.lost))} could not be compiled in time"
            )
            if note not in self._context.notes:
                self._context.note(note)
            return time.monotonic() - start
        with self._context.phases("export"):
            compiled.export(self._library, self._info(compiled))
            if self._shape is not None and compiled.linked is not None:
                self._shape.keep(compiled.linked)
        return time.monotonic() - start

    def _faster_kept(self, compiled: CompiledModel) -> CompiledModel | None:
        """The executable of the work directory, if it is right and faster."""
        if self._shape is not None or not self._library.exists():
            return None
        # A file of another version of TVM may not load.
        try:
            kept = CompiledModel.load(self._library)
        except Exception as error:
            logger.info("%s does not load: %s", self._library, last_line(error))
            return None
        if not self._agreement.agrees(kept):
            return None
        is_faster = self._latency(kept, 3).median < self._latency(compiled, 3).median
        return kept if is_faster else None

    def _describe(self, kernels: ModelKernels, runs: int, why_ended: str) -> TuneResult:
        """Check and time the written executable."""
        inputs = self._check.inputs[0]
        with self._context.phases("export"):
            last = CompiledModel.load(self._library)
        with self._context.phases("check"):
            deviation = self._check.require(last, self._library, "written")
            for output, steps in self._check.steps_off(last).items():
                self._context.note(
                    f"output {output} is quantized: {np.count_nonzero(steps)} of {steps.size} "
                    f"elements differ from those of {self._check.reference.name}, by at most "
                    f"{int(steps.max(initial=0))} steps"
                )
            rows = self._rows(kernels, last.kernel_secs(inputs, min(5, runs)))
            latency = self._latency(last, runs)
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

    def _rows(
        self, kernels: ModelKernels, secs: Mapping[str, Sequence[float]]
    ) -> tuple[KernelRow, ...]:
        """Describe the kernels by the times of their functions in the model."""
        return kernel_rows(kernels, secs, self._database, self._context.target, self._tuner.rates)

    def _tell_first(self, latency: Latency, rows: Sequence[KernelRow]) -> None:
        """Record the times of the first executable as an event of the run."""
        content = {
            "shapes": shapes_of(self._imported.inputs),
            "milliseconds": latency.milliseconds,
            "kernels": [asdict(row) for row in rows],
        }
        self._context.observer.tell("first", content)

    def _info(self, compiled: CompiledModel) -> LibraryInfo:
        """The description of the library: the same for each executable of the model."""
        if self._described is None:
            inputs, context = self._check.inputs[0], self._context
            self._described = describe(
                compiled, self._imported, inputs, context.target, context.threads
            )
        return self._described

    def _latency(self, compiled: CompiledModel, runs: int) -> Latency:
        timer = compiled.timer(self._check.inputs[0])
        timer()
        return Latency(tuple(timer() for _ in range(runs)))
