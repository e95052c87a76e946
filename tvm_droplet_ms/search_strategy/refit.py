# SPDX-License-Identifier: Apache-2.0
"""Tile factors of one loop for a loop of another extent. Imports no TVM."""

import math
from collections.abc import Sequence
from itertools import pairwise


def divisors(number: int) -> list[int]:
    """The divisors of a positive integer, ascending."""
    small = [factor for factor in range(1, math.isqrt(number) + 1) if number % factor == 0]
    return small + [number // factor for factor in reversed(small) if factor * factor != number]


def refit_tile(tile: Sequence[int], extent: int, max_innermost_factor: int = -1) -> tuple[int, ...]:
    """Tile factors of another extent, whose inner tiles are as large as they were.

    The innermost tile is what a kernel keeps in registers, those around it what it keeps in caches.
    So each tile in turn, from the innermost outwards, gets the size nearest to its old one that
    divides the extent; the outermost factor takes the rest. ``tile``: the old factors, the
    innermost last. Positive, at least one. ``extent``: the new extent. Positive.
    ``max_innermost_factor``: the limit of the innermost factor; -1 for none. As many factors as
    before; their product is `extent`.
    """
    sizes = [1]
    wanted = 1
    for level, factor in enumerate(reversed(tile[1:])):
        wanted *= factor
        within = sizes[-1]
        limit = max_innermost_factor if level == 0 and max_innermost_factor != -1 else extent
        legal = [within * more for more in divisors(extent // within) if within * more <= limit]
        # Of two equally near sizes the smaller one.
        sizes.append(min(legal, key=lambda size: (abs(math.log(size / wanted)), size)))
    inner = [size // within for within, size in pairwise(sizes)]
    return (extent // sizes[-1], *reversed(inner))


def extent_distance(extents: Sequence[int], others: Sequence[int]) -> float:
    """The distance of two tasks of one structure: the doublings between their loops' extents.

    ``extents``, ``others``: the extents of the tiled loops, in the same order. Returns the sum of
    the doublings, in either direction.
    """
    pairs = zip(extents, others, strict=True)
    return sum(abs(math.log2(extent / other)) for extent, other in pairs)
