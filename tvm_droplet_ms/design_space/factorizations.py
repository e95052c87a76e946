# SPDX-License-Identifier: Apache-2.0
"""Factorizations of a loop's extent into tile factors: all of them, or the nearest to another.

Imports no TVM.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise

import numpy as np


def divisors(number: int) -> list[int]:
    """Return the divisors of a positive integer, ascending."""
    small = [factor for factor in range(1, math.isqrt(number) + 1) if number % factor == 0]
    return small + [number // factor for factor in reversed(small) if factor * factor != number]


@lru_cache(maxsize=1024)
def factorizations(extent: int, length: int, max_innermost_factor: int = -1) -> np.ndarray:
    """Return all ordered factorizations of an extent, the values of a ``SamplePerfectTile``.

    ``max_innermost_factor``: the limit of the last factor; -1 for no limit. Returns a read-only
    array of shape ``(factorizations, length)`` in lexicographic order.
    """
    if length == 1:
        fits = max_innermost_factor == -1 or extent <= max_innermost_factor
        tiles = np.full((int(fits), 1), extent)
    else:
        parts = []
        for factor in divisors(extent):
            rest = factorizations(extent // factor, length - 1, max_innermost_factor)
            parts.append(np.insert(rest, 0, factor, axis=1))
        tiles = np.concatenate(parts)
    tiles.flags.writeable = False
    return tiles


def refit_tile(tile: Sequence[int], extent: int, max_innermost_factor: int = -1) -> tuple[int, ...]:
    """Fit tile factors to another extent, and keep the sizes of the inner tiles.

    A kernel keeps the innermost tile in registers and the tiles around it in caches. So each tile,
    from the innermost outward, gets the divisor of the extent that is nearest to its old size. The
    outermost factor takes the rest. ``tile``: the old factors, the innermost last.
    ``max_innermost_factor``: the limit of the innermost factor; -1 for no limit.
    """
    sizes = [1]
    wanted = 1
    for level, factor in enumerate(reversed(tile[1:])):
        wanted *= factor
        within = sizes[-1]
        limit = max_innermost_factor if level == 0 and max_innermost_factor != -1 else extent
        legal = [within * more for more in divisors(extent // within) if within * more <= limit]
        # Break ties in favor of the smaller size.
        sizes.append(min(legal, key=lambda size: (abs(math.log(size / wanted)), size)))
    inner = [size // within for within, size in pairwise(sizes)]
    return (extent // sizes[-1], *reversed(inner))


def extent_distance(extents: Sequence[int], others: Sequence[int]) -> float:
    """Return the sum of absolute log2 ratios between the loop extents of two tasks."""
    pairs = zip(extents, others, strict=True)
    return sum(abs(math.log2(extent / other)) for extent, other in pairs)
