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
"""Explore as "Learning to Optimize Tensor Programs" does: by a cost model, and diversely."""

from collections.abc import Sequence
from random import Random

import numpy as np

from tvm.s_tir import Trace
from tvm.s_tir.meta_schedule.profiler import Profiler
from tvm.s_tir.meta_schedule.runner import RunnerResult

from .annealing import anneal
from .belief import Belief
from .candidates import Candidate, Replayer
from .diversity import BatchSelection
from .explorer import RandomExplorer
from .history import History
from .places import Place, Places


class InformedExplorer:
    """Measures what a cost model expects most of, of many random schedules.

    Parameters
    ----------
    random : RandomExplorer
        Draws.
    belief : Belief
        What the cost model expects.
    places : Places
        The points of the design spaces.
    selection : BatchSelection
        Chooses a batch.
    drawn : int
        How many schedules to choose from.
    """

    def __init__(
        self,
        random: RandomExplorer,
        belief: Belief,
        places: Places,
        selection: BatchSelection,
        drawn: int,
    ) -> None:
        self._random = random
        self._belief = belief
        self._places = places
        self._selection = selection
        self._drawn = drawn
        self._pool: dict[int, tuple[Place, Candidate]] = {}

    def enter(self, batch_size: int) -> None:
        """Draw what to choose from."""
        self._pool.clear()
        self._draw()

    def _draw(self) -> None:
        for candidate in self._random.ask(self._drawn):
            place = self._places.find(candidate.trace)
            if place is not None:
                self._pool[candidate.module] = place, candidate
        self._belief.expect(list(self._pool.values()))

    def leave(self) -> None:
        """Let go of what was drawn; what is expected of it is kept."""
        self._pool.clear()

    def ask(self, count: int) -> list[Candidate]:
        """Candidates that were never measured.

        Parameters
        ----------
        count : int
            The most that may be returned.
        """
        if len(self._pool) < count:
            self._draw()
        pool = list(self._pool.values())
        expected = np.array([self._belief.expected[place] for place, _ in pool])
        chosen = self._selection.choose(_covers(pool), expected, count)
        batch = [pool[index][1] for index in chosen]
        for candidate in batch:
            del self._pool[candidate.module]
        return batch

    def tell(self, candidates: Sequence[Candidate], results: Sequence[RunnerResult]) -> None:
        """What a model expects does not depend on results."""


class AnnealingExplorer:
    """Anneals schedules on what a cost model says, and measures a batch of what it came by.

    The explorer of "Learning to Optimize Tensor Programs" (Chen et al., 2018, section 3.3): the
    chains go on from batch to batch, and a move draws one decision anew.

    Parameters
    ----------
    random : RandomExplorer
        Draws where the chains begin.
    belief : Belief
        Asks the cost model.
    places : Places
        The points of the design spaces.
    selection : BatchSelection
        Chooses a batch.
    replayer : Replayer
        Replays traces on the task's workload.
    history : History
        What was measured.
    generator : random.Random
        Makes all choices.
    chains : int
        How many chains.
    steps : int
        How many moves each tries for a batch. The paper's 500 take seconds each here, where a move
        is a replay.
    """

    def __init__(
        self,
        random: RandomExplorer,
        belief: Belief,
        places: Places,
        selection: BatchSelection,
        replayer: Replayer,
        history: History,
        generator: Random,
        *,
        chains: int,
        steps: int,
    ) -> None:
        self._random = random
        self._belief = belief
        self._places = places
        self._selection = selection
        self._replayer = replayer
        self._history = history
        self._generator = generator
        self._count = chains
        self._steps = steps
        self._chains: list[Candidate] = []

    def enter(self, batch_size: int) -> None:
        """The chains go on where they were."""

    def leave(self) -> None:
        """Let go of the chains."""
        self._chains.clear()

    def ask(self, count: int) -> list[Candidate]:
        """Candidates that were never measured.

        Parameters
        ----------
        count : int
            The most that may be returned.
        """
        with Profiler.timeit("Droplet/Explore"):
            if not self._chains:
                self._chains = self._random.ask(self._count)
            visited: dict[int, tuple[Candidate, float]] = {}

            def score(candidates: Sequence[Candidate]) -> list[float]:
                scores = [float(one) for one in self._belief.predict(candidates)]
                for candidate, value in zip(candidates, scores, strict=True):
                    visited[candidate.module] = candidate, value
                return scores

            self._chains = anneal(
                self._chains,
                score(self._chains) if self._chains else [],
                self._redraw_one,
                score,
                steps=self._steps,
                generator=self._generator,
            )
            return self._choose(visited, count)

    def _redraw_one(self, candidate: Candidate) -> Candidate | None:
        """A candidate with one decision drawn anew; None if it is rejected."""
        trace = candidate.trace.simplified(remove_postproc=True)
        decisions = dict(trace.decisions.items())
        if not decisions:
            return None
        del decisions[self._generator.choice([inst for inst in trace.insts if inst in decisions])]
        return self._replayer.replay(Trace(trace.insts, decisions))

    def _choose(self, visited: dict[int, tuple[Candidate, float]], count: int) -> list[Candidate]:
        found = [
            ((place, candidate), value)
            for candidate, value in visited.values()
            if candidate not in self._history
            and (place := self._places.find(candidate.trace)) is not None
        ]
        pool = [one for one, _ in found]
        expected = np.array([value for _, value in found])
        chosen = self._selection.choose(_covers(pool), expected, count)
        batch = {pool[index][1].module: pool[index][1] for index in chosen}
        if len(batch) < count:
            # The chains have seen too little that is new.
            for candidate in self._random.ask(count):
                batch.setdefault(candidate.module, candidate)
        return list(batch.values())[:count]

    def tell(self, candidates: Sequence[Candidate], results: Sequence[RunnerResult]) -> None:
        """The cost model learns of results by itself."""


def _covers(pool: Sequence[tuple[Place, Candidate]]) -> list[frozenset[tuple[int, int]]]:
    """The values of the decisions of each, the sketch for one of them."""
    return [frozenset(enumerate((sketch, *point))) for (sketch, point), _ in pool]
