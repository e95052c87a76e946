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
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
from threadpoolctl import threadpool_limits

from tvm.s_tir.meta_schedule.profiler import Profiler

from .acquisition import by_expected_improvement
from .belief import Belief
from .candidates import Candidate, Replayer
from .gaussian_process import GaussianProcess, Prediction
from .history import History, mean
from .kriging import Kriging
from .neighbourhood import Neighbourhood, Point
from .places import Place, Places

_JOINT_STEPS = 75
"""How many joint steps to consider."""

_RANDOM_POINTS = 500
"""How many points of the whole space to consider."""

_DRAFTED, _ASKED_OF_STEPS, _ASKED_OF_RANDOM = 32, 8, 16
"""Of how many points, for each batch, a cost model is asked, which takes a replay of each: those
that the measurements alone promise most of, steps, and random points. What it was asked about
before is considered again."""

_ASKED_UNTIL = 32
"""From how many measurements on no cost model is asked: they say more, and asking takes time."""

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
    measurements expects the largest improvement of the throughput. Where a cost model knows
    something, and little was measured, the process is one of what the measurements differ by from
    what it expected.

    Parameters
    ----------
    replayer : Replayer
        Replays traces on the task's workload.
    history : History
        What was measured.
    places : Places
        The points of the task's design spaces.
    generator : random.Random
        Makes all its choices.
    parallel_limit : int
        The largest parallel extent to try; 0 to leave it as it is.
    without : frozenset[str]
        The parts that are switched off.
    belief : Belief | None
        What a cost model expects; None where none knows anything.
    """

    def __init__(
        self,
        replayer: Replayer,
        history: History,
        places: Places,
        generator: random.Random,
        *,
        parallel_limit: int,
        without: frozenset[str],
        belief: Belief | None = None,
    ) -> None:
        self._replayer = replayer
        self._history = history
        self._generator = generator
        self._parallel_limit = parallel_limit
        self._without = without
        self._belief = belief
        self._places = places
        self._neighbourhoods: list[dict[Point, Neighbourhood]] = [{} for _ in places.sketches]
        self._found: dict[int, Place | None] = {}
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
            if len(secs) >= _ASKED_UNTIL:
                self._belief = None
            pool = self._considered(best, secs)
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
            if module not in self._found:
                self._found[module] = self._places.find(trace)
            place = self._found[module]
            if place is not None:
                # Other postprocessors may have made another module of the same decisions.
                secs[place] = min(secs.get(place, math.inf), mean(times) if times else math.inf)
                self._modules[place] = module
        return secs

    def _is_tried(self, place: Place) -> bool:
        """Whether what a place makes was measured, or is rejected."""
        module = self._modules.get(place, math.inf)
        return module is None or module in self._found

    def _neighbourhood(self, place: Place) -> Neighbourhood:
        sketch, point = place
        known = self._neighbourhoods[sketch]
        if point not in known:
            known[point] = self._replayer.neighbourhood(
                self._places.sketches[sketch], self._places.trace(place), self._parallel_limit
            )
        return known[point]

    def _considered(self, best: Place, secs: dict[Place, float]) -> list[Place]:
        """What to choose from: steps from the best and points at random, none of them tried.

        With a cost model only some of either, and all that it was asked about before.
        """
        steps = self._steps(best)
        if self._belief is None:
            pool = steps | self._random_points(_RANDOM_POINTS)
        else:
            known = self._belief.expected
            drafted = self._drafted(secs, steps | self._random_points(_RANDOM_POINTS))
            new = [place for place in steps if place not in known]
            new = self._generator.sample(new, min(_ASKED_OF_STEPS, len(new)))
            self._ask([*secs, *drafted, *new, *self._random_points(_ASKED_OF_RANDOM)])
            pool = dict.fromkeys(known)
        return [place for place in pool if not self._is_tried(place)]

    def _steps(self, best: Place) -> dict[Place, None]:
        """The adjacent steps from the best, and joint steps."""
        sketch, point = best
        neighbourhood = self._neighbourhood(best)
        steps = dict.fromkeys((sketch, near) for near in neighbourhood.adjacent(point))
        if "joint steps" not in self._without:
            for _ in range(_JOINT_STEPS):
                length = self._generator.randint(2, 3)
                steps[sketch, neighbourhood.walk(point, length, self._generator)] = None
        return steps

    def _random_points(self, count: int) -> dict[Place, None]:
        if "random points" in self._without:
            return {}
        return dict.fromkeys(self._random_place() for _ in range(count))

    def _drafted(self, secs: dict[Place, float], pool: Iterable[Place]) -> list[Place]:
        """What the measurements alone promise most of, and the cost model was not asked about."""
        assert self._belief is not None
        new = [
            place
            for place in pool
            if place not in self._belief.expected and not self._is_tried(place)
        ]
        if not new:
            return []
        values = self._values(secs)
        process = GaussianProcess.fit(
            self._places.vectors(list(values)), np.array(list(values.values()))
        )
        drafted = by_expected_improvement(process.predict(self._places.vectors(new)), -1.0)
        return [new[index] for index, _ in islice(drafted, _DRAFTED)]

    def _ask(self, places: Sequence[Place]) -> None:
        """Ask the cost model about the places that it was not asked about."""
        assert self._belief is not None
        asked = []
        for place in dict.fromkeys(places):
            if place in self._belief.expected or self._modules.get(place, 0) is None:
                continue
            candidate = self._replayer.replay(self._places.trace(place))
            self._modules.setdefault(place, None if candidate is None else candidate.module)
            if candidate is not None:
                asked.append((place, candidate))
        self._belief.expect(asked)

    def _random_place(self) -> Place:
        """A point of any sketch, of locations and extents that are legal somewhere in it."""
        sketch = self._generator.randrange(len(self._places.sketches))
        known = self._neighbourhoods[sketch]
        if not known:
            self._neighbourhood((sketch, self._places.start(sketch)))
        point, neighbourhood = self._generator.choice(list(known.items()))
        return sketch, neighbourhood.redraw(point, self._generator)

    def _by_model(
        self, secs: dict[Place, float], pool: Sequence[Place]
    ) -> Generator[tuple[int, float], bool, None]:
        """The pool's indices by what a Gaussian process expects of them."""
        with Profiler.timeit("Droplet/Model"):
            prediction = self._predict(self._values(secs), pool)
        return by_expected_improvement(prediction, -1.0)

    def _values(self, secs: dict[Place, float]) -> dict[Place, float]:
        """What is modelled: the throughput relative to the best, negated.

        What failed or was rejected has none, and how slow the slow ones are does not matter much.
        """
        best = min(secs.values())
        values = {place: -best / sec for place, sec in _most_telling(secs).items()}
        rejected = [place for place, module in self._modules.items() if module is None]
        values.update(dict.fromkeys(rejected[-len(values) :], 0.0))
        return values

    def _predict(self, values: dict[Place, float], pool: Sequence[Place]) -> Prediction:
        points, wanted = self._places.vectors(list(values)), self._places.vectors(pool)
        measured = np.array(list(values.values()))
        if self._belief is None:
            return GaussianProcess.fit(points, measured).predict(wanted)
        expected = self._belief.expected
        before = np.array([-expected.get(place, 0.0) for place in values])
        kriging = Kriging.fit(points, measured, before)
        return kriging.predict(wanted, np.array([-expected[place] for place in pool]))

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
        candidate = self._replayer.replay(self._places.trace(place))
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
