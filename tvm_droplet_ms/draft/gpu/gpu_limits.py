# SPDX-License-Identifier: Apache-2.0
"""A draft of GPU schedules that can be launched, for many points at once.

Of ten schedules that TVM draws for a GPU, about nine ask for more threads or shared memory than it
has; ``VerifyGPUCode`` finds that out after a replay (``verify_gpu_code.cc``). Both are products of
the decisions, which the trace tells: ``Split`` makes loops, ``Fuse`` and ``Bind`` make threads of
them, and ``CacheRead`` copies what they read into shared memory.

On tensor cores a block of the trace is a warp's: 32 threads beside those that the trace binds. Its
operands are fragments, which are copies of the shared copies, over the same indices; the rows of
the shared copies are padded (``StorageAlign``). The shared copy of the output takes the place of
those of the operands (``merge_shared_memory_allocations.cc``): the larger counts.

Two more things are refused: vectors that are too wide (``wide_vectors.py``), and a pipeline whose
loop has one iteration.

Reductions across threads (softmax, norms) are not understood: TVM refuses none of what it draws.

Of 2,400 schedules of dense layers and convolutions for an A100, ``VerifyGPUCode`` accepts exactly
those that are drafted, 5 to 6%; of depthwise convolutions 64% (2026-11-23, commit f7b39ee).
"""

import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...search_strategy.candidates import ScreenedReplayer
from ...search_strategy.design_spaces import EncodedSpaces
from ..block_tree import NotUnderstood
from ..index_intervals import UnknownIndex
from .gpu_launch import compile_launch
from .launch import Launch

_ATTRIBUTES = ("max_threads_per_block", "max_shared_memory_per_block")
"""The attributes of a target, in the order of the parameters of :class:`GpuLimits`."""


@dataclass(frozen=True)
class GpuLimits:
    """The limits of a GPU's launches; a draft that knows which schedules exceed them.

    Parameters
    ----------
    threads : int
        Threads of a block.
    shared_bytes : int
        Bytes of shared memory of a block.

    Raises
    ------
    ValueError
        If a number is not positive.
    """

    threads: int
    shared_bytes: int

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value < 1:
                raise ValueError(f"{name} is {value}, expected a positive integer")

    @staticmethod
    def are_told_by(target: Any) -> bool:
        """True if a target says both limits."""
        return all(target.attrs.get(name) is not None for name in _ATTRIBUTES)

    @staticmethod
    def of(target: Any) -> "GpuLimits":
        """The limits of a target.

        Raises
        ------
        ValueError
            If it does not say ``max_threads_per_block`` and ``max_shared_memory_per_block``.
        """
        values = [target.attrs.get(name) for name in _ATTRIBUTES]
        for name, value in zip(_ATTRIBUTES, values, strict=True):
            if value is None:
                raise ValueError(f"{name} is not among the attributes of target {target}: give it")
        return GpuLimits(*map(int, values))

    def begin(self, spaces: EncodedSpaces, replayer: ScreenedReplayer) -> "TaskLimits":
        """Make the draft of a task."""
        return TaskLimits(self, spaces, replayer)


@dataclass
class TaskLimits:
    """The draft of one task: all schedules that can be launched are equal to it.

    ``spaces``: the points of the task. ``replayer``: makes a schedule of each sketch.
    ``random_share``: see ``TaskDraft``: there is nothing that this draft is blind to.
    """

    limits: GpuLimits
    spaces: EncodedSpaces
    replayer: ScreenedReplayer
    random_share: float = 0.0
    _launches: dict[int, "Launch | None"] = field(default_factory=dict)
    _reasons: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._generator = np.random.default_rng(0)
        self._lock = threading.Lock()

    def scores(self, sketch: int, points: np.ndarray) -> np.ndarray:
        """Random scores; negative infinity for what cannot be launched; see ``TaskDraft``."""
        launch = self._launch(sketch)
        if launch is None:
            return np.full(len(points), np.nan)
        possible = launch.is_possible(points, self.limits.threads, self.limits.shared_bytes)
        return np.where(possible, self._generator.random(len(points)), -np.inf)

    def is_possible(self, sketch: int, points: np.ndarray) -> np.ndarray:
        """False for what cannot be launched; see ``Mask``. True where nothing is known."""
        launch = self._launch(sketch)
        if launch is None:
            return np.ones(len(points), dtype=bool)
        return launch.is_possible(points, self.limits.threads, self.limits.shared_bytes)

    def not_understood(self) -> Counter[str]:
        """The number of sketches that are not understood, by the reason."""
        for sketch in range(len(self.spaces.sketches)):
            self._launch(sketch)
        return Counter(self._reasons.values())

    def summary(self) -> str:
        """The number of sketches that are drafted, and why others are not."""
        reasons = self.not_understood()
        total = len(self.spaces.sketches)
        words = "".join(f"; {count} with {reason}" for reason, count in reasons.items())
        return f"drafted {total - reasons.total()} of {total} sketches{words}"

    def _launch(self, sketch: int) -> "Launch | None":
        with self._lock:
            if sketch not in self._launches:
                self._launches[sketch] = self._compile(sketch)
            return self._launches[sketch]

    def _compile(self, sketch: int) -> "Launch | None":
        ours = self.spaces.sketches[sketch]
        schedule = self.replayer.new_schedule()
        trace = self.spaces.trace((sketch, self.spaces.start(sketch)))
        trace.apply_to_schedule(schedule, remove_postproc=True)
        try:
            return compile_launch(ours, schedule)
        except (NotUnderstood, UnknownIndex) as error:
            self._reasons[sketch] = str(error)
            return None
