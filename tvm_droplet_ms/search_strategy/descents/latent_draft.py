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
"""The points that a belief expects most of, among thousands that nothing has replayed."""

import random
from collections.abc import Callable, Sequence

import numpy as np

from ..design_spaces import DesignSpaces, SpacePoint
from ..latent_space import LatentAxis, LatentSpace
from .local_moves import LocalMoves

DRAFT_POINTS = 6000
"""Points that are drafted for a batch: a third drawn at random, a third with some decisions of good
points changed, a third recombined from good points."""

Score = Callable[[int, np.ndarray], np.ndarray]
"""The scores of points of a sketch, whose decisions are rows; the higher, the better."""


class LatentDraft:
    """Drafts points of all design spaces.

    Parameters
    ----------
    spaces : DesignSpaces
        The points of the design spaces.
    moves : LocalMoves
        Knows the values of their decisions, as far as they were probed.
    generator : random.Random
        Seeds all random choices.
    """

    def __init__(self, spaces: DesignSpaces, moves: LocalMoves, generator: random.Random) -> None:
        self._spaces = spaces
        self._moves = moves
        self._generator = np.random.default_rng(generator.getrandbits(64))

    def best(self, parents: Sequence[SpacePoint], score: Score, count: int) -> list[SpacePoint]:
        """The points of the highest scores, each once, the highest first.

        Parameters
        ----------
        parents : Sequence[SpacePoint]
            Good points.
        score : Score
            Scores points.
        count : int
            The most to return.
        """
        found: list[tuple[float, SpacePoint]] = []
        for sketch in range(len(self._spaces.sketches)):
            points = self._points(sketch, [own for which, own in parents if which == sketch])
            points = np.unique(points, axis=0)
            scores = score(sketch, points)
            for row in np.argsort(-scores)[:count]:
                found.append((float(scores[row]), (sketch, tuple(points[row].tolist()))))
        found.sort(key=lambda pair: -pair[0])
        return [point for _, point in found[:count]]

    def _points(self, sketch: int, parents: Sequence[tuple[int, ...]]) -> np.ndarray:
        space = self._space(sketch)
        share = DRAFT_POINTS // (3 * len(self._spaces.sketches))
        drawn = space.draw(share, self._generator)
        if not parents:
            return drawn
        good = np.array(parents, dtype=np.int64)
        changed = space.change(good, share, self._generator)
        return np.vstack([drawn, changed, space.recombine(good, share, self._generator)])

    def _space(self, sketch: int) -> LatentSpace:
        """The values that each coordinate has anywhere: which are legal depends on the others."""
        found: dict[int, list[np.ndarray]] = {}
        for point, neighbourhood in self._moves.neighbourhoods(sketch).items():
            for axis in neighbourhood.axes:
                start, own = axis.values(point)
                values = found.setdefault(start, [])
                if not any(np.array_equal(own, other) for other in values):
                    values.append(own)
        axes = []
        for start, values in found.items():
            # A tile of an extent that other decisions determine is kept as it is.
            if len(values) == 1 or values[0].shape[1] == 1:
                axes.append(LatentAxis(start, np.unique(np.concatenate(values), axis=0)))
        return LatentSpace(axes, self._spaces.start(sketch))
