# Licensed to the Apache Software Foundation (ASF) under one
# or more contributor license agreements.  See the NOTICE file
# distributed with this work for additional information
# regarding copyright ownership.  The ASF licenses this file
# to you under the Apache License, Version 2.0 (the
# "License"); you may not use this file except in compliance
# with the License.  You may obtain a copy of the License at
#
#   http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing,
# software distributed under the License is distributed on an
# "AS IS" BASIS, WITHOUT WARRANTIES OR CONDITIONS OF ANY
# KIND, either express or implied.  See the License for the
# specific language governing permissions and limitations
# under the License.
"""The time that a formula expects of schedules: Pruner's penalties, for the levels of a CPU.

After Pruner (Qiao et al., ASPLOS 2025, section 4.2): the time of a statement is its operations over
the peak rate times the penalties of computing, plus its bytes over the bandwidth times those of
moving. The paper's are for GPUs; what stands for each of them here:

================  =============================  ==================================================
of the paper      here                           why
================  =============================  ==================================================
warp alignment    ``lanes``                      lanes of the vectors that work
register limit    ``registers``                  accumulators that do not fit are spilled
block alignment   ``cores``                      the last round of a parallel loop
transactions      ``lines``                      bytes of a cache line that are used
(none)            ``latency``                    a chain of additions waits for each of them
================  =============================  ==================================================

Each has a switch, for ablations. Imports no TVM.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from .annotations import parallel_extent, vector_extent
from .hardware import Hardware
from .symbols import Limits, NestValues

PENALTIES = ("lanes", "registers", "cores", "lines", "latency")
"""Names of the penalties."""

UNROLLED = 32
"""Iterations of the innermost loops that LLVM unrolls in full; of vectors where TVM vectorised."""

CACHE_SHARE = 0.8
"""Share of a cache that the data of a nest can use; the rest is lost to conflicts."""

FREE_REGISTERS = 4
"""Vector registers that hold no accumulator."""

CHAINS = 8
"""Independent additions that a core needs at a time, two units of a latency of four cycles."""

OVERLAP_LOSS = 0.3
"""The share of the time of all but the slowest part that is not hidden behind it."""


def expected_ns(
    nests: Sequence[NestValues],
    limits: Limits,
    hardware: Hardware,
    *,
    without: Collection[str] = (),
) -> np.ndarray:
    """The time of many schedules of one key.

    Parameters
    ----------
    nests : Sequence[NestValues]
        The nests that have loops and accesses; at least one.
    limits : Limits
        What may be annotated.
    hardware : Hardware
        The CPU.
    without : Collection[str]
        Penalties that are left out, of ``PENALTIES``.

    Returns
    -------
    time : np.ndarray
        Nanoseconds, of shape ``(points,)``.

    Raises
    ------
    ValueError
        If a name is no penalty.
    """
    unknown = sorted(set(without) - set(PENALTIES))
    if unknown:
        raise ValueError(f"without is {unknown}, expected names of {list(PENALTIES)}")
    times = [_Statement.of(nest, limits, hardware, without).time() for nest in nests]
    total: np.ndarray = np.sum(times, axis=0)
    return total


@dataclass(frozen=True)
class _Statement:
    """One nest, for many points.

    Parameters
    ----------
    nest : NestValues
        Its loops.
    hardware : Hardware
        The CPU.
    without : Collection[str]
        Penalties that are left out.
    vector : np.ndarray
        Iterations that are vectorised; 1 where none are.
    parallel : np.ndarray
        Iterations of the parallel loop; 1 where there is none.
    depth : np.ndarray
        The innermost loops that are straight-line code, a number for each point.
    """

    nest: NestValues
    hardware: Hardware
    without: Collection[str]
    vector: np.ndarray
    parallel: np.ndarray
    depth: np.ndarray

    @staticmethod
    def of(
        nest: NestValues, limits: Limits, hardware: Hardware, without: Collection[str]
    ) -> "_Statement":
        """What TVM's postprocessors and LLVM make of a nest."""
        vector = vector_extent(
            nest.extents,
            list(nest.strides),
            nest.reduces,
            nest.single,
            np.maximum(limits.vector, 1.0),
        )
        parallel = parallel_extent(nest.extents, nest.reduces, nest.single, limits.parallel)
        # TVM unrolls blocks that reduce; LLVM any.
        unrolled = np.full(len(vector), float(UNROLLED))
        if any(nest.reduces):
            unrolled = np.maximum(unrolled, limits.unroll)
        depth = (nest.iterations / vector <= unrolled).sum(axis=0)
        vector = np.where(vector > 1.0, vector, _vectorised_by_llvm(nest, depth))
        return _Statement(nest, hardware, without, vector, parallel, depth)

    def time(self) -> np.ndarray:
        """Nanoseconds: the slowest of computing and of each level, and a part of the others."""
        parts = np.stack([self._computing(), *self._moving()])
        alone = parts.max(axis=0) + OVERLAP_LOSS * (parts.sum(axis=0) - parts.max(axis=0))
        launch = self.hardware.launch if self.hardware.cores > 1 else 0.0
        time: np.ndarray = alone / self._cores() + np.where(self.parallel > 1.0, launch, 0.0)
        return time

    def _penalty(self, name: str, value: np.ndarray) -> np.ndarray:
        """A share of the peak, of at most 1."""
        return np.ones_like(value) if name in self.without else np.minimum(1.0, value)

    def _computing(self) -> np.ndarray:
        nest, hardware = self.nest, self.hardware
        lanes = hardware.lanes
        used = self._penalty("lanes", self.vector / (np.ceil(self.vector / lanes) * lanes))
        accumulators = np.maximum(1.0, self._outputs() / np.minimum(self.vector, lanes))
        free = max(1, hardware.registers - FREE_REGISTERS)
        fit = self._penalty("registers", free / accumulators)
        waits = np.ones_like(fit)
        if any(nest.reduces):
            waits = self._penalty("latency", accumulators / CHAINS)
        operations = nest.iterations[-1] * max(nest.operations, 1.0)
        time: np.ndarray = operations / (hardware.flops * used * fit * waits)
        return time

    def _outputs(self) -> np.ndarray:
        """Elements that the straight-line code writes: the accumulators."""
        innermost = np.full_like(self.nest.touched[0, :1], self.nest.itemsizes[0])
        bytes_ = _at(self.nest.touched[0], self.depth, innermost[0])
        outputs: np.ndarray = bytes_ / self.nest.itemsizes[0]
        return outputs

    def _moving(self) -> list[np.ndarray]:
        """Nanoseconds to move the bytes into the registers, then into each cache."""
        nest, hardware = self.nest, self.hardware
        together = nest.touched.sum(axis=0)
        depths = [self.depth]
        for size in hardware.caches:
            depths.append((together <= CACHE_SHARE * size).sum(axis=0))
        times = []
        for depth, rate in zip(depths, hardware.bandwidths, strict=True):
            moved = [
                self._moved(access, depth, is_cache=depth is not self.depth)
                for access in range(len(nest.touched))
            ]
            times.append(np.sum(moved, axis=0) / rate)
        return times

    def _moved(self, access: int, depth: np.ndarray, *, is_cache: bool) -> np.ndarray:
        """Bytes of an access that move into a level whose data the innermost loops fit."""
        nest = self.nest
        size = float(nest.itemsizes[access])
        element = np.full(nest.extents.shape[1], size)
        bytes_ = _at(nest.touched[access], depth, element)
        entries = nest.iterations[-1] / _at(nest.iterations, depth)
        # What a loop directly outside does not turn stays where it is.
        stays = np.ones_like(entries)
        goes_on = np.ones(len(entries), dtype=bool)
        for loop, extent in enumerate(nest.extents):
            outside = loop >= depth
            turns = nest.strides[access, loop] != 0
            goes_on &= ~(outside & turns)
            stays = np.where(outside & goes_on, stays * extent, stays)
        moved: np.ndarray = bytes_ * entries / stays
        if is_cache:
            run = _at(nest.runs[access], depth, element)
            line = float(self.hardware.line)
            moved = moved / self._penalty("lines", run / (np.ceil(run / line) * line))
        if access == 0 and any(nest.reduces):  # It is read and written.
            moved = moved * 2.0
        return moved

    def _cores(self) -> np.ndarray:
        """Cores that work, on average."""
        cores = float(self.hardware.cores)
        if "cores" in self.without:
            return np.full_like(self.parallel, cores)
        return self.parallel / np.ceil(self.parallel / cores)


def _vectorised_by_llvm(nest: NestValues, depth: np.ndarray) -> np.ndarray:
    """The extent of the loop that LLVM vectorises where TVM has vectorised none.

    It is the innermost that is not unrolled, or the innermost of all, where it does not reduce and
    each access walks through it contiguously or not at all. Others stay scalar: additions of
    floating-point numbers are not reordered.
    """
    vector = np.ones(nest.extents.shape[1])
    for loop, extent in enumerate(nest.extents):
        steps = nest.strides[:, loop]
        contiguous = (steps <= 1).all(axis=0) & (steps[0] != 0)
        if nest.reduces[loop]:
            continue
        vector = np.where((loop == depth) & contiguous & (extent > 1), extent, vector)
    return vector


def _at(values: np.ndarray, depth: np.ndarray, innermost: np.ndarray | None = None) -> np.ndarray:
    """The values of the loops at a depth, a number for each point; of 0, those of no loop."""
    first = np.ones_like(values[0]) if innermost is None else innermost
    with_none = np.concatenate([first[None], values])
    chosen: np.ndarray = with_none[depth, np.arange(values.shape[1])]
    return chosen
