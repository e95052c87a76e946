# SPDX-License-Identifier: Apache-2.0
"""One way for a model: prepare, lower, pick, search, choose in the model, check, export."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Literal

from tvm.s_tir.meta_schedule.measure_callback import MeasureCallback

from ..frontends.imported import ImportedModel
from ..model.half_products import served_note
from ..model.kernels.lowering_passes import register_schedule_rules
from ..search_strategy.stopping import Stop
from ..session.database import open_database
from ..session.errors import RoundingError, TooLateError, last_line
from ..session.records import mend_torn_end
from ..session.stop import StopRequest
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
from .graph_passes import graph_passes
from .held_model import what_is_kept
from .kept_library import KeptLibrary
from .kernel.machine import write_machine
from .kernel_table import begun_kernels, task_secs
from .kernel_tuner import KernelTuner
from .model_kernels import ModelKernels
from .result import KernelRow, Latency, TuneResult, shapes_of
from .run_context import RunContext, RunObserver
from .schedules import MOST, keep_choice
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
        self._layouts = None if shape is None else shape.layouts
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
        self._library = KeptLibrary(
            model.imported, model.check, self._tuner, self._agreement, shape
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
            self._agreement.shed(made, self._library.path)
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
            self._agreement.shed(made, self._library.path)
            return self._library.result(chosen, runs, self._tuner.why_ended or unmeasured)
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
        export_secs = self._library.keep(made.compiled, made.kernels)
        run_secs = self._library.latency(made.compiled, 1).median
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
                latency = self._library.latency(made.compiled, runs)
            found = made.compiled.kernel_secs(self._check.inputs[0], runs)
        rows = self._library.rows(kernels, found)
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
                self._library.keep(last, chosen)
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
            self._library.keep(faster[0], kernels)
            kernels.preferred.update(faster[1])
            keep_choice(self._context.directory, faster[1])

    def _tell_first(self, latency: Latency, rows: Sequence[KernelRow]) -> None:
        """Record the times of the first executable as an event of the run."""
        content = {
            "shapes": shapes_of(self._imported.inputs),
            "milliseconds": latency.milliseconds,
            "kernels": [asdict(row) for row in rows],
        }
        self._context.observer.tell("first", content)
