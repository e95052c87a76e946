# SPDX-License-Identifier: Apache-2.0
"""The interface of a draft: scores of schedules before any replay."""

from collections.abc import Iterable
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

import numpy as np
import tvm_ffi

from tvm.target import Target

from ..candidates import ScreenedReplayer
from ..design_spaces import EncodedSpaces
from ..published.decisions import SpacePoint

FIND_DRAFT = "tvm_droplet_ms.find_draft"
"""The global function that finds the draft for a target: ``(target) -> Draft | None``. This package
registers it. Without it, ``"auto"`` means no draft."""


class TaskDraft(Protocol):
    """A draft of one task."""

    random_share: float
    """Share of the schedules that are drawn as TVM draws them, from 0 to 1. They cover the blind
    spots of the draft."""

    def scores(self, sketch: int, points: np.ndarray) -> np.ndarray:
        """The expected throughput of points of a sketch, relative to the best.

        ``points``: their decisions, of shape ``(points, integers)``. Returns values of shape
        ``(points,)``: NaN for unknown points, negative infinity for invalid points.
        """

    def summary(self) -> str:
        """One line about the task, for the log."""


@runtime_checkable
class Mask(Protocol):
    """A draft of one task that knows which schedules are refused."""

    def is_possible(self, sketch: int, points: np.ndarray) -> np.ndarray:
        """False for invalid points, True for all others; see ``TaskDraft.scores``."""


def possible_points(draft: TaskDraft | None, points: Iterable[SpacePoint]) -> list[SpacePoint]:
    """The points that a draft does not know to be refused, in their order."""
    points = list(points)
    if not isinstance(draft, Mask) or not points:
        return points
    is_possible = np.ones(len(points), dtype=bool)
    sketches = np.array([sketch for sketch, _ in points])
    for sketch in np.unique(sketches):
        (places,) = np.nonzero(sketches == sketch)
        decisions = np.array([points[place][1] for place in places], dtype=np.int64)
        is_possible[places] = draft.is_possible(int(sketch), decisions)
    return [point for point, is_one in zip(points, is_possible, strict=True) if is_one]


class Draft(Protocol):
    """Scores schedules by their decisions alone, before anything is measured."""

    def begin(self, spaces: EncodedSpaces, replayer: ScreenedReplayer) -> TaskDraft:
        """Make the draft of a task."""


DraftLike: TypeAlias = Literal["auto"] | Draft | None


def check_draft(draft: Any) -> None:
    """Raise ``ValueError`` for an invalid draft."""
    is_name = isinstance(draft, str) and draft == "auto"
    if draft is not None and not is_name and not callable(getattr(draft, "begin", None)):
        raise ValueError(
            f'draft is {draft!r}, expected "auto", None or an object with `begin`, such as '
            "tvm_droplet_ms.cost_model.draft.SymbolDraft.from_file()"
        )


def find_draft(draft: DraftLike, target: Target) -> Draft | None:
    """The draft for a target; ``"auto"`` means the draft that comes with the package."""
    if draft != "auto":
        return draft
    find = tvm_ffi.get_global_func(FIND_DRAFT, allow_missing=True)
    found: Draft | None = None if find is None else find(target)
    return found
