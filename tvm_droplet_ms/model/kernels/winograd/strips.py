# SPDX-License-Identifier: Apache-2.0
"""The design space for Winograd convolutions on a CPU: one strip of tiles at a time.

With three passes over the whole map (transform, multiply, transform back), the transformed values
make two trips to memory. There are up to 2.25 times as many of them as inputs and outputs. Here the
transformed values of a few rows of tiles stay in the caches. A strip may be the whole map, because
large weights are better read once.
"""

from math import gcd

from tvm.s_tir import Schedule
from tvm.s_tir.schedule import LoopRV, SBlockRV

from ..pool_rules import register_rule

RULE = "tvm_droplet_ms.winograd_strips"
"""The schedule rule that the output transform requests. The other blocks request no rule."""

_LANES = 16
"""Maximum channels of a vector: one AVX-512 register, or two AVX2 registers."""

_MOST_TILES = 16
_MOST_VECTORS = 4
"""Maximum tiles and vectors of channels whose sums are in registers at a time."""

_MOST_STEPS = 64
"""Maximum products that are added to a sum before it leaves its register."""


def register_winograd_rules() -> None:
    """Register the rule, unless it is already registered.

    TVM's ``schedule/cpu/winograd.cc`` has rules for TOPI's form of the transforms. They leave
    nothing to vectorize, and unroll tiles of channels: a candidate takes seconds to build.
    """
    register_rule(RULE, _schedule_all)


def _schedule_all(schedule: Schedule, inverse: SBlockRV) -> list[Schedule]:
    """Schedule the transforms, the products between them, and the consumers.

    ``inverse``: the block of the output transform, after the other blocks of
    ``winograd_convolution``.
    """
    (inverse_columns,) = schedule.get_producers(inverse)
    (products,) = schedule.get_producers(inverse_columns)
    (pack,) = schedule.get_producers(products)
    (last,) = schedule.get_consumers(inverse)
    while consumers := schedule.get_consumers(last):
        schedule.compute_inline(last)
        last = consumers[0]
    tile = _extent(schedule, schedule.get_loops(inverse)[0])

    # The output: strips of rows of tiles, and blocks of channels.
    batch, height, width, channels = schedule.get_loops(last)
    rows, y = schedule.split(height, [None, tile])
    columns, x = schedule.split(width, [None, tile])
    vectors, vector = _split_vector(schedule, channels)
    # If a row has few tiles, the tiles of several rows are in registers at a time.
    most_rows = max(1, _MOST_TILES // 2 // _extent(schedule, columns))
    row_factors = schedule.sample_perfect_tile(rows, 3, most_rows)
    column_factors = schedule.sample_perfect_tile(columns, 2, _MOST_TILES)
    vector_factors = schedule.sample_perfect_tile(vectors, 3, _MOST_VECTORS)
    strips, *rows = schedule.split(rows, row_factors)
    blocks, *vectors = schedule.split(vectors, vector_factors)
    schedule.reorder(batch, strips, blocks, *rows, columns, *vectors, y, x, vector)
    schedule.vectorize(vector)

    # The output transform: a tile at a time, a vector at a time.
    schedule.compute_at(inverse, vectors[-1], preserve_unit_loops=True)
    schedule.compute_at(inverse_columns, schedule.get_loops(inverse)[-4], preserve_unit_loops=True)
    _unroll_tile(schedule, inverse_columns)
    _unroll_tile(schedule, inverse)

    # The products of a strip and a block: for each point of the tile a matrix product.
    schedule.compute_at(products, blocks, preserve_unit_loops=True)
    point_y, point_x, tiles, channels, summed = schedule.get_loops(products)[-5:]
    in_registers = row_factors[-1], column_factors[-1]
    tiles, *registers = schedule.split(tiles, [None, *in_registers])
    lanes = _extent(schedule, vector)
    vectors, block_vectors, vector = schedule.split(channels, [None, vector_factors[-1], lanes])
    factors = schedule.sample_perfect_tile(summed, 2, _MOST_STEPS)
    summed, steps = schedule.split(summed, factors)
    registers.append(block_vectors)
    schedule.reorder(point_y, point_x, vectors, tiles, summed, steps, *registers, vector)
    for loop in registers:
        schedule.unroll(loop)
    schedule.vectorize(vector)

    # The input transform of a strip: a tile at a time, a vector at a time.
    (pack_columns,) = schedule.get_producers(pack)
    schedule.compute_at(pack, strips, preserve_unit_loops=True)
    point_y, point_x, tiles, channels = schedule.get_loops(pack)[-4:]
    vectors, vector = _split_vector(schedule, channels)
    schedule.reorder(tiles, vectors, point_y, point_x, vector)
    schedule.compute_at(pack_columns, point_y, preserve_unit_loops=True)
    _unroll_tile(schedule, pack_columns)
    _unroll_tile(schedule, pack, 3)
    for padding in schedule.get_producers(pack_columns):
        schedule.compute_at(padding, strips, preserve_unit_loops=True)
    return [schedule]


def _extent(schedule: Schedule, loop: LoopRV) -> int:
    return int(schedule.get(loop).extent)


def _split_vector(schedule: Schedule, channels: LoopRV) -> list[LoopRV]:
    """Split a loop over channels into vectors of the GCD of their number and ``_LANES``."""
    lanes = gcd(_extent(schedule, channels), _LANES)
    return list(schedule.split(channels, [None, lanes]))


def _unroll_tile(schedule: Schedule, block: SBlockRV, count: int = 4) -> None:
    """Vectorize the innermost of the last `count` loops of a block, and unroll the others."""
    *tile, vector = schedule.get_loops(block)[-count:]
    for loop in tile:
        schedule.unroll(loop)
    schedule.vectorize(vector)
