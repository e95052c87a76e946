# SPDX-License-Identifier: Apache-2.0
"""The choice between a direct convolution and Winograd's algorithm."""

import math

from tvm_droplet_ms.model.kernels.winograd.winograd import (
    Implementation,
    Layer,
    fastest_tiles,
    promising_tile,
)

LAYER = Layer(1, 14, 14, 256, 14, 14, 512)
OTHER = Layer(1, 28, 28, 512, 14, 14, 512)


def timed(*times: float, layer: Layer = LAYER, weight: float = 1.0):
    kinds = zip((None, 2, 4), times, strict=True)
    return [(Implementation(layer, tile), weight, secs) for tile, secs in kinds]


class TestFastestTiles:
    def test_takes_the_tile_with_the_least_time(self):
        assert fastest_tiles(timed(3.0, 2.0, 1.0)) == {LAYER: 4}
        assert fastest_tiles(timed(3.0, 1.0, 2.0)) == {LAYER: 2}

    def test_keeps_the_direct_convolution_where_it_is_as_fast(self):
        assert fastest_tiles(timed(1.0, 1.0, 2.0)) == {}

    def test_adds_up_the_tasks_of_a_layer_by_their_weights(self):
        # Alone, the first epilogue would choose 4 and the second none: 1 + 3 * 3 < 2 * 1 + 3 * 4.
        tasks = timed(2.0, math.inf, 1.0) + timed(3.0, math.inf, 4.0, weight=3.0)
        assert fastest_tiles(tasks) == {}

    def test_a_layer_without_a_time_stays_direct(self):
        assert fastest_tiles(timed(math.inf, math.inf, 1.0)) == {}
        assert fastest_tiles(timed(1.0, math.inf, math.inf)) == {}

    def test_layers_are_chosen_apart(self):
        tasks = timed(3.0, 2.0, 1.0) + timed(1.0, 2.0, 3.0, layer=OTHER)
        assert fastest_tiles(tasks) == {LAYER: 4}


class TestPromisingTile:
    def tile(self, size: int, channels: int) -> int | None:
        return promising_tile(Layer(1, size, size, channels, size, size, channels))

    def test_large_maps_have_the_fewest_products(self):
        assert self.tile(56, 256) == 4

    def test_weights_that_come_from_the_memory_are_kept_few(self):
        # At 240 GFLOP/s and 30 GB/s: the 38 MB for a tile of 4 take 1.3 ms; the 134 MFLOP of a tile
        # of 2 take 0.56, as its 17 MB do; the 231 MFLOP of the direct convolution take 0.96.
        assert self.tile(7, 512) == 2

    def test_a_map_of_one_pixel_is_computed_directly(self):
        assert self.tile(1, 512) is None


class TestFlops:
    def test_are_those_of_the_products(self):
        direct, small, large = (Implementation(LAYER, tile).flops for tile in (None, 2, 4))
        assert direct == 2 * 14 * 14 * 9 * 256 * 512
        assert small == 2 * 7 * 7 * 16 * 256 * 512
        # 14 is no multiple of 4: four tiles of a row cover it.
        assert large == 2 * 4 * 4 * 36 * 256 * 512
