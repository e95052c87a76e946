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
"""Exploit as a raindrop: descend from the best, on what a model of the measurements says."""

import math
import random
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field

import numpy as np
from threadpoolctl import threadpool_limits

from tvm.s_tir import Trace
from tvm.s_tir.meta_schedule.profiler import Profiler

from .acquisition import by_expected_improvement
from .candidates import Candidate, Replayer
from .decisions import Sketch
from .encoding import Encoding
from .gaussian_process import GaussianProcess
from .history import History, mean
from .neighbourhood import Neighbourhood, Point

Place = tuple[int, Point]
"""A sketch and its decisions."""

_JOINT_STEPS = 75
"""How many joint steps to consider."""

_RANDOM_POINTS = 500
"""How many points of the whole space to consider."""

_MOST_MEASUREMENTS = 256
"""To how many measurements the model is fitted; fitting takes time with their cube."""

_TRIES = 16
"""After how many replays for each that is wanted to be content with fewer."""


@dataclass
class Proposals:
    """A batch, and what is expected of it.

    Parameters
    ----------
    batch : list[Candidate]
        What to measure.
    improvement : float
        The largest improvement that was expected of any step considered, as a share of the best
        throughput; infinite where nothing is known to expect it from.
    """

    batch: list[Candidate] = field(default_factory=list)
    improvement: float = 0.0


class ModelDescent:
    """Proposes steps from the best that was measured.

    It considers the adjacent steps of every decision, joint steps of two or three decisions, and
    random points of the whole space; and proposes those from which a Gaussian process of all
    measurements expects the largest improvement of the throughput.

    Parameters
    ----------
    replayer : Replayer
        Replays traces on the task's workload.
    history : History
        What was measured.
    design_spaces : Sequence[Trace]
        The traces of the task's design spaces, with all their decisions.
    generator : random.Random
        Makes all its choices.
    parallel_limit : int
        The largest parallel extent to try; 0 to leave it as it is.
    without : frozenset[str]
        The parts that are switched off.
    """

    def __init__(
        self,
        replayer: Replayer,
        history: History,
        design_spaces: Sequence[Trace],
        generator: random.Random,
        *,
        parallel_limit: int,
        without: frozenset[str],
    ) -> None:
        self._replayer = replayer
        self._history = history
        self._generator = generator
        self._parallel_limit = parallel_limit
        self._without = without
        self._traces = [trace.simplified(remove_postproc=True) for trace in design_spaces]
        self._sketches = [Sketch.of(trace) for trace in self._traces]
        self._encoding = Encoding([sketch.decisions for sketch in self._sketches])
        self._neighbourhoods: list[dict[Point, Neighbourhood]] = [{} for _ in self._sketches]
        self._places: dict[int, Place | None] = {}
        self._modules: dict[Place, int | None] = {}

    def propose(self, count: int) -> Proposals:
        """The steps that are worth most.

        Parameters
        ----------
        count : int
            The most to propose.

        Returns
        -------
        proposals : Proposals
            Empty when nothing that it considers is new, or nothing was measured with success.
        """
        # Matrices this small are slower on several threads, and far slower on a busy machine.
        with Profiler.timeit("Droplet/Propose"), threadpool_limits(1, user_api="blas"):
            secs = self._measured()
            best = min(secs, key=secs.__getitem__, default=None)
            if best is None or math.isinf(secs[best]):
                return Proposals(improvement=math.inf)
            pool = self._considered(best)
            if not pool:
                return Proposals()
            if "model" in self._without:
                self._generator.shuffle(pool)
                return self._choose(pool, _in_order(len(pool)), count)
            return self._choose(pool, self._by_model(secs, pool), count)

    def untried_neighbours(self, count: int) -> list[Candidate]:
        """Adjacent neighbours of the best that were not measured; empty at a local optimum.

        Parameters
        ----------
        count : int
            The most to return.

        Returns
        -------
        neighbours : list[Candidate]
            Each of another module.
        """
        secs = self._measured()
        best = min(secs, key=secs.__getitem__)
        neighbours = [(best[0], point) for point in self._neighbourhood(best).adjacent(best[1])]
        pool = [place for place in neighbours if not self._is_tried(place)]
        return self._choose(pool, _in_order(len(pool)), count).batch

    def _measured(self) -> dict[Place, float]:
        """The mean time of every place that was measured, in seconds; infinity if it failed."""
        secs: dict[Place, float] = {}
        for module, trace, times in self._history.measurements():
            if module not in self._places:
                self._places[module] = self._place(trace)
            place = self._places[module]
            if place is not None:
                # Other postprocessors may have made another module of the same decisions.
                secs[place] = min(secs.get(place, math.inf), mean(times) if times else math.inf)
                self._modules[place] = module
        return secs

    def _is_tried(self, place: Place) -> bool:
        """Whether what a place makes was measured, or is rejected."""
        module = self._modules.get(place, math.inf)
        return module is None or module in self._places

    def _place(self, trace: Trace) -> Place | None:
        """Where a trace lies; None for one of another design space."""
        trace = trace.simplified(remove_postproc=True)
        sketch = Sketch.of(trace)
        if sketch not in self._sketches:
            return None
        return self._sketches.index(sketch), sketch.read(trace)

    def _trace(self, place: Place) -> Trace:
        return self._sketches[place[0]].write(self._traces[place[0]], place[1])

    def _neighbourhood(self, place: Place) -> Neighbourhood:
        sketch, point = place
        known = self._neighbourhoods[sketch]
        if point not in known:
            known[point] = self._replayer.neighbourhood(
                self._sketches[sketch], self._trace(place), self._parallel_limit
            )
        return known[point]

    def _considered(self, best: Place) -> list[Place]:
        """Steps from the best and points at random, less those that were tried."""
        considered: dict[Place, None] = {}
        generator = self._generator
        sketch, point = best
        neighbourhood = self._neighbourhood(best)
        for neighbour in neighbourhood.adjacent(point):
            considered[sketch, neighbour] = None
        if "joint steps" not in self._without:
            for _ in range(_JOINT_STEPS):
                walked = neighbourhood.walk(point, generator.randint(2, 3), generator)
                considered[sketch, walked] = None
        if "random points" not in self._without:
            for _ in range(_RANDOM_POINTS):
                considered[self._random_place()] = None
        return [place for place in considered if not self._is_tried(place)]

    def _random_place(self) -> Place:
        """A point of any sketch, of locations and extents that are legal somewhere in it."""
        sketch = self._generator.randrange(len(self._sketches))
        known = self._neighbourhoods[sketch]
        if not known:
            self._neighbourhood((sketch, self._sketches[sketch].read(self._traces[sketch])))
        point, neighbourhood = self._generator.choice(list(known.items()))
        return sketch, neighbourhood.redraw(point, self._generator)

    def _by_model(
        self, secs: dict[Place, float], pool: Sequence[Place]
    ) -> Generator[tuple[int, float], bool, None]:
        """The pool's indices by what a Gaussian process expects of them.

        It models the throughput relative to the best, negated: what failed has none, and how slow
        the slow ones are does not matter much.
        """
        best = min(secs.values())
        values = {place: -best / sec for place, sec in _most_telling(secs).items()}
        rejected = [place for place, module in self._modules.items() if module is None]
        values.update(dict.fromkeys(rejected[-len(values) :], 0.0))
        points = self._encoding.vectors(list(values))
        with Profiler.timeit("Droplet/Model"):
            process = GaussianProcess.fit(points, np.array(list(values.values())))
        return by_expected_improvement(process, self._encoding.vectors(pool), -1.0)

    def _choose(
        self, pool: Sequence[Place], order: Generator[tuple[int, float], bool, None], count: int
    ) -> Proposals:
        """Take what is new of a pool, in an order that is told what was taken."""
        proposals = Proposals()
        modules: set[int] = set()
        replays = 0
        found = next(order, None)
        while found is not None and len(proposals.batch) < count:
            if proposals.batch and replays >= _TRIES * count:
                break
            index, improvement = found
            proposals.improvement = max(proposals.improvement, improvement)
            candidate = self._realise(pool[index])
            replays += 1
            is_new = candidate is not None and candidate.module not in modules
            if candidate is not None and is_new:
                modules.add(candidate.module)
                proposals.batch.append(candidate)
            found = _send(order, is_new)
        return proposals

    def _realise(self, place: Place) -> Candidate | None:
        """The candidate of a place; None if it is rejected, or was measured."""
        candidate = self._replayer.replay(self._trace(place))
        self._modules[place] = None if candidate is None else candidate.module
        return None if candidate is None or candidate in self._history else candidate


def _most_telling(secs: dict[Place, float]) -> dict[Place, float]:
    """All measurements, or where there are too many the best half and the latest."""
    if len(secs) <= _MOST_MEASUREMENTS:
        return secs
    half = _MOST_MEASUREMENTS // 2
    best = sorted(secs, key=secs.__getitem__)[:half]
    kept = {*best, *list(secs)[-half:]}
    return {place: sec for place, sec in secs.items() if place in kept}


def _in_order(count: int) -> Generator[tuple[int, float], bool, None]:
    """All indices, of each of which anything may be expected."""
    for index in range(count):
        yield index, math.inf


def _send(order: Generator[tuple[int, float], bool, None], taken: bool) -> tuple[int, float] | None:
    try:
        return order.send(taken)
    except StopIteration:
        return None
