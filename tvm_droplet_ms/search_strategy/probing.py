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
"""Legal values of decisions that TVM does not expose, found by replaying traces."""

from collections.abc import Callable
from dataclasses import dataclass

from tvm.s_tir import Trace
from tvm.s_tir.meta_schedule.profiler import Profiler

from .candidates import Replayer
from .decision_kinds import COMPUTE_LOCATION
from .decisions import Decision, Sketch
from .neighbourhood import Neighbourhood, Point

_BEYOND_ALL_LOOPS = 1 << 20
"""A compute location that no loop nest has: TVM realises the innermost legal one in its place."""


class Prober:
    """Finds legal compute locations and distinct parallel extents.

    Parameters
    ----------
    replayer : Replayer
        Replays traces on the task's workload.
    parallel_limit : int
        The largest parallel extent to try. At least 1.
    """

    def __init__(self, replayer: Replayer, parallel_limit: int) -> None:
        self._replayer = replayer
        self._parallel_limit = parallel_limit

    def neighbourhood(self, sketch: Sketch, trace: Trace) -> Neighbourhood:
        """The neighbourhood of a replayed trace.

        Parameters
        ----------
        sketch : Sketch
            The sketch of the trace.
        trace : Trace
            The trace.
        """
        with Profiler.timeit("Droplet/Replay"):
            locations = self.compute_locations(sketch, trace)
        return sketch.neighbourhood(
            trace, lambda decision: _LegalValues(self, sketch, trace, decision, locations)
        )

    def compute_locations(self, sketch: Sketch, trace: Trace) -> dict[int, tuple[int, ...]]:
        """The legal compute locations of each ``SampleComputeLocation``, by position.

        TVM replaces an illegal location by the legal one before it, and sampling changes no loop.
        So while the trace is replayed, each of these instructions is sampled from the innermost
        location outwards, and the realised locations are read back.
        """
        positions = [d.inst for d in sketch.decisions if d.kind == COMPUTE_LOCATION]
        if not positions:
            return {}
        probe = self._replayer.new_schedule()
        legal: list[tuple[int, ...]] = []

        def enumerate_locations(inst, inputs, _attrs, decision):  # type: ignore[no-untyped-def]
            if inst.kind.name == COMPUTE_LOCATION.name:
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
        self, sketch: Sketch, trace: Trace, point: Point, decision: Decision
    ) -> tuple[int, ...]:
        """Parallel extents that give distinct modules, ascending, the present one among them."""

        def module(extent: int) -> int | None:
            candidate = self._replayer.replay(
                sketch.write(trace, decision.replace(point, (extent,)))
            )
            return candidate.module if candidate else None

        (present,) = decision.value(point)
        modules = _bisect(module, 1, max(self._parallel_limit, present))
        distinct = {modules.get(present, module(present)): present}
        for extent, found in sorted(modules.items()):
            if found is not None:
                distinct.setdefault(found, extent)
        return tuple(sorted(distinct.values()))


@dataclass(frozen=True)
class _LegalValues:
    """The legal values of one decision of a replayed trace."""

    prober: Prober
    sketch: Sketch
    trace: Trace
    decision: Decision
    locations: dict[int, tuple[int, ...]]

    def compute_locations(self) -> tuple[int, ...]:
        return self.locations[self.decision.inst]

    def parallel_extents(self) -> tuple[int, ...]:
        point = self.sketch.read(self.trace)
        return self.prober.parallel_extents(self.sketch, self.trace, point, self.decision)


def _bisect(module: Callable[[int], int | None], low: int, high: int) -> dict[int, int | None]:
    """Extents between two bounds with their modules, at least one for each distinct module.

    A larger extent never fuses fewer loops. So where both ends of an interval give one module,
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
