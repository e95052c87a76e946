# SPDX-License-Identifier: Apache-2.0
"""The search of one task: explore as a storm, then exploit as a raindrop."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tvm.s_tir import Trace
from tvm.s_tir.meta_schedule.runner import RunnerResult

from .candidates import is_unmeasured
from .descents.surrogate import SurrogateDescent
from .explorers.base import ExplorerRun, SearchContext
from .log import SearchLogger
from .published.candidates import Measured, mean, valid_secs
from .published.decisions import Decision, Sketch
from .published.neighborhood import Point
from .published.search import Batch, Phase, Search
from .stopping import StopRule


def describe(sketch: Sketch, point: Point) -> str:
    """The decisions of a point: ``"SamplePerfectTile#7 [1, 4], ..."``."""
    described = (f"{_name(one)} {list(one.value(point))}" for one in sketch.decisions)
    return ", ".join(described) or "no decision"


def describe_change(sketch: Sketch, before: Point, after: Point) -> str:
    """The decisions that differ: ``"SamplePerfectTile#7 [1, 4] -> [2, 2]"``."""
    changes = (
        f"{_name(one)} {list(one.value(before))} -> {list(one.value(after))}"
        for one in sketch.decisions
        if one.value(before) != one.value(after)
    )
    return ", ".join(changes) or "no decision"


def _name(decision: Decision) -> str:
    """The kind of a decision, and the position of its instruction."""
    return f"{decision.kind.name}#{decision.inst}"


_DRAWN_FROM_EMPTY = 8
"""Number of random traces drawn from each design space to find out why all are rejected."""


@dataclass
class TaskSearch(Search):
    """The search of a task, which logs its progress and explores again if a descent finds nothing.

    It ends when the space is exhausted, or when ``rule`` stops it.
    """

    exploration: ExplorerRun
    descent: SurrogateDescent
    context: SearchContext
    log: SearchLogger
    rule: StopRule
    _is_exhausted: bool = field(default=False, init=False)

    def batches(self) -> Iterator[Batch]:
        """The batches to measure, one after the other."""
        missing = self.explore_trials - len(self.history)
        if self.history.best() is not None:
            # Other tasks may have found schedules that this task has not tried.
            missing = max(missing, self.exploration.waiting())
        yield from self._explore(missing, self.explore_trials)
        while self.history.best() is not None:
            self._log_descent()
            is_over = yield from self.descent.descend()
            if is_over:
                self.log.log("converged", f"{self.rule.forecast}; {self.log.drops()}")
                return
            size = self.descent.batch_size()
            found = yield from self._explore(size, size)
            if not found:
                self._is_exhausted = True
                return
        self._explain_if_empty()

    def _log_descent(self) -> None:
        found = self.context.best()
        if found is not None:
            best, _ = found
            sketch, point = _read(best)
            start = f"{mean(best.secs) * 1e6:.4g} us, {describe(sketch, point)}"
            self._begins("descend", f"descending from {start}")

    def _begins(self, phase: Phase, message: str) -> None:
        """Log that a phase begins."""
        self.log.begin(phase, message)

    def _log_step(self, before: Measured | None, after: Measured | None) -> None:
        if before is not None and after is not None and after.trace is not before.trace:
            gain = 1.0 - mean(after.secs) / mean(before.secs)
            self.log.log("step", f"step {_change(before, after)}: -{gain:.1%}")

    def tell(self, batch: Batch, results: Sequence[RunnerResult]) -> None:
        """Take the results of the last batch, log a step of the descent, and update the prior."""
        before = self.history.best()
        self._results = list(results)
        failures: list[str] = []
        unmeasured: list[str] = []
        for candidate, result in zip(batch, results, strict=True):
            if is_unmeasured(result.run_secs, result.error_msg):
                unmeasured.append(_reason(result))
                continue
            secs = valid_secs(result.run_secs)
            self.history.add(candidate, secs)
            if not secs:
                failures.append(_reason(result))
        self.log.measured(len(batch), failures, unmeasured)
        if self.log.phase == "descend":
            self._log_step(before, self.history.best())
        self._teach(batch, results)

    def _teach(self, batch: Batch, results: Sequence[RunnerResult]) -> None:
        """Update the prior with the measured candidates."""
        measured = [
            (candidate.measure_candidate(), result)
            for candidate, result in zip(batch, results, strict=True)
            if not is_unmeasured(result.run_secs, result.error_msg)
        ]
        if self.context.prior is not None and measured:
            self.context.prior.update(*zip(*measured, strict=True))

    def end(self) -> None:
        """Log the end of the search, and release its resources."""
        draft = self.context.draft
        drafted = "" if draft is None else f"; {draft.summary()}"
        ahead, best = "", self.history.best()
        if self._is_exhausted:
            self.rule.forecast = None
        elif best is not None:
            self.rule.is_over(len(self.history), mean(best.secs))
            ahead = f"; {self.rule.forecast}"
        self.log.log("finished", f"the run ends{ahead}; {self.log.drops()}{drafted}")
        self.log.warn_if_all_failed()
        self.exploration.leave()

    def _explain_if_empty(self) -> None:
        """Log which postprocessors reject everything."""
        if len(self.history) > 0:
            return
        for schedule in self.context.schedules:
            for _ in range(_DRAWN_FROM_EMPTY):
                self.context.replayer.replay(Trace(schedule.trace.insts, {}))
        self.log.warn_of_empty_space(_DRAWN_FROM_EMPTY * len(self.context.schedules))


def _read(measured: Measured) -> tuple[Sketch, Point]:
    """The sketch and the decisions of a trace."""
    trace = measured.trace.simplified(remove_postproc=True)
    sketch = Sketch.from_trace(trace)
    return sketch, sketch.read(trace)


def _change(before: Measured, after: Measured) -> str:
    """The decisions that differ between two traces."""
    (sketch, point), (other, changed) = _read(before), _read(after)
    if sketch == other:
        return describe_change(sketch, point, changed)
    return describe(other, changed)


def _reason(result: RunnerResult) -> str:
    """The reason why a measurement failed, as the builder or the runner gives it."""
    if result.error_msg is None:
        return f"invalid times {[float(sec) for sec in result.run_secs or ()]}"
    return str(result.error_msg)
