# SPDX-License-Identifier: Apache-2.0
"""Executables whose outputs agree with the reference, without steps that change the outputs."""

import logging
import math
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import tvm
from tvm.ir import IRModule
from tvm.s_tir.meta_schedule.database import TuningRecord

from ..frontends.imported import LARGE, ImportedModel
from ..model.bindings import weight_bytes
from ..session.errors import LateKernelsError, ModelError, RoundingError, TooLateError
from ..session.roofline import naive_secs
from ..session.stop import StopRequest
from .budget.ending import GRACE_SECS
from .check.diagnosis import SearchClock, TooLate, first_change, without_wrong_schedules
from .check.judgment import Judgment, remarks
from .check.output_check import OutputCheck
from .compile.compiled_model import CompiledModel
from .graph_passes import NamedPass, guarded
from .kernel_tuner import KernelTuner
from .model_kernels import ModelKernels
from .picks.picks import NAMED
from .schedules import by_workload
from .several_shapes.weight_layouts import WeightLayouts

logger = logging.getLogger(__name__)

AGAIN_SECS = 3.0
"""Kernels that are not compiled this many seconds before the deadline lose their schedules. With
the grace after the deadline, 10 seconds remain to compile them, half of these with plain schedules.
Compiling with schedules always gets at least half of the time."""

PLAIN_SHARE = 0.2
"""The share of the remaining time for making the plain schedules."""

SEARCH_SHARE = 0.5
"""The share of the remaining time for finding the cause of changed outputs."""


@dataclass(frozen=True)
class Executable:
    """An executable, its graph and kernels, and the seconds of compiling it."""

    graph: IRModule
    kernels: ModelKernels
    compiled: CompiledModel
    build_secs: float


class Agreement:
    """Makes executables of a model that agree with its reference.

    If the outputs differ, three causes are tested in this order. First, a float64 run tests for
    rounding and for a wrong import (``Judgment``). Second, if the kernels agree without schedules,
    bisection finds the wrong schedules. Third, bisection finds a wrong graph pass. If the time is
    too short for an answer, all schedules or all passes are left out. A graph pass that raises is
    left out at once (``guarded``). A kernel whose first schedule is not compiled in time gets a
    plain one. ``right``: the schedules of the first executable, by the hash of the workload.
    """

    def __init__(
        self,
        imported: ImportedModel,
        passes: Sequence[NamedPass],
        check: OutputCheck,
        tuner: KernelTuner,
        layouts: WeightLayouts | None = None,
        *,
        is_rounded: bool = False,
    ) -> None:
        self._mod = imported.mod
        self._is_rounded = is_rounded
        self._phases, self._note = tuner.context.phases, tuner.context.note
        self._passes = guarded(passes, self._note)
        self._check = check
        self._tuner = tuner
        self._layouts = layouts
        self._judgment = Judgment(imported.mod, check, imported.locate)
        self.right: dict[int, TuningRecord] = {}
        self._stop = StopRequest()

    def first(self, stop: StopRequest) -> Executable:
        """Prepare and build a model, without passes or schedules that change the outputs.

        Raises ``ModelError`` if TVM's import disagrees with the reference, or if the time is too
        short to find an executable whose outputs agree. Raises ``RoundingError`` if a bfloat16
        model does not agree.
        """
        skipped: list[str] = []
        self._stop = stop
        made = self._make(skipped)
        if self._is_rounded:
            off = self._check.deviation(made.compiled)
            if off > self._check.tolerance:
                raise RoundingError(off, f"the outputs deviate by {off:.1e} in bfloat16")
        while not (self.agrees(made.compiled) or self._is_rounding(made, stop)):
            late = stop.earlier((1 - SEARCH_SHARE) * stop.left)
            with self._phases("search for what changes the outputs"):
                found, name = self._search(made, skipped, SearchClock(late))
            if found is not None:
                made = found
                break
            skipped.append(name)
            self._note(f"the graph pass {name} changed the outputs and was left out")
            made = self._make_or_leave(made, skipped)
        self.right = by_workload(made.kernels.schedules())
        self._check.reference.release()
        for text in remarks(self._check):
            self._note(text)
        return made

    def last(
        self, chosen: ModelKernels, direct: ModelKernels, first: CompiledModel, stop: StopRequest
    ) -> tuple[ModelKernels, CompiledModel]:
        """Return the kernels with measured schedules, and an executable whose outputs agree.

        ``direct``: the kernels without Winograd convolutions. ``first``: their first executable,
        which is returned if no other one agrees.
        """
        if chosen is not direct:
            why = (
                "the model with Winograd convolutions gave other outputs than the tolerance "
                f"{self._check.tolerance:.1e} allows"
            )
            try:
                last = self._compile(chosen, self._stop.deadline + GRACE_SECS)
                if self.agrees(last):
                    return chosen, last
            except LateKernelsError as error:
                why = f"the compiler refused {error.names[0]}"
            self._note(f"{why}: all convolutions are computed directly")
        last = self._compile_last(direct)
        if self.agrees(last):
            self._check.reference.release()
            return direct, last
        with self._phases("search for what changes the outputs"):
            found = without_wrong_schedules(
                direct, self._check, SearchClock(stop), self._note, self.right
            )
        if found is not None:
            return direct, found
        self._note("the tuned model gave other outputs: the first executable is kept")
        direct.chosen = dict(self.right)
        return direct, first

    def shed(self, made: Executable, library: Path) -> None:
        """Drop a large model's weights in memory; ``library`` is read when they are needed."""
        if self._layouts is None and weight_bytes(self._mod["main"]) >= LARGE:
            made.compiled.shed(library)
            made.kernels.forget_weights()
            self._check.reference.release()

    def agrees(self, compiled: CompiledModel) -> bool:
        """Return whether the outputs agree with the reference."""
        with self._phases("check"):
            return self._check.agrees(compiled)

    def _compile(self, kernels: ModelKernels, late_at: float = math.inf) -> CompiledModel:
        with self._phases("compile"):
            return kernels.compile(late_at=late_at)

    def _compile_last(self, kernels: ModelKernels) -> CompiledModel:
        """Compile the measured schedules; refused or late kernels get their first ones back."""
        try:
            return self._compile(kernels, self._stop.deadline + GRACE_SECS)
        except LateKernelsError as error:
            kept = kernels.go_back(error.names, self.right)
            self._note(f"{_refused(kept)}: they have the schedules that the run began with")
            return self._compile(kernels)

    def _make(self, skipped: Collection[str]) -> Executable:
        """Prepare the graph, lower it to kernels, pick their schedules, and compile them."""
        steps = [step for name, step in self._passes if name not in skipped]
        with self._phases("graph"):
            graph = tvm.transform.Sequential(steps)(self._mod)
        kernels = self._tuner.kernels(graph)
        calls = [int(task.weight) for task in kernels.tasks]
        logger.info("%d kernels, %d calls", len(calls), sum(calls))
        self._tuner.pick(kernels, self._stop)
        if self._layouts is not None:
            self._layouts.choose(kernels)
        start, deadline = time.monotonic(), self._stop.deadline
        late_at = max(deadline - AGAIN_SECS, (start + deadline + GRACE_SECS) / 2)
        try:
            compiled = self._compile(kernels, late_at)
        except LateKernelsError as error:
            compiled = self._compile_plain(kernels, error.names)
        return Executable(graph, kernels, compiled, time.monotonic() - start)

    def _compile_plain(self, kernels: ModelKernels, names: Collection[str]) -> CompiledModel:
        """Compile with plain schedules for some functions, or without any if that fails too."""
        start = time.monotonic()
        secs = self._stop.deadline + GRACE_SECS - start
        plain, left = kernels.go_plain(names, start + PLAIN_SHARE * secs)
        if plain:
            self._note(f"{_refused(plain)}: they have plain ones")
        if left:
            self._note(f"{_refused(left)}: they were left")
        try:
            return self._compile(kernels, start + secs / 2)
        except LateKernelsError as error:
            self._note(f"{_refused(kernels.leave(error.names))}: they were left")
            return self._compile(kernels)

    def _is_rounding(self, made: Executable, stop: StopRequest) -> bool:
        """Return whether the difference is rounding, according to ``Judgment``.

        This also runs after Ctrl-C, and after the deadline if it ends within the grace: an existing
        executable is worth more than another one that must be compiled.
        """
        if naive_secs(made.kernels.tasks) > stop.left + GRACE_SECS:
            raise self._too_late(made.compiled)
        stop = StopRequest(stop.deadline + GRACE_SECS - made.build_secs)
        if stop.is_due:
            return False
        with self._phases("check"):
            try:
                may_agree = self._judgment.ask(made.kernels, made.compiled, stop)
            except TooLateError:
                raise self._too_late(made.compiled) from None
            return may_agree and self._check.agrees(made.compiled)

    def _search(
        self, made: Executable, skipped: Sequence[str], clock: SearchClock
    ) -> tuple[Executable | None, str]:
        """Return an executable that agrees, or the name of a pass that changes the outputs."""
        found = without_wrong_schedules(made.kernels, self._check, clock, self._note)
        if found is not None:
            return Executable(made.graph, made.kernels, found, made.build_secs), ""
        try:
            name = self._wrong_pass(made.kernels, skipped, clock)
        except TooLate:
            self._note(
                "the graph passes gave other outputs: all are left out, because the time was too "
                "short to find which"
            )
            plain = self._make_or_leave(made, [name for name, _ in self._passes])
            return plain if self.agrees(plain.compiled) else self._untouched(made), ""
        if name:
            return None, name
        self._note("the kernels gave other outputs: those of TVM are taken, without schedules")
        return self._untouched(made), ""

    def _make_or_leave(self, before: Executable, skipped: Collection[str]) -> Executable:
        """Return the model without some passes, or the untouched import after a ``ModelError``."""
        try:
            return self._make(skipped)
        except ModelError as error:
            logger.info("%s", error)
            return self._untouched(before)

    def _untouched(self, made: Executable) -> Executable:
        kernels = made.kernels.reference(self._mod)
        start = time.monotonic()
        compiled = self._compile(kernels)
        if not self.agrees(compiled):
            raise self._too_late(compiled)
        return Executable(self._mod, kernels, compiled, time.monotonic() - start)

    def _too_late(self, compiled: CompiledModel) -> ModelError:
        return ModelError(
            f"the outputs differ from those of {self._check.reference.name} by "
            f"{self._check.deviation(compiled):.1e} of the scale of their row, and the time is too "
            "short to find out why: pass a larger time_budget_s (--minutes)"
        )

    def _wrong_pass(
        self, kernels: ModelKernels, skipped: Collection[str], clock: SearchClock
    ) -> str:
        """Return the pass that changes the outputs; empty if there is none."""
        passes = [(name, step) for name, step in self._passes if name not in skipped]

        def agrees(count: int) -> bool:
            with clock.step():
                steps = [step for _, step in passes[:count]]
                graph = tvm.transform.Sequential(steps)(self._mod)
                return self._check.agrees(kernels.reference(graph).compile())

        if agrees(len(passes)):
            return ""
        return passes[first_change(len(passes), agrees)][0]


def _refused(names: Sequence[str]) -> str:
    """Return the start of a sentence about kernels whose schedules could not be compiled."""
    others = f" and {len(names) - NAMED} others" if len(names) > NAMED else ""
    shown = ", ".join(names[:NAMED]) + others
    return f"the compiler took too long for the schedules of {shown}, or refused them"
