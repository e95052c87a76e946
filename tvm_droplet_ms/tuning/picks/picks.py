# SPDX-License-Identifier: Apache-2.0
"""First picks: the schedules that tasks have before they are measured.

Predictions are never filed as measurements: picks live in memory, and in a file of their own.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import metadata

from tvm_ffi import structural_hash

from tvm.ir import IRModule, load_json, save_json
from tvm.s_tir import Schedule, Trace
from tvm.target import Target

from ...cost_model.training_data import target_text
from ...search_strategy.logger import logger
from ...search_strategy.published.decisions import SpacePoint
from .pick_file import StoredPick

NAMED = 3
"""The tasks that a note names."""


@dataclass(frozen=True)
class FirstPick:
    """The schedule that a task has before it is measured.

    - ``trace``: the trace of the best predicted schedule, or of the fastest measured one, its
      postprocessors included; an empty one where the unscheduled kernel was the fastest.
    - ``points``: the best predicted points of the design spaces, the best first.
    - ``predicted``: the predicted throughput of each point; empty where no model was asked.
    - ``secs``: the measured seconds of the trace, the fastest of several and of the unscheduled
      kernel; None where none was measured.
    """

    mod: IRModule
    trace: Trace
    points: tuple[SpacePoint, ...]
    predicted: tuple[float, ...]
    secs: float | None = None

    def to_line(self, key: str) -> StoredPick:
        """The line of the file that ``restore`` reads."""
        trace = save_json(self.trace.as_json())
        return StoredPick(key, trace, self.points, self.predicted, self.secs)


@dataclass
class FirstPicks:
    """The picks of a model's tasks. ``unscheduled``: why a task has no pick, by the task's name."""

    unscheduled: dict[str, str] = field(default_factory=dict)
    _picks: dict[str, FirstPick] = field(default_factory=dict)

    def add(self, key: str, pick: FirstPick) -> None:
        """Keep the pick of a task; see ``task_key``."""
        self._picks[key] = pick

    def keep(self, pick: FirstPick, target: Target) -> None:
        """Keep the pick of a workload."""
        self.add(task_key(pick.mod, target), pick)

    def find(self, mod: IRModule, target: Target) -> FirstPick | None:
        """The pick of a workload; None where there is none."""
        return self._picks.get(task_key(mod, target))

    def unscheduled_notes(self) -> list[str]:
        """The tasks that have no pick, a sentence for each reason."""
        names: dict[str, list[str]] = {}
        for name, reason in self.unscheduled.items():
            names.setdefault(reason, []).append(name)
        notes = []
        for reason, found in names.items():
            others = len(found) - NAMED
            more = f" and {others} other{'s' * (others > 1)}" if others > 0 else ""
            verb = "has no schedule and stays as it is"
            if len(found) > 1:
                verb = "have no schedule and stay as they are"
            notes.append(f"{', '.join(found[:NAMED])}{more} {verb}: {reason}")
        return notes

    def __iter__(self) -> Iterator[FirstPick]:
        """The picks, in the order in which they were added."""
        return iter(self._picks.values())

    def __len__(self) -> int:
        """The number of tasks that have a pick."""
        return len(self._picks)


def task_key(mod: IRModule, target: Target) -> str:
    """The key of a task in the file of picks: TVM's version, the target and the workload."""
    return f"{metadata.version('apache-tvm')} {structural_hash(mod)} {target_text(target)}"


def restore(mod: IRModule, stored: StoredPick | None, has_model: bool) -> FirstPick | None:
    """Read a pick of the file.

    ``stored``: its line; None where the file has none. ``has_model``: whether a model can be asked:
    what was drawn without one is then made anew. None where it must be made anew.
    """
    if stored is None or (has_model and len(stored.points) > 1 and not stored.predicted):
        return None
    schedule = Schedule(mod, debug_mask="none", error_render_level="none")
    # A trace that another version of TVM or of this package wrote fails in as many ways as there
    # are schedule primitives.
    try:
        Trace.apply_json_to_schedule(load_json(stored.trace), schedule)
    except Exception as error:
        logger.info("a first pick no longer replays and is made anew: %s", last_line(error))
        return None
    return FirstPick(mod, schedule.trace, stored.points, stored.predicted, stored.secs)


def last_line(error: Exception) -> str:
    """The last line of an error's message: TVM prints the whole schedule before it."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[-1][:300]
