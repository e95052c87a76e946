# SPDX-License-Identifier: Apache-2.0
"""Random tiles are drawn as often as TVM draws them."""

import random
from collections import Counter

import pytest

from tvm import te
from tvm.ir import IRModule
from tvm.s_tir import Schedule
from tvm_droplet_ms.search_strategy.descents.points import redraw_axis
from tvm_droplet_ms.search_strategy.published.neighborhood import TileAxis

DRAWS = 6000


def tvms_draws(extent, parts, limit):
    """Tiles that TVM draws for a loop."""
    source = te.placeholder((extent,), name="source")
    copy = te.compute((extent,), lambda i: source[i] + 1.0, name="copy")
    mod = IRModule({"main": te.create_prim_func([source, copy])})
    schedule = Schedule(mod, seed=1)
    (loop,) = schedule.get_loops(schedule.get_sblock("copy"))
    for _ in range(DRAWS):
        factors = schedule.sample_perfect_tile(loop, n=parts, max_innermost_factor=limit)
        yield tuple(int(schedule.get(factor)) for factor in factors)


@pytest.mark.parametrize(("extent", "parts", "limit"), [(32, 4, 64), (48, 3, 16), (56, 2, 8)])
def test_tiles_are_as_likely_as_tvms(extent, parts, limit):
    axis = TileAxis(0, parts, limit)
    generator = random.Random(0)
    start = (extent, *[1] * (parts - 1))
    ours = Counter(redraw_axis(axis, start, generator) for _ in range(DRAWS))
    theirs = Counter(tvms_draws(extent, parts, limit))
    assert set(ours) == set(theirs)
    # The difference of two binomial counts; 5 standard deviations for each of some dozen tiles.
    for tile, count in theirs.items():
        assert abs(ours[tile] - count) < 5 * (ours[tile] + count) ** 0.5, tile
