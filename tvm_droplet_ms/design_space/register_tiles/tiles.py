# SPDX-License-Identifier: Apache-2.0
"""The register tiles that a core computes products of floats with. Imports no TVM.

A tile of some rows and vectors has a sum for each pair, and loads each row and each vector once a
step. Rows need not be a multiple of the tile's: what is left is a smaller tile.
"""

from collections.abc import Iterable

BUSY_STEPS = 8.0
"""The multiply-adds that two units which take four cycles for one are busy with."""

OVERHEAD = 0.8
"""What a step takes besides, in multiply-adds; see ``share_of_peak``."""

MOST_ROWS, MOST_VECTORS = 14, 3

SPACES = 2
"""The lengths of tiles that are offered."""

CLOSE = 0.9
"""Tiles are offered that are as fast as this share of the fastest."""


def share_of_peak(rows: int, tall: int, vectors: int) -> float:
    """The share of a core's arithmetic that products by tiles are expected to reach.

    A step of a tile takes as long as its multiply-adds, its loads, or the units' pipelines. It was
    compared with tiles written by hand (AVX2, Zen 4; 3x3 convolution of 56x56x64): 4x2 0.91 for
    0.91 measured, 5x2 0.93 (0.93), 6x2 0.94 (0.96), 7x1 0.80 (0.80), 2x2 0.45 (0.50).
    ``rows``: of the whole. ``tall``: those of a tile. ``vectors``: of a tile.
    """
    full, rest = divmod(rows, tall)
    steps = full * _step(tall, vectors) + (_step(rest, vectors) if rest else 0.0)
    return rows * vectors / steps


def _step(tall: int, vectors: int) -> float:
    return max(float(tall * vectors), float(tall + vectors), BUSY_STEPS) + OVERHEAD


def fits(tall: int, vectors: int, registers: int) -> bool:
    """True if registers hold a tile's sums, its vectors and one row.

    The 16 of AVX2 do not hold eight rows of one vector: LLVM loads the rows of two steps ahead.
    AVX-512 reads a row's number where it multiplies.
    """
    is_ahead = vectors == 1 and tall >= BUSY_STEPS and registers <= 16
    return tall * vectors + vectors + 1 <= registers and not is_ahead


def offered_tiles(rows: int, vectors: int, registers: int) -> dict[int, list[int]]:
    """The tiles to choose from: by their vectors the numbers of rows, ascending.

    ``rows``, ``vectors``: of the whole. ``registers``: of the core.
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
