# SPDX-License-Identifier: Apache-2.0
"""Finds the points with the highest scores among thousands, without replays."""

import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from ..design_spaces import EncodedSpaces
from ..published.decisions import SpacePoint
from ..published.neighborhood import Point
from ..surrogate.latent_space import LatentSpace

DRAFT_POINTS = 6000
"""Number of points drafted for a batch. A third is drawn at random. If there are good points, a
third has some of their decisions changed, and a third is recombined from them."""

Score = Callable[[int, np.ndarray], np.ndarray]
"""Scores the points of a sketch, whose decisions are rows; higher is better."""


class LatentDraft:
    """Drafts points of all design spaces. ``generator``: seeds all random choices."""

    def __init__(self, spaces: EncodedSpaces, generator: random.Random) -> None:
        self._spaces = spaces
        self._generator = np.random.default_rng(generator.getrandbits(64))

    def best(
        self, seen: Iterable[SpacePoint], parents: Iterable[SpacePoint], score: Score, count: int
    ) -> list[SpacePoint]:
        """The points with the highest scores above negative infinity, each once, the highest first.

        ``seen``: points that show which values the decisions have. ``parents``: good points.
        ``count``: the most points to return.
        """
        seen_of, parents_of = _by_sketch(seen), _by_sketch(parents)
        found: list[tuple[float, SpacePoint]] = []
        for sketch in range(len(self._spaces.sketches)):
            space = self._spaces.latent_space(sketch, seen_of[sketch])
            points = np.unique(self._points(space, parents_of[sketch]), axis=0)
            scores = score(sketch, points)
            known = np.flatnonzero(scores > -np.inf)
            for row in known[np.argsort(-scores[known])][:count]:
                found.append((float(scores[row]), (sketch, tuple(points[row].tolist()))))
        found.sort(key=lambda pair: -pair[0])
        return [point for _, point in found[:count]]

    def _points(self, space: LatentSpace, parents: Sequence[Point]) -> np.ndarray:
        share = DRAFT_POINTS // (3 * len(self._spaces.sketches))
        drawn = space.draw(share, self._generator)
        if not parents:
            return drawn
        good = np.array(parents, dtype=np.int64)
        changed = space.change(good, share, self._generator)
        return np.vstack([drawn, changed, space.recombine(good, share, self._generator)])


def _by_sketch(points: Iterable[SpacePoint]) -> defaultdict[int, list[Point]]:
    found: defaultdict[int, list[Point]] = defaultdict(list)
    for sketch, decisions in points:
        found[sketch].append(decisions)
    return found
