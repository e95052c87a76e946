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
"""Points of a design space that is too large to enumerate: at random, and near known ones."""

import random
from collections.abc import Sequence
from dataclasses import replace

from tvm.ir import IRModule
from tvm.s_tir import Trace
from tvm.s_tir.meta_schedule import TuneContext

from ...search_strategy.candidates import Candidate
from ...search_strategy.decisions import Decision, Sketch
from ...search_strategy.neighbourhood import Point
from ..enumeration import SketchTrace, perfect_tiles, replayer_of, sketches_of

Sampled = tuple[int, Point]
"""A sketch and its decisions."""

MOST_CHANGES = 4
"""How many decisions differ at most between a point and one that is near it."""


class Sampler:
    """Draws points of a design space.

    Parameters
    ----------
    context : TuneContext
        A context of the workload with its design space.
    seed : int
        Of the draws.
    """

    def __init__(self, context: TuneContext, seed: int) -> None:
        self.sketches = [_simplified(sketch) for sketch in sketches_of(context)]
        self._replayer = replayer_of(context, seed)
        self._generator = random.Random(seed)
        self._by_sketch = {sketch.sketch: i for i, sketch in enumerate(self.sketches)}

    def module(self, sampled: Sampled) -> IRModule:
        """The scheduled module of a point that was drawn before."""
        candidate = self._replay(self._trace(sampled))
        if candidate is None:
            raise ValueError(f"point {sampled} does not replay, expected one that was sampled")
        return candidate.schedule.mod

    def uniform(self) -> tuple[Sampled, Candidate] | None:
        """Draw a point as TVM's own sampling does; None where it is refused."""
        sketch = self._generator.choice(self.sketches)
        return self._realise(Trace(sketch.trace.insts, {}))

    def near(self, points: Sequence[Sampled]) -> tuple[Sampled, Candidate] | None:
        """Change one to four decisions of one of the points; None where the result is refused."""
        sampled = self._generator.choice(points)
        sketch = self.sketches[sampled[0]]
        decisions = sampled[1]
        for _ in range(self._generator.randint(1, MOST_CHANGES)):
            decision = self._generator.choice(sketch.sketch.decisions)
            value = self._value(sketch, decision, decision.of(decisions))
            end = decision.start + decision.length
            decisions = (*decisions[: decision.start], *value, *decisions[end:])
        return self._realise(self._trace((sampled[0], decisions)))

    def point(self, trace: Trace) -> Sampled | None:
        """The point of a trace of this design space; None if it has none of its sketches."""
        trace = trace.simplified(remove_postproc=True)
        index = self._by_sketch.get(Sketch.from_trace(trace))
        return None if index is None else (index, self.sketches[index].sketch.read(trace))

    def _trace(self, sampled: Sampled) -> Trace:
        sketch = self.sketches[sampled[0]]
        return sketch.sketch.write(sketch.trace, sampled[1])

    def _replay(self, trace: Trace) -> Candidate | None:
        return self._replayer.replay(trace)

    def _realise(self, trace: Trace) -> tuple[Sampled, Candidate] | None:
        candidate = self._replay(trace)
        sampled = None if candidate is None else self.point(candidate.trace)
        return None if candidate is None or sampled is None else (sampled, candidate)

    def _value(self, sketch: SketchTrace, decision: Decision, present: Point) -> Point:
        inst = sketch.trace.insts[decision.inst]
        if decision.kind == "SamplePerfectTile":
            extent = 1
            for factor in present:
                extent *= factor
            tiles = list(perfect_tiles(extent, len(present), int(inst.attrs[1])))
            # Half of the time a tile that differs in two places only.
            close = [t for t in tiles if sum(a != b for a, b in zip(t, present, strict=True)) == 2]
            return self._generator.choice(
                close if close and self._generator.random() < 0.5 else tiles
            )
        if decision.kind == "SampleCategorical":
            return (self._generator.randrange(len(inst.attrs[0])),)
        if decision.kind == "SampleComputeLocation":
            # TVM takes the next legal one for what is none.
            return (max(-2, present[0] + self._generator.choice((-2, -1, 1, 2))),)
        return (2 ** self._generator.randint(0, 6),)


def _simplified(sketch: SketchTrace) -> SketchTrace:
    """Without instructions that do nothing: a tuning record's trace comes without them."""
    trace = sketch.trace.simplified(remove_postproc=True)
    return replace(sketch, sketch=Sketch.from_trace(trace), trace=trace)
