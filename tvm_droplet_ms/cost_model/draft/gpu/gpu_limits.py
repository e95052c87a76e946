# SPDX-License-Identifier: Apache-2.0
"""A draft that finds the GPU schedules that can be launched, for many points at once.

About nine in ten schedules that TVM draws for a GPU need more threads or shared memory than the GPU
has. ``VerifyGPUCode`` rejects them after a replay (``verify_gpu_code.cc``). Both are products of
decisions in the trace: ``Split`` makes loops, ``Fuse`` and ``Bind`` turn them into threads, and
``CacheRead`` copies their operands into shared memory.

On tensor cores, a warp executes a block of the trace, so each thread that the trace binds counts 32
times. The operands are fragments: copies of the shared copies, with the same indices. The rows of
the shared copies are padded (``StorageAlign``). The output's shared copy reuses the memory of the
operands' copies (``merge_shared_memory_allocations.cc``), so the larger of both counts.

Two more kinds of schedules are refused: vectors that are too wide (``wide_vectors.py``), and
pipelines whose loop has one iteration.

Reductions across threads (softmax, norms) are not modeled: TVM refuses none of their schedules.

Among 2,400 schedules of dense layers and convolutions for an A100, ``VerifyGPUCode`` and this draft
accept exactly the same ones: 5 to 6%, or 64% of depthwise convolutions (2026-11-23, commit
f7b39ee).
"""

import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ....search_strategy.candidates import ScreenedReplayer
from ....search_strategy.design_spaces import EncodedSpaces
from ..block_tree import NotUnderstood
from .gpu_launch import Launch, compile_launch

_ATTRIBUTES = ("max_threads_per_block", "max_shared_memory_per_block")
"""The attributes of a target, in the order of the parameters of :class:`GpuLimits`."""


@dataclass(frozen=True)
class GpuLimits:
    """A draft that refuses schedules that exceed a GPU's launch limits.

    Parameters
    ----------
    threads : int
        The maximum number of threads per block.
    shared_bytes : int
        The maximum shared memory per block, in bytes.

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
        """True if a target has both limits as attributes."""
        return all(target.attrs.get(name) is not None for name in _ATTRIBUTES)

    @staticmethod
    def of(target: Any) -> "GpuLimits":
        """The limits of a target.

        Raises
        ------
        ValueError
            If the target lacks ``max_threads_per_block`` or ``max_shared_memory_per_block``.
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
    """The draft of one task, which ranks all schedules that can be launched equally.

    ``spaces``: the points of the task. ``replayer``: makes a schedule of each sketch.
    ``random_share``: see ``TaskDraft``; 0, because this draft has no blind spots.
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
        """Random scores; negative infinity for unlaunchable points; see ``TaskDraft``."""
        launch = self._launch(sketch)
        if launch is None:
            return np.full(len(points), np.nan)
        possible = launch.is_possible(points, self.limits.threads, self.limits.shared_bytes)
        return np.where(possible, self._generator.random(len(points)), -np.inf)

    def is_possible(self, sketch: int, points: np.ndarray) -> np.ndarray:
        """False for points that cannot be launched, True for unknown sketches; see ``Mask``."""
        launch = self._launch(sketch)
        if launch is None:
            return np.ones(len(points), dtype=bool)
        return launch.is_possible(points, self.limits.threads, self.limits.shared_bytes)

    def not_understood(self) -> Counter[str]:
        """The number of sketches that are not understood, by reason."""
        for sketch in range(len(self.spaces.sketches)):
            self._launch(sketch)
        return Counter(self._reasons.values())

    def summary(self) -> str:
        """The number of drafted sketches, and the reasons why the others are not drafted."""
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
        except NotUnderstood as error:
            self._reasons[sketch] = str(error)
            return None
