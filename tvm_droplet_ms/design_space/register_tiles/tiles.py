# SPDX-License-Identifier: Apache-2.0
"""Register tiles for float products. Imports no TVM.

A tile has a sum for each pair of a row and a vector. It loads each row and each vector once per
step. The rows need not be a multiple of the tile's rows: the remainder is a smaller tile.
"""

from collections.abc import Iterable

BUSY_STEPS = 8.0
"""Multiply-adds that keep two units with a latency of four cycles busy."""

OVERHEAD = 0.8
"""Overhead of a step, in multiply-adds; see ``share_of_peak``."""

MOST_ROWS, MOST_VECTORS = 14, 3

SPACES = 2
"""Maximum number of offered tile lengths."""

CLOSE = 0.9
"""Minimum speed of an offered tile, relative to the fastest tile."""


def share_of_peak(rows: int, tall: int, vectors: int) -> float:
    """Estimate the share of a core's peak arithmetic that tiled products reach.

    The longest of a tile's multiply-adds, its loads and the units' pipelines determines a step's
    time. Estimates and, in parentheses, measurements of handwritten tiles (AVX2, Zen 4; 3x3
    convolution of 56x56x64): 4x2 0.91 (0.91), 5x2 0.93 (0.93), 6x2 0.94 (0.96), 7x1 0.80 (0.80),
    2x2 0.45 (0.50). ``rows``: the total number of rows. ``tall``, ``vectors``: the rows and vectors
    of a tile.
    """
    full, rest = divmod(rows, tall)
    steps = full * _step(tall, vectors) + (_step(rest, vectors) if rest else 0.0)
    return rows * vectors / steps


def _step(tall: int, vectors: int) -> float:
    return max(float(tall * vectors), float(tall + vectors), BUSY_STEPS) + OVERHEAD


def fits(tall: int, vectors: int, registers: int) -> bool:
    """Return whether registers hold a tile's sums, its vectors and one row.

    AVX2's 16 registers do not hold eight or more rows of one vector: LLVM loads the rows of two
    steps ahead. AVX-512 loads a row's number as part of the multiplication.
    """
    is_ahead = vectors == 1 and tall >= BUSY_STEPS and registers <= 16
    return tall * vectors + vectors + 1 <= registers and not is_ahead


def offered_tiles(rows: int, vectors: int, registers: int) -> dict[int, list[int]]:
    """Return the tiles to choose from: the numbers of rows, ascending, by number of vectors.

    ``rows``, ``vectors``: the extents of the product. ``registers``: the number of registers of the
    core.
    """
    shares: dict[int, dict[int, float]] = {}
    for length in _dividing(vectors):
        talls = [n for n in range(1, min(rows, MOST_ROWS) + 1) if fits(n, length, registers)]
        shares[length] = {tall: share_of_peak(rows, tall, length) for tall in talls}
    best = sorted(shares, key=lambda length: -max(shares[length].values()))[:SPACES]
    fastest = max((max(shares[length].values()) for length in best), default=0.0)
    offered = {
        length: [tall for tall, share in shares[length].items() if share >= CLOSE * fastest]
        for length in best
    }
    return {length: talls for length, talls in offered.items() if talls}


def _dividing(vectors: int) -> Iterable[int]:
    return (n for n in range(1, MOST_VECTORS + 1) if vectors % n == 0)
