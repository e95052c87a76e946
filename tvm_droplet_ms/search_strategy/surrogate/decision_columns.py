# SPDX-License-Identifier: Apache-2.0
"""Each kind of decision as the surrogate sees it: its values, and their columns. Imports no TVM."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...design_space.factorizations import factorizations

ONE_HOT_COLUMNS = 32
"""Columns of a decision that is no tile. Values that differ by a multiple of this share one."""

ONE_HOT_SCALE = 1.0
"""The value of a column. Two values of a decision lie the square root of 2 as far apart."""


class DecisionColumns:
    """A decision without a distance: the compute locations. Other kinds differ from it."""

    def values(self, inst: Any, seen: np.ndarray) -> np.ndarray:
        """Values that the decision may have, given those that it has in some points.

        Those that were seen: which others are legal, only replays can tell. ``seen``: of shape
        ``(points, length)``, at least one. Returns values of shape ``(values, length)``.
        """
        return np.unique(seen, axis=0)

    def width(self, length: int) -> int:
        """The number of columns that ``encode`` makes of a decision of some integers."""
        return ONE_HOT_COLUMNS

    def encode(self, values: np.ndarray) -> np.ndarray:
        """Columns of shape ``(points, columns)`` for values of shape ``(points, length)``.

        A column for each value: the loop at a location is another one in every sketch, and the
        difference of two says nothing of how different their schedules are.
        """
        columns = np.zeros((len(values), ONE_HOT_COLUMNS))
        columns[np.arange(len(values)), values[:, 0].astype(int) % ONE_HOT_COLUMNS] = ONE_HOT_SCALE
        return columns


class CategoricalColumns(DecisionColumns):
    """A choice: one-hot too, but all its values are known."""

    def values(self, inst: Any, seen: np.ndarray) -> np.ndarray:
        """All indices."""
        return np.arange(len(inst.attrs[0]))[:, None]


class TileColumns(DecisionColumns):
    """A factorization of a loop's extent."""

    def values(self, inst: Any, seen: np.ndarray) -> np.ndarray:
        """All factorizations; those that were seen where other decisions determine the extent."""
        extents = np.unique(seen.prod(axis=1))
        if len(extents) > 1:
            return np.unique(seen, axis=0)
        return factorizations(int(extents[0]), seen.shape[1], int(inst.attrs[1]))

    def width(self, length: int) -> int:
        """The factors, and the products that are neither a factor nor the extent."""
        return max(1, 2 * length - 2)

    def encode(self, values: np.ndarray) -> np.ndarray:
        """Logarithms to base 2 of the factors and of the products of the inner ones.

        The products are the extents that a loop's body touches.
        """
        logarithms = np.log2(np.maximum(values, 1))
        if values.shape[1] == 1:
            return np.asarray(logarithms)
        within = np.cumsum(logarithms[:, ::-1], axis=1)[:, ::-1]
        return np.hstack([logarithms, within[:, 1:-1]])


class ExtentColumns(DecisionColumns):
    """A parallel extent: which others give another module, only replays can tell."""

    def width(self, length: int) -> int:
        """One column."""
        return 1

    def encode(self, values: np.ndarray) -> np.ndarray:
        """The logarithm to base 2."""
        return np.asarray(np.log2(np.maximum(values, 1)))


COLUMNS: Mapping[str, DecisionColumns] = {
    "SamplePerfectTile": TileColumns(),
    "SampleCategorical": CategoricalColumns(),
    "SampleComputeLocation": DecisionColumns(),
    "Annotate": ExtentColumns(),
}
"""By the name of the kind of decision; see ``published.decision_kinds``."""
