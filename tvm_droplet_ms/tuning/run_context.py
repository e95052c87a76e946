# SPDX-License-Identifier: Apache-2.0
"""What all stages of one run share: its settings, its observers, its timer and its notes."""

import logging
import math
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from tvm_ffi import structural_hash

from tvm.s_tir.meta_schedule import ExtractedTask
from tvm.s_tir.meta_schedule.database import Database
from tvm.s_tir.meta_schedule.measure_callback import MeasureCallback
from tvm.target import Target

from ..display import ProgressCallback, RunState, TaskState, run_display
from ..display.displays import tell_event
from ..display.model_state import ModelKernel, ModelState
from ..search_strategy.stopping import Stop
from ..session.stop import StopRequest
from .budget.outlook import outlook
from .budget.stop_rules import StopRules
from .picks.pick_workers import WarmStart
from .schedules import best_records, count_trials

logger = logging.getLogger(__name__)


class PhaseTimer:
    """Seconds by phase. Phases do not overlap; one that is entered again accumulates."""

    def __init__(self) -> None:
        self.secs: dict[str, float] = {}

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Add the duration of a block to a phase."""
        start = time.monotonic()
        try:
            yield
        finally:
            self.secs[name] = self.secs.get(name, 0.0) + time.monotonic() - start


class RunObserver:
    """The observers of the measurements of a run of ``tune``; see its options."""

    def __init__(
        self,
        work_dir: str | os.PathLike[str] | None = None,
        callbacks: Sequence[MeasureCallback] = (),
        progress: Callable[[str], None] | Literal["auto"] | None = None,
        patience: int | None = None,
        stop: Stop = "auto",
    ) -> None:
        self.stop = stop
        self._work_dir = work_dir
        self.rules = StopRules(patience=patience)
        self._run = RunState()
        self._shown = ProgressCallback(run_display(work_dir, progress), self._run)
        self.callbacks: list[MeasureCallback] = [*callbacks, self.rules, self._shown]

    @property
    def tasks(self) -> list[TaskState]:
        """The state of each kernel."""
        return self._run.tasks

    def follow_model(
        self, first_secs: float, kernels: Mapping[int, ModelKernel], end: StopRequest
    ) -> None:
        """Show a model from now on, if it has kernels to tune; see ``ModelState``."""

        def gain(those: Sequence[ModelKernel], model_secs: float) -> float:
            return outlook(those, model_secs).gain

        if kernels:
            self._run.model = ModelState(first_secs, kernels, end.began, end.deadline, gain)

    def leave_model(self) -> None:
        """Show the kernels alone from now on."""
        self._run.model = None

    def know_records(
        self, tasks: Sequence[ExtractedTask], database: Database, target: Target
    ) -> None:
        """Record the trials and the best time of each task from earlier runs."""
        best, trials = best_records(database, target), count_trials(database, target)
        told = {task.key for task in self._run.tasks}
        for task in tasks:
            name, key = str(task.task_name), structural_hash(task.dispatched[0])
            if key not in told:
                secs = best[key][1] if key in best else math.inf
                self._run.tasks.append(TaskState(name, known=trials[key], best_secs=secs, key=key))
                self.rules.know(key, secs)
                told.add(key)

    @property
    def failures(self) -> Counter[str]:
        """Number of failed trials by kind."""
        return sum((task.failures for task in self._run.tasks), Counter())

    def tell(self, event: str, content: Mapping[str, Any]) -> None:
        """Append an event of the whole model to the work directory's ``progress.jsonl``."""
        if self._work_dir is not None:
            tell_event(self._work_dir, {**self._run.event(event), **content})

    def close(self) -> None:
        """Close the displays at the end of the measurements."""
        self._shown.close()


@dataclass(frozen=True)
class RunContext:
    """One run of ``tune``, or of the graph search, as all of its stages see it.

    - ``target``: the target, with ``num-cores``. ``threads``: the threads of the model.
    - ``directory``: the work directory.
    - ``seed``: the seed of all random choices.
    - ``warm_start``: the pretrained cost model and the known schedules.
    - ``observer``: observes the measurements. ``phases``: times the phases of the run.
    - ``notes``: the remarks for the user so far. ``tell``: receives each, by default the log.
    """

    target: Target
    threads: int
    directory: Path
    seed: int = 0
    warm_start: WarmStart = field(default_factory=WarmStart)
    observer: RunObserver = field(default_factory=RunObserver)
    phases: PhaseTimer = field(default_factory=PhaseTimer)
    notes: list[str] = field(default_factory=list)
    tell: Callable[[str], None] = lambda text: logger.warning("%s", text)

    def note(self, text: str) -> None:
        """Tell the user a remark, and keep it."""
        self.tell(text)
        self.notes.append(text)
