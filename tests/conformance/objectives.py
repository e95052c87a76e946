# SPDX-License-Identifier: Apache-2.0
"""Made-up measurements: functions of a candidate's realized decisions."""

import math
import zlib
from collections.abc import Callable

from tvm.s_tir import Schedule
from tvm.s_tir.meta_schedule.runner import RunnerResult
from tvm.s_tir.meta_schedule.search_strategy import MeasureCandidate

Decisions = tuple[tuple[int, ...], ...]
"""The sampled decisions of a trace, in the order of its instructions."""
Objective = Callable[[MeasureCandidate], RunnerResult]
Cost = Callable[[Decisions], float]
"""A time in seconds."""


def decisions_of(sch: Schedule) -> Decisions:
    """The decisions that a schedule's trace has sampled."""
    made = sch.trace.decisions
    sampled = [made[inst] for inst in sch.trace.insts if inst in made]
    return tuple(
        tuple(int(factor) for factor in value) if hasattr(value, "__len__") else (int(value),)
        for value in sampled
    )


def bowl(decisions: Decisions) -> float:
    """One basin on the lattice of tiles: the best tile is even, and no two tiles weigh the same."""
    cost = 0.0
    for weight, tile in enumerate(decisions, start=1):
        mean = sum(math.log2(factor) for factor in tile) / len(tile)
        cost += sum(
            (0.1 * weight + 0.01 * i) * (math.log2(factor) - mean) ** 2
            for i, factor in enumerate(tile)
        )
    return 1e-3 * (1.0 + cost)


def rugged(decisions: Decisions) -> float:
    """No structure at all: a checksum of the decisions."""
    return 1e-3 * (1.0 + zlib.crc32(repr(decisions).encode()) / 2**32)


def constant(_: Decisions) -> float:
    """Everything is equally fast."""
    return 1e-3


def timed(cost: Cost, repeats: int = 1) -> Objective:
    """Measurements without noise, each of some equal times."""
    return lambda candidate: RunnerResult([cost(decisions_of(candidate.sch))] * repeats, None)


def spread(cost: Cost) -> Objective:
    """Measurements of three times that differ, by the same each time a module is measured."""
    return lambda candidate: RunnerResult(
        [cost(decisions_of(candidate.sch)) * factor for factor in (0.999, 1.0, 1.001)], None
    )


class Noisy:
    """Single times that scatter: the cost, times a factor that follows the trials' number."""

    def __init__(self, cost: Cost, relative: float) -> None:
        self._cost = cost
        self._relative = relative
        self._trials = 0

    def __call__(self, candidate: MeasureCandidate) -> RunnerResult:
        self._trials += 1
        scatter = zlib.crc32(str(self._trials).encode()) / 2**31 - 1.0
        secs = self._cost(decisions_of(candidate.sch)) * (1.0 + self._relative * scatter)
        return RunnerResult([secs], None)


def fail(_: MeasureCandidate) -> RunnerResult:
    """Nothing ever builds."""
    return RunnerResult(None, "made-up build error")


def sometimes(bad: RunnerResult, otherwise: Objective) -> Objective:
    """One measurement in three goes wrong, always those of the same decisions."""
    return lambda candidate: (
        bad if goes_wrong(decisions_of(candidate.sch)) else otherwise(candidate)
    )


def goes_wrong(decisions: Decisions) -> bool:
    """True if ``sometimes`` spoils the measurement of these decisions."""
    return zlib.crc32(repr(decisions).encode()) % 3 == 0
