# SPDX-License-Identifier: Apache-2.0
"""Chooses between a direct convolution and Winograd's algorithm, layer by layer."""

from collections.abc import Iterable, Mapping
from math import inf
from typing import NamedTuple

TILES = (2, 4)
"""The tiles of Winograd's algorithm that are tried: F(2, 3) and F(4, 3)."""


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
    """A layer, and the tile that it is computed with; None for the direct convolution."""

    layer: Layer
    tile: int | None

    @property
    def flops(self) -> int:
        """Floating-point operations, without those of Winograd's transforms."""
        layer, tile = self
        outputs = layer.batch * layer.height * layer.width
        points = 3**2
        if tile is not None:
            outputs = layer.batch * -(-layer.height // tile) * -(-layer.width // tile)
            points = (tile + 2) ** 2
        return 2 * points * outputs * layer.in_channels * layer.channels


def fastest_tiles(timed: Iterable[tuple[Implementation, float, float]]) -> dict[Layer, int]:
    """The layers for which a Winograd convolution is fastest.

    ``timed``: for each task that computes a layer: what it is, how often the model runs it, and its
    best seconds. A layer may be several tasks that differ in what is fused to it. Returns the tile
    of those layers. The direct convolution wins ties, and layers with a task that has no time.
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


class TileChoice:
    """``choose`` of ``WinogradConvolutions``: the same tile for all, or what was measured.

    ``tiles``: a tile for every layer, or the tile of each layer that has one.
    """

    def __init__(self, tiles: int | Mapping[Layer, int]) -> None:
        self._tiles = tiles

    def __call__(self, layer: Layer) -> int | None:
        """The tile of a convolution; None for the direct one."""
        return self._tiles if isinstance(self._tiles, int) else self._tiles.get(layer)
