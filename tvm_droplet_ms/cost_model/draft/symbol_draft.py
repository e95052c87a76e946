# SPDX-License-Identifier: Apache-2.0
"""A draft that scores schedules by trees on their symbols."""

import os
from collections import Counter
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from ...search_strategy.candidates import ScreenedReplayer
from ...search_strategy.design_spaces import EncodedSpaces
from ...search_strategy.published.decision_kinds import COMPUTE_LOCATION
from .block_tree import NotUnderstood
from .draft_file import read_draft, shipped_draft
from .key_symbols import Key, KeySymbols, key_of

MOST_KEYS = 64
"""The maximum number of keys drafted per sketch; the keys with the most points come first."""

LEAST_POINTS = 16
"""The fewest points of a key that are worth a replay."""


class Scorer(Protocol):
    """Scores symbols, such as the trees of ``fit_draft``."""

    def predict(self, features: np.ndarray) -> np.ndarray:
        """Predict the throughput of rows of symbols, of shape ``(points,)``."""


@dataclass(frozen=True)
class SymbolDraft:
    """Scores schedules by trees on their symbols.

    Parameters
    ----------
    trees : Scorer
        The trees of ``fit_draft``.
    """

    trees: Scorer

    @staticmethod
    def from_file(path: str | os.PathLike[str] | None = None) -> "SymbolDraft":
        """Read a draft.

        Parameters
        ----------
        path : str | os.PathLike[str] | None
            The file; None for the draft for CPUs that comes with the package.

        Raises
        ------
        DraftFileError
            If the file holds no draft that this version can use.
        """
        return SymbolDraft(shipped_draft() if path is None else read_draft(path))

    def begin(self, spaces: EncodedSpaces, replayer: ScreenedReplayer) -> "TaskSymbols":
        """Make the draft of a task."""
        return TaskSymbols(self.trees, spaces, replayer)


RANDOM_SHARE = 0.25
"""The share of the schedules that are drawn as TVM draws them."""


@dataclass
class TaskSymbols:
    """The draft of one task; keys are compiled on demand.

    - ``trees``: score symbols.
    - ``spaces``: the points of the task.
    - ``replayer``: makes a schedule of each key.
    - ``random_share``: see ``TaskDraft``.
    """

    trees: Scorer
    spaces: EncodedSpaces
    replayer: ScreenedReplayer
    random_share: float = RANDOM_SHARE
    _keys: dict[tuple[int, Key], KeySymbols | None] = field(default_factory=dict)
    _unknown: Counter[str] = field(default_factory=Counter)

    def scores(self, sketch: int, points: np.ndarray) -> np.ndarray:
        """The expected throughput of points; see ``TaskDraft``."""
        scores = np.full(len(points), np.nan)
        if not len(points):
            return scores
        columns = [
            column
            for decision in self.spaces.sketches[sketch].decisions
            if decision.kind.name == COMPUTE_LOCATION.name
            for column in range(decision.start, decision.start + decision.length)
        ]
        keys, numbers, counts = np.unique(
            points[:, columns], axis=0, return_inverse=True, return_counts=True
        )
        for number in np.argsort(-counts, kind="stable")[:MOST_KEYS]:
            rows = np.flatnonzero(numbers.ravel() == number)
            if len(rows) < min(LEAST_POINTS, len(points)):
                continue
            of_key = self._key(sketch, tuple(int(value) for value in keys[number]), points[rows])
            if of_key is not None:
                scores[rows] = self.trees.predict(of_key.of(points[rows]))
        return scores

    def _key(self, sketch: int, key: Key, points: np.ndarray) -> KeySymbols | None:
        if (sketch, key) not in self._keys:
            self._keys[sketch, key] = self._compile(sketch, key, points)
        return self._keys[sketch, key]

    def _compile(self, sketch: int, key: Key, points: np.ndarray) -> KeySymbols | None:
        """Compile a key from the first of a few points that TVM realizes in it."""
        ours = self.spaces.sketches[sketch]
        for row in points[:: max(1, len(points) // 4)][:4]:
            schedule = self.replayer.new_schedule()
            trace = self.spaces.trace((sketch, tuple(row.tolist())))
            try:
                trace.apply_to_schedule(schedule, remove_postproc=True)
            except Exception:  # TVM raises errors of many types for illegal decisions.
                continue
            realized = ours.read(schedule.trace.simplified(remove_postproc=True))
            if key_of(ours, realized) != key:
                continue
            try:
                return KeySymbols(ours, schedule)
            except NotUnderstood as error:
                self._unknown[str(error)] += 1
                return None
        self._unknown["compute locations that TVM does not keep"] += 1
        return None

    def summary(self) -> str:
        """The number of drafted keys, and the reasons why the others are not drafted."""
        drafted = sum(key is not None for key in self._keys.values())
        text = f"drafted {drafted} of {len(self._keys)} keys"
        reasons = ", ".join(f"{reason} ({count})" for reason, count in self._unknown.most_common())
        return f"{text}; not {reasons}" if reasons else text
