# SPDX-License-Identifier: Apache-2.0
"""Simulated annealing of many chains at once. Imports no TVM."""

import math
import random
from collections.abc import Callable, Hashable, Sequence
from typing import Generic, TypeVar

import numpy as np


def submodular_pick(
    scores: np.ndarray, covers: Sequence[frozenset[Hashable]], count: int, alpha: float
) -> list[int]:
    """Greedily pick a batch that is promising and diverse.

    It maximises sum(scores of the batch) + alpha * |union of what the batch covers|: the objective
    of "Learning to Optimize Tensor Programs" (Chen et al., 2018, section 3.3), where a candidate
    covers the value of each of its components. With non-negative scores the objective is monotone
    and submodular, so that the greedy batch has at least 1 - 1/e of the best batch's value
    (Nemhauser et al., 1978).

    - ``scores``: of shape ``(candidates,)``; the higher, the better.
    - ``covers``: the components that each candidate covers.
    - ``count``: the size of the batch.
    - ``alpha``: the worth of one more covered component, in the unit of the scores; 0 picks the
      highest scores.

    Returns indices in the order in which they were picked, ``count`` or as many as there are.
    """
    left = list(range(len(scores)))
    covered: set[Hashable] = set()
    batch: list[int] = []
    while left and len(batch) < count:
        picked = max(left, key=lambda index: scores[index] + alpha * len(covers[index] - covered))
        left.remove(picked)
        batch.append(picked)
        covered |= covers[picked]
    return batch


State = TypeVar("State")


class TopStates(Generic[State]):
    """The best distinct states that annealing has visited.

    ``size``: the most states to keep. At least 1. ``key``: tells states apart. ``is_excluded``:
    whether a state is not wanted: it was measured before.
    """

    def __init__(
        self, size: int, key: Callable[[State], Hashable], is_excluded: Callable[[State], bool]
    ) -> None:
        self._size = size
        self._key = key
        self._is_excluded = is_excluded
        self._kept: dict[Hashable, tuple[float, State]] = {}

    def add(self, states: Sequence[State], scores: Sequence[float]) -> bool:
        """Offer states. Returns whether any of them is among the best."""
        changed = False
        for state, score in zip(states, scores, strict=True):
            key = self._key(state)
            if key in self._kept or self._is_excluded(state):
                continue
            if len(self._kept) < self._size:
                self._kept[key] = score, state
                changed = True
                continue
            worst = min(self._kept, key=lambda kept: self._kept[kept][0])
            if score > self._kept[worst][0]:
                del self._kept[worst]
                self._kept[key] = score, state
                changed = True
        return changed

    def best(self) -> list[tuple[float, State]]:
        """The kept states with their scores, the best first."""
        return sorted(self._kept.values(), key=lambda scored: -scored[0])


def anneal(
    chains: Sequence[State],
    scores: Sequence[float],
    mutate: Callable[[State], State | None],
    score: Callable[[Sequence[State]], Sequence[float]],
    *,
    steps: int,
    early_stop: int,
    top: TopStates[State],
    generator: random.Random,
) -> list[State]:
    """Walk each chain towards higher scores, downhill too while it is hot.

    The explorer of "Learning to Optimize Tensor Programs" (Chen et al., 2018, section 3.3), with
    the cooling, the acceptance and the early stop of AutoTVM's ``sa_model_optimizer.py`` (TVM 0.14
    was the last to have it): the temperature falls from 1 to 0 in equal steps, and a chain moves
    with probability exp(min((new - old) / (temperature + 1e-5), 0)).

    - ``chains``: the present states.
    - ``scores``: the score of each, finite.
    - ``mutate``: a state near a given one; None where there is none, and the chain stays.
    - ``score``: scores states, the higher the better; it is asked about the moves of all chains at
      once.
    - ``steps``: the moves of each chain, at most.
    - ``early_stop``: the moves without a change of ``top`` after which annealing ends.
    - ``top``: collects the best states visited.
    - ``generator``: makes all choices.

    Returns the last states, from which the next batch goes on.
    """
    states, heights = list(chains), list(scores)
    top.add(states, heights)
    changed = 0
    for step in range(steps):
        if step >= changed + early_stop:
            break
        temperature = 1.0 - step / steps
        moved = [(chain, mutate(state)) for chain, state in enumerate(states)]
        moves = [(chain, state) for chain, state in moved if state is not None]
        if not moves:
            break
        new_states = [state for _, state in moves]
        new_heights = [float(height) for height in score(new_states)]
        if top.add(new_states, new_heights):
            changed = step
        for (chain, state), height in zip(moves, new_heights, strict=True):
            gain = (height - heights[chain]) / (temperature + 1e-5)
            if generator.random() < math.exp(min(gain, 0.0)):
                states[chain], heights[chain] = state, height
    return states
