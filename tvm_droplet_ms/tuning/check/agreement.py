# SPDX-License-Identifier: Apache-2.0
"""Executables whose outputs agree with the reference, without what changes them."""

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
"""Prepares the imported module with some passes: the graph, and its kernels with schedules."""

AGAIN_SECS = 3.0
"""The seconds before the deadline at which kernels that are not compiled lose their schedules: with
the grace beyond it, there are 10 for compiling them without. Half of the time is always left to the
schedules."""

SEARCH_SHARE = 0.5
"""The share of the time that is left in which what changes the outputs is looked for."""


@dataclass(frozen=True)
class Executable:
    """An executable whose outputs agree, and the seconds that compiling it took."""

    graph: IRModule
    kernels: ModelKernels
    compiled: CompiledModel
    build_secs: float


class Agreement:
    """Makes executables of a model that agree with its reference.

    Where the outputs differ, this is the order of the questions. Is it rounding, by a float64 run
    (``Judgment``)? Is TVM's import another function already? Do the kernels agree without
    schedules? Then schedules are at fault, and bisection finds which; otherwise graph passes are.
    Where the time is too short for an answer, all schedules or all passes are left out. A graph
    pass that raises is left out at once (``guarded``), and so is the first schedule of a kernel
    that is not compiled in time.
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
        """Prepare and build, without what makes the outputs differ.

        Raises ``ModelError`` if TVM's import computes something else than the reference, or the
        time is too short to find an executable whose outputs agree; ``RoundingError`` if a model
        of bfloat16 does not agree.
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
        """The kernels with what was measured, and their executable that gives no other outputs.

        ``direct``: the kernels without Winograd convolutions, of which ``first`` is the first
        executable, which is returned where no other one agrees.
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
        """True if the outputs are those of the reference."""
        with self._parts("check"):
            return self._check.agrees(compiled)

    def _compile(self, kernels: ModelKernels, late_at: float = math.inf) -> CompiledModel:
        with self._parts("compile"):
            return kernels.compile(late_at=late_at)

    def _compile_last(self, kernels: ModelKernels) -> CompiledModel:
        """Compile what was measured; what the compiler refuses has its first schedule again."""
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
        """True if the import agrees, and a float64 run says that the difference is rounding.

        It is asked after Ctrl-C too, and where it ends within the grace: an executable that is
        there is worth more than another one to compile.
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
        """An executable that agrees, or the name of a pass that changes the outputs."""
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
        """The import with schedules where that agrees, or without any."""
        plain = self._make_or_leave(made, prepare, [name for name, _ in self._passes])
        return plain if self.agrees(plain.compiled) else self._untouched(made)

    def _make_or_leave(
        self, before: Executable, prepare: Prepare, skipped: Collection[str]
    ) -> Executable:
        """The model without some passes; the untouched import where the time is too short."""
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
        """The pass that makes the outputs differ; empty where none does."""
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
    """The start of a sentence about kernels whose schedules could not be compiled."""
    others = f" and {len(names) - NAMED} others" if len(names) > NAMED else ""
    shown = ", ".join(names[:NAMED]) + others
    return f"the compiler took too long for the schedules of {shown}, or refused them"
