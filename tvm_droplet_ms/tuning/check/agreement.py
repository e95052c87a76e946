# SPDX-License-Identifier: Apache-2.0
"""Executables whose outputs agree with the reference, without steps that change the outputs."""

import logging
import math
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial

import tvm
from tvm.ir import IRModule
from tvm.ir.transform import Pass
from tvm.s_tir.meta_schedule.database import TuningRecord

from ...frontends.imported import Locate
from ...session.errors import LateKernelsError, ModelError, RoundingError, TooLateError
from ...session.roofline import naive_secs
from ...session.stop import StopRequest
from ..budget.ending import GRACE_SECS
from ..compile.compiled_model import CompiledModel
from ..compile.lowering import lower
from ..model_kernels import ModelKernels
from ..parts import Parts
from ..picks.picks import NAMED
from ..schedules import by_workload
from .diagnosis import SearchClock, TooLate, first_change, without_wrong_schedules
from .guarded_passes import NamedPass, guarded
from .judgment import Judgment, remarks
from .output_check import OutputCheck

logger = logging.getLogger(__name__)

Prepare = Callable[[Sequence[Pass]], tuple[IRModule, ModelKernels]]
"""Apply passes to the imported module; return the graph, and its kernels with schedules."""

AGAIN_SECS = 3.0
"""Kernels that are not compiled this many seconds before the deadline lose their schedules. With
the grace after the deadline, 10 seconds remain to compile them without schedules. Compiling with
schedules always gets at least half of the time."""

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
    left out at once (``guarded``), and so is the first schedule of a kernel that is not compiled in
    time.
    """

    def __init__(
        self,
        mod: IRModule,
        passes: Sequence[NamedPass],
        check: OutputCheck,
        parts: Parts,
        note: Callable[[str], None],
        *,
        locate: Locate | None = None,
        is_rounded: bool = False,
    ) -> None:
        self._mod = mod
        self._is_rounded = is_rounded
        self._passes = guarded(passes, note)
        self._check = check
        self._parts = parts
        self._note = note
        self._judgment = Judgment(mod, check, locate)
        self._right: dict[int, TuningRecord] = {}
        self._deadline = math.inf

    def first(self, prepare: Prepare, stop: StopRequest) -> Executable:
        """Prepare and build a model, without passes or schedules that change the outputs.

        Raises ``ModelError`` if TVM's import disagrees with the reference, or if the time is too
        short to find an executable whose outputs agree. Raises ``RoundingError`` if a bfloat16
        model does not agree.
        """
        skipped: list[str] = []
        self._deadline = stop.deadline
        made = self._make(prepare, skipped)
        if self._is_rounded:
            off = self._check.deviation(made.compiled)
            if off > self._check.tolerance:
                raise RoundingError(off, f"the outputs deviate by {off:.1e} in bfloat16")
        while not (self.agrees(made.compiled) or self._is_rounding(made, stop)):
            late = stop.earlier((1 - SEARCH_SHARE) * stop.left)
            with self._parts("search for what changes the outputs"):
                found, name = self._search(made, prepare, skipped, SearchClock(late))
            if found is not None:
                made = found
                break
            skipped.append(name)
            self._note(f"the graph pass {name} changed the outputs and was left out")
            made = self._make_or_leave(made, prepare, skipped)
        self._right = by_workload(made.kernels.schedules())
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
                last = self._compile(chosen, self._deadline + GRACE_SECS)
                if self.agrees(last):
                    return chosen, last
            except LateKernelsError as error:
                why = f"the compiler refused {error.names[0]}"
            self._note(f"{why}: all convolutions are computed directly")
        last = self._compile_last(direct)
        if self.agrees(last):
            return direct, last
        with self._parts("search for what changes the outputs"):
            found = without_wrong_schedules(
                direct, self._check, SearchClock(stop), self._note, self._right
            )
        if found is not None:
            return direct, found
        self._note("the tuned model gave other outputs: the first executable is kept")
        direct.chosen = dict(self._right)
        return direct, first

    def agrees(self, compiled: CompiledModel) -> bool:
        """Return whether the outputs agree with the reference."""
        with self._parts("check"):
            return self._check.agrees(compiled)

    def _compile(self, kernels: ModelKernels, late_at: float = math.inf) -> CompiledModel:
        with self._parts("compile"):
            return kernels.compile(late_at=late_at)

    def _compile_last(self, kernels: ModelKernels) -> CompiledModel:
        """Compile the measured schedules; refused or late kernels get their first ones back."""
        try:
            return self._compile(kernels, self._deadline + GRACE_SECS)
        except LateKernelsError as error:
            kept = kernels.go_back(error.names, self._right)
            self._note(f"{_refused(kept)}: they have the schedules that the run began with")
            return self._compile(kernels)

    def _make(self, prepare: Prepare, skipped: Collection[str]) -> Executable:
        graph, kernels = prepare([step for name, step in self._passes if name not in skipped])
        start = time.monotonic()
        try:
            compiled = self._compile(kernels, _late_at(self._deadline))
        except LateKernelsError as error:
            self._note(f"{_refused(kernels.leave(error.names))}: they were left")
            compiled = self._compile(kernels)
        return Executable(graph, kernels, compiled, time.monotonic() - start)

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
        with self._parts("check"):
            try:
                may_agree = self._judgment.ask(made.kernels, made.compiled, stop)
            except TooLateError:
                raise self._too_late(made.compiled) from None
            return may_agree and self._check.agrees(made.compiled)

    def _search(
        self, made: Executable, prepare: Prepare, skipped: Sequence[str], clock: SearchClock
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
            return self._without_passes(made, prepare), ""
        if name:
            return None, name
        self._note("the kernels gave other outputs: those of TVM are taken, without schedules")
        return self._untouched(made), ""

    def _without_passes(self, made: Executable, prepare: Prepare) -> Executable:
        """Return the import without passes: with schedules if that agrees, otherwise untouched."""
        plain = self._make_or_leave(made, prepare, [name for name, _ in self._passes])
        return plain if self.agrees(plain.compiled) else self._untouched(made)

    def _make_or_leave(
        self, before: Executable, prepare: Prepare, skipped: Collection[str]
    ) -> Executable:
        """Return the model without some passes, or the untouched import after a ``ModelError``."""
        try:
            return self._make(prepare, skipped)
        except ModelError as error:
            logger.info("%s", error)
            return self._untouched(before)

    def _untouched(self, made: Executable) -> Executable:
        kernels = made.kernels.variant(self._mod, partial(lower, is_reference=True))
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
                plain = kernels.variant(graph, partial(lower, is_reference=True))
                return self._check.agrees(plain.compile())

        if agrees(len(passes)):
            return ""
        return passes[first_change(len(passes), agrees)][0]


def _late_at(deadline: float) -> float:
    now = time.monotonic()
    return max(deadline - AGAIN_SECS, (now + deadline + GRACE_SECS) / 2)


def _refused(names: Sequence[str]) -> str:
    """Return the start of a sentence about kernels whose schedules could not be compiled."""
    others = f" and {len(names) - NAMED} others" if len(names) > NAMED else ""
    shown = ", ".join(names[:NAMED]) + others
    return f"the compiler took too long for the schedules of {shown}, or refused them"
