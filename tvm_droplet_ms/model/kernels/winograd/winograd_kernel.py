# SPDX-License-Identifier: Apache-2.0
"""Winograd convolution of NHWC data with transformed weights, and its design space on a CPU.

With three passes over the whole map (transform, multiply, transform back), the transformed values
make two trips to memory. There are up to 2.25 times as many of them as inputs and outputs. In this
design space, the values of a strip, a few rows of tiles, stay in the caches. A strip may be the
whole map, because large weights are better read once.
"""

from collections.abc import Callable, Sequence
from functools import reduce
from math import gcd
from typing import Any

import numpy as np

from tvm import te, tirx, topi
from tvm.s_tir import Schedule
from tvm.s_tir.schedule import LoopRV, SBlockRV

from ..channel_vectors import register_rule
from ..kernel_pass import BY_RULE, compute_stage
from .winograd_matrices import KERNEL_SIZE, winograd_matrices


def winograd_convolution(
    data: te.Tensor, weights: te.Tensor, tile: int, padding: Sequence[int]
) -> te.Tensor:
    """Convolve with 3x3 kernels at stride 1, with F(tile, 3) in each dimension.

    ``topi.nn.conv2d_winograd_nhwc`` transforms the weights in each call; this function takes
    transformed weights. It transforms the columns and the rows of a tile one after the other, which
    halves the operations.

    - ``data``: images of constant shape (batch, height, width, in_channels).
    - ``weights``: the result of `transform_weights`, of shape (tile + 2, tile + 2, in_channels,
      out_channels).
    - ``tile``: the number of outputs that are computed together in each dimension: 2 or 4. It need
      not divide the output's height and width.
    - ``padding``: the zeros at the top, left, bottom and right.

    Returns values of shape (batch, out_height, out_width, out_channels).
    """
    batch, height, width, in_channels = topi.utils.get_const_tuple(data.shape)
    out_channels = int(weights.shape[-1])
    top, left, bottom, right = padding
    out_height = height + top + bottom - KERNEL_SIZE + 1
    out_width = width + left + right - KERNEL_SIZE + 1
    rows, columns = -(-out_height // tile), -(-out_width // tile)
    tiles = batch * rows * columns
    alpha = tile + KERNEL_SIZE - 1
    matrices = winograd_matrices(tile)

    padded = data
    after = rows * tile - out_height + bottom, columns * tile - out_width + right
    if any((top, left, *after)):
        padded = topi.nn.pad(
            data, (0, top, left, 0), (0, *after, 0), name="data_pad", attrs=BY_RULE
        )

    def input_of(y: Any, x: Any, p: Any, c: Any) -> Any:
        row, column = p // columns % rows * tile + y, p % columns * tile + x
        return padded[p // (rows * columns), row, column, c]

    def down(matrix: Any, of: Callable[..., Any]) -> Callable[..., Any]:
        return lambda y, x, p, c: _combine(y, matrix, [of(a, x, p, c) for a in range(alpha)])

    def across(matrix: Any, of: te.Tensor) -> Callable[..., Any]:
        return lambda y, x, p, c: _combine(x, matrix, [of[y, b, p, c] for b in range(alpha)])

    shape = alpha, alpha, tiles, in_channels
    data_columns = compute_stage(shape, down(matrices.B, input_of), "data_columns")
    data_pack = compute_stage(shape, across(matrices.B, data_columns), "data_pack")
    ci = te.reduce_axis((0, in_channels), name="ci")
    products = compute_stage(
        (alpha, alpha, tiles, out_channels),
        lambda y, x, p, c: te.sum(data_pack[y, x, p, ci] * weights[y, x, ci, c], axis=[ci]),
        "bgemm",
    )
    shape = tile, alpha, tiles, out_channels
    inverse_columns = compute_stage(
        shape, down(matrices.A, lambda *at: products[at]), "inverse_columns"
    )
    inverse = te.compute(
        (tile, tile, tiles, out_channels),
        across(matrices.A, inverse_columns),
        name="inverse",
        attrs={"schedule_rule": RULE},
    )
    return te.compute(
        (batch, out_height, out_width, out_channels),
        lambda n, h, w, c: inverse[
            h % tile, w % tile, (n * rows + h // tile) * columns + w // tile, c
        ],
        name="conv2d_winograd",
    )


def _combine(index: Any, matrix: "np.ndarray[Any, Any]", values: Sequence[Any]) -> Any:
    """Return the sum over i of ``matrix[i, index] * values[i]``.

    The expression selects among one sum per index, each without zero terms. When the loop over the
    index is unrolled, only one sum remains.
    """
    sums = [_weighted_sum(column, values) for column in matrix.T]
    result = sums[-1]
    for number in reversed(range(len(sums) - 1)):
        result = tirx.Select(index == number, sums[number], result)
    return result


def _weighted_sum(weights: "np.ndarray[Any, Any]", values: Sequence[Any]) -> Any:
    terms = [
        value if weight == 1 else value * tirx.const(weight, value.dtype)
        for weight, value in zip(weights, values, strict=True)
        if weight != 0
    ]
    return reduce(lambda left, right: left + right, terms)


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
