# SPDX-License-Identifier: Apache-2.0
"""Factorisations of a loop extent: the values of a tile. Imports no TVM."""

from functools import lru_cache

import numpy as np

from .refit import divisors


@lru_cache(maxsize=1024)
def factorisations(extent: int, length: int, max_innermost_factor: int = -1) -> np.ndarray:
    """All ordered factorisations of an extent: the values of a ``SamplePerfectTile``.

    ``extent``: the product of each row. ``length``: the number of factors. At least 1.
    ``max_innermost_factor``: the limit of the last factor; -1 for none. Returns values of shape
    ``(factorisations, length)``, in lexical order, read-only.
    """
    if length == 1:
        fits = max_innermost_factor == -1 or extent <= max_innermost_factor
        tiles = np.full((int(fits), 1), extent)
    else:
        parts = []
        for factor in divisors(extent):
            rest = factorisations(extent // factor, length - 1, max_innermost_factor)
            parts.append(np.insert(rest, 0, factor, axis=1))
        tiles = np.concatenate(parts)
    tiles.flags.writeable = False
    return tiles
