# SPDX-License-Identifier: Apache-2.0
"""Chooses between a direct convolution and Winograd's algorithm, layer by layer."""

from collections.abc import Iterable
from math import inf
from typing import NamedTuple

TILES = (2, 4)
"""The candidate tiles of Winograd's algorithm: F(2, 3) and F(4, 3)."""

FLOPS_PER_BYTE = 8.0
"""Approximate operations of a core per byte read from memory, at 250 GFLOP/s and 30 GB/s. It is a
constant, so that a resumed run tries the same tile."""


class Layer(NamedTuple):
    """The extents of a convolution, in NHWC."""

    batch: int
    in_height: int
    in_width: int
    in_channels: int
    height: int
    width: int
    channels: int


class Implementation(NamedTuple):
    """A layer and the tile that computes it; None for the direct convolution."""

    layer: Layer
    tile: int | None

    @property
    def flops(self) -> int:
        """Floating-point operations, without those of Winograd's transforms."""
        layer, tile = self
        outputs = layer.batch * layer.height * layer.width
        if tile is not None:
            outputs = layer.batch * -(-layer.height // tile) * -(-layer.width // tile)
        return 2 * outputs * self.weights

    @property
    def weights(self) -> int:
        """The number of weights; with a tile, of transformed weights."""
        points = 3**2 if self.tile is None else (self.tile + 2) ** 2
        return points * self.layer.in_channels * self.layer.channels


def promising_tile(layer: Layer) -> int | None:
    """Return the tile that may be fastest for a layer; None for the direct convolution.

    The estimate is the longer of two times: computing the products, and reading the weights from
    memory. A tile of 4 has the fewest products, and four times the weights.
    """

    def time(tile: int | None) -> float:
        what = Implementation(layer, tile)
        return max(what.flops / FLOPS_PER_BYTE, 4.0 * what.weights)

    return min((None, *TILES), key=time)


def fastest_tiles(timed: Iterable[tuple[Implementation, float, float]]) -> dict[Layer, int]:
    """Return the tile of each layer for which a Winograd convolution is fastest.

    ``timed``: for each task that computes a layer: its implementation, how often the model runs it,
    and its best time in seconds. Several tasks may compute the same layer and differ in the fused
    operators. The direct convolution wins ties, and wins for layers that have a task without a
    time.
    """
    totals: dict[Implementation, float] = {}
    for what, weight, secs in timed:
        totals[what] = totals.get(what, 0.0) + weight * secs
    tiles: dict[Layer, int] = {}
    for (layer, tile), secs in totals.items():
        rivals = [totals.get(Implementation(layer, other), inf) for other in (None, *TILES)]
        if tile is not None and secs == min(rivals) < rivals[0] < inf:
            tiles.setdefault(layer, tile)
    return tiles
