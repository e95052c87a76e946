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
"""From a trace to a candidate for measurement: replay, postprocessors, structural hash."""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tvm_ffi import structural_hash

from tvm.ir import IRModule
from tvm.s_tir import Schedule, Trace
from tvm.s_tir.meta_schedule.arg_info import ArgInfo
from tvm.s_tir.meta_schedule.postproc import Postproc
from tvm.s_tir.meta_schedule.profiler import Profiler
from tvm.s_tir.meta_schedule.search_strategy import MeasureCandidate

from .decisions import Decision, Sketch
from .neighbourhood import Neighbourhood, Point

_BEYOND_ALL_LOOPS = 1 << 20
"""A compute location that no loop nest has: TVM realises the innermost legal one in its place."""


@dataclass(frozen=True)
class Candidate:
    """A scheduled module, known by what it is and not by what was asked for.

    Parameters
    ----------
    schedule : Schedule
        The schedule after its postprocessors.
    module : int
        The structural hash of its module.
    """

    schedule: Schedule
    module: int

    @staticmethod
    def of(schedule: Schedule) -> "Candidate":
        """The candidate of a schedule that has passed its postprocessors."""
        return Candidate(schedule, structural_hash(schedule.mod))

    @property
    def trace(self) -> Trace:
        """The trace, with its realised decisions."""
        return self.schedule.trace

    def measure_candidate(self) -> MeasureCandidate:
        """What a Builder and a Runner take."""
        args_info = ArgInfo.from_entry_func(self.schedule.mod, remove_preproc=True)
        return MeasureCandidate(self.schedule, args_info)


class Replayer:
    """Replays traces on one workload, as TVM's ``ThreadedTraceApply`` does (``utils.h``).

    Parameters
    ----------
    mod : IRModule
        The workload.
    postprocs : Sequence[Postproc]
        The postprocessors of the task.
    generator : random.Random
        Seeds the schedules, for postprocessors that sample.
    dropped : Counter[str] | None
        Where to count the traces that were dropped; None for a new counter.

    Attributes
    ----------
    dropped : Counter[str]
        How many traces were dropped, by the postprocessor or the error that dropped them.
    """

    def __init__(
        self,
        mod: IRModule,
        postprocs: Sequence[Postproc],
        generator: random.Random,
        dropped: Counter[str] | None = None,
    ) -> None:
        self.mod = mod
        self.dropped = Counter[str]() if dropped is None else dropped
        self._postprocs = list(postprocs)
        self._generator = generator

    def _schedule(self, error_render_level: str = "none") -> Schedule:
        seed = self._generator.randint(1, 2**31 - 2)
        return Schedule(
            self.mod, seed=seed, debug_mask="none", error_render_level=error_render_level
        )

    def replay(self, trace: Trace) -> Candidate | None:
        """Replay a trace without its postprocessors' instructions, and run the task's own.

        Returns
        -------
        candidate : Candidate | None
            None if the trace or a postprocessor fails; the reason is counted in ``dropped``.
        """
        with Profiler.timeit("Droplet/Replay"):
            schedule = self._schedule()
            culprit = "replay"
            # TVM raises errors of many types from a schedule primitive or a postprocessor, and
            # ThreadedTraceApply takes each of them for "not in the space".
            try:
                trace.apply_to_schedule(schedule, remove_postproc=True)
                schedule.enter_postproc()
                for postproc in self._postprocs:
                    culprit = str(postproc)
                    if not postproc.apply(schedule):
                        self.dropped[culprit] += 1
                        return None
            except Exception as error:
                self.dropped[f"{culprit}: {type(error).__name__}"] += 1
                return None
            return Candidate.of(schedule)

    def restore(self, trace: Trace) -> Candidate:
        """Replay a recorded trace as it stands, its postprocessors' instructions included.

        Raises
        ------
        Exception
            Whatever TVM raises where the trace does not replay on this workload.
        """
        schedule = self._schedule(error_render_level="fast")
        trace.apply_to_schedule(schedule, remove_postproc=False)
        return Candidate.of(schedule)

    def neighbourhood(self, sketch: Sketch, trace: Trace, parallel_limit: int) -> Neighbourhood:
        """The neighbourhood of a replayed trace, with what can only be found by replaying.

        Parameters
        ----------
        sketch : Sketch
            The sketch of the trace.
        trace : Trace
            The trace.
        parallel_limit : int
            The largest parallel extent to try; 0 to leave the present one.
        """
        with Profiler.timeit("Droplet/Replay"):
            locations = self.compute_locations(sketch, trace)
        point = sketch.read(trace)
        return sketch.neighbourhood(
            trace,
            locations,
            lambda decision: self.parallel_extents(sketch, trace, point, decision, parallel_limit),
        )

    def compute_locations(self, sketch: Sketch, trace: Trace) -> dict[int, tuple[int, ...]]:
        """The legal compute locations of each ``SampleComputeLocation``, by position.

        TVM does not expose them. But it replaces a location that is not legal by the one before
        it, and sampling changes no loop: so while the trace is replayed, sample at each of these
        instructions from the innermost location outwards, and read back what was realised.
        """
        kind = "SampleComputeLocation"
        positions = [decision.inst for decision in sketch.decisions if decision.kind == kind]
        if not positions:
            return {}
        probe = self._schedule()
        legal: list[tuple[int, ...]] = []

        def enumerate_locations(inst, inputs, _attrs, decision):  # type: ignore[no-untyped-def]
            if inst.kind.name == kind:
                found: list[int] = []
                wanted = _BEYOND_ALL_LOOPS
                while True:
                    probe.sample_compute_location(inputs[0], decision=wanted)
                    realised = int(probe.trace.get_decision(probe.trace.insts[-1]))
                    if found and realised >= found[-1]:
                        break
                    found.append(realised)
                    wanted = realised - 1
                legal.append(tuple(reversed(found)))
            return decision

        trace.apply_to_schedule(probe, remove_postproc=True, decision_provider=enumerate_locations)
        return dict(zip(positions, legal, strict=True))

    def parallel_extents(
        self, sketch: Sketch, trace: Trace, point: Point, decision: Decision, limit: int
    ) -> tuple[int, ...]:
        """Parallel extents that give distinct modules, ascending, the present one among them."""

        def module(extent: int) -> int | None:
            changed = (*point[: decision.start], extent, *point[decision.start + 1 :])
            candidate = self.replay(sketch.write(trace, changed))
            return candidate.module if candidate else None

        present = point[decision.start]
        if limit < 1:
            return (present,)
        modules = _bisect(module, 1, max(limit, present))
        distinct = {modules.get(present, module(present)): present}
        for extent, found in sorted(modules.items()):
            if found is not None:
                distinct.setdefault(found, extent)
        return tuple(sorted(distinct.values()))


def _bisect(module: Callable[[int], int | None], low: int, high: int) -> dict[int, int | None]:
    """Extents between two, with their modules, among them one for each distinct module.

    A larger extent never fuses fewer loops, so where both ends of an interval give one module,
    everything between them does.
    """
    found = {extent: module(extent) for extent in {low, high}}
    intervals = [(low, high)]
    while intervals:
        low, high = intervals.pop()
        middle = (low + high) // 2
        if middle > low and found[low] != found[high]:
            found[middle] = module(middle)
            intervals += [(low, middle), (middle, high)]
    return found
