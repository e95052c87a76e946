# SPDX-License-Identifier: Apache-2.0
"""Winograd's convolution of NHWC data by transformed weights, and its design spaces on a CPU."""

from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np

from tvm import te, tirx, topi
from tvm.s_tir import Schedule
from tvm.s_tir.schedule import SBlockRV

from ..pool_rules import register_rule, split_vector
from .winograd_matrices import KERNEL_SIZE, winograd_matrices

INPUT_RULE = "tvm_droplet_ms.winograd_input_transform"
OUTPUT_RULE = "tvm_droplet_ms.winograd_output_transform"
"""The schedule rules of the transforms."""

_SCHEDULED_BY_RULE = {"schedule_rule": "None"}
_WRITE_CACHE_LEVELS = [1, 2]
"""The defaults for CPUs. Said here, because the tiling rule would otherwise take the transform that
follows for a write cache of the products, move it, and fail
(``src/s_tir/meta_schedule/schedule_rule/multi_level_tiling.cc``, ``AddWriteReuse``)."""


def winograd_convolution(
    data: te.Tensor, weights: te.Tensor, tile: int, padding: Sequence[int]
) -> te.Tensor:
    """Convolve with 3x3 kernels, at stride 1, by F(tile, 3) in each dimension.

    Unlike ``topi.nn.conv2d_winograd_nhwc``, which transforms the weights in each call, it takes
    transformed weights. And it transforms the columns and the rows of a tile one after the other,
    with half of the operations.

    - ``data``: of shape (batch, height, width, in_channels), all constant.
    - ``weights``: of shape (tile + 2, tile + 2, in_channels, out_channels), from
      `transform_weights`.
    - ``tile``: the number of outputs that are computed together in each dimension: 2 or 4. The
      output's height and width need not be multiples of it.
    - ``padding``: zeros at the top, left, bottom and right.

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
            data, (0, top, left, 0), (0, *after, 0), name="data_pad", attrs=_SCHEDULED_BY_RULE
        )

    def input_of(y: Any, x: Any, p: Any, c: Any) -> Any:
        row, column = p // columns % rows * tile + y, p % columns * tile + x
        return padded[p // (rows * columns), row, column, c]

    data_columns = te.compute(
        (alpha, alpha, tiles, in_channels),
        lambda y, x, p, c: _combine(y, matrices.B, [input_of(a, x, p, c) for a in range(alpha)]),
        name="data_columns",
        attrs=_SCHEDULED_BY_RULE,
    )
    data_pack = te.compute(
        (alpha, alpha, tiles, in_channels),
        lambda y, x, p, c: _combine(
            x, matrices.B, [data_columns[y, b, p, c] for b in range(alpha)]
        ),
        name="data_pack",
        attrs={"schedule_rule": INPUT_RULE},
    )
    ci = te.reduce_axis((0, in_channels), name="ci")
    products = te.compute(
        (alpha, alpha, tiles, out_channels),
        lambda y, x, p, c: te.sum(data_pack[y, x, p, ci] * weights[y, x, ci, c], axis=[ci]),
        name="bgemm",
        attrs={"s_tir.meta_schedule.write_cache_level": _WRITE_CACHE_LEVELS},
    )
    inverse_columns = te.compute(
        (tile, alpha, tiles, out_channels),
        lambda y, x, p, c: _combine(y, matrices.A, [products[a, x, p, c] for a in range(alpha)]),
        name="inverse_columns",
        attrs=_SCHEDULED_BY_RULE,
    )
    inverse = te.compute(
        (tile, tile, tiles, out_channels),
        lambda y, x, p, c: _combine(
            x, matrices.A, [inverse_columns[y, b, p, c] for b in range(alpha)]
        ),
        name="inverse",
        attrs={"schedule_rule": OUTPUT_RULE},
    )
    return te.compute(
        (batch, out_height, out_width, out_channels),
        lambda n, h, w, c: inverse[
            h % tile, w % tile, (n * rows + h // tile) * columns + w // tile, c
        ],
        name="conv2d_winograd",
    )


def _combine(index: Any, matrix: "np.ndarray[Any, Any]", values: Sequence[Any]) -> Any:
    """The sum over i of ``matrix[i, index] * values[i]``.

    One sum without zeros for each index: when the loop over the index is unrolled, one remains.
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


def register_winograd_rules() -> None:
    """Register the rules. It may be called again, and leaves registered rules as they are.

    Between the transforms, MetaSchedule's own rules tile the products. ``schedule/cpu/winograd.cc``
    of TVM has rules for transforms as TOPI writes them. They leave nothing to vectorise, and unroll
    tiles of channels: a candidate takes seconds to build.
    """
    for name, rule in ((INPUT_RULE, _schedule_input), (OUTPUT_RULE, _schedule_output)):
        register_rule(name, rule)


def _schedule_input(schedule: Schedule, pack: SBlockRV) -> list[Schedule]:
    """The input transform: one tile at a time, a vector of channels at a time.

    Two design spaces: the padded data is made beforehand, or for each tile.
    """
    (columns,) = schedule.get_producers(pack)
    y, x, tiles, channels = schedule.get_loops(pack)
    outer, vector = split_vector(schedule, channels)
    schedule.reorder(tiles, outer, y, x, vector)
    schedule.compute_at(columns, y, preserve_unit_loops=True)
    _unroll_tile(schedule, columns)
    _unroll_tile(schedule, pack, 3)
    padding = schedule.get_producers(columns)
    if not padding:
        return [schedule]
    beforehand = schedule.copy()
    schedule.compute_at(padding[0], tiles, preserve_unit_loops=True)
    return [beforehand, schedule]


def _schedule_output(schedule: Schedule, inverse: SBlockRV) -> list[Schedule]:
    """The output transform and what follows it: one tile at a time, a vector at a time."""
    (columns,) = schedule.get_producers(inverse)
    (last,) = schedule.get_consumers(inverse)
    while consumers := schedule.get_consumers(last):
        schedule.compute_inline(last)
        last = consumers[0]
    tile = int(schedule.get(schedule.get_loops(inverse)[0]).extent)
    batch, height, width, channels = schedule.get_loops(last)
    rows, y = schedule.split(height, [None, tile])
    row_tiles, x = schedule.split(width, [None, tile])
    outer, vector = split_vector(schedule, channels)
    schedule.reorder(batch, rows, row_tiles, outer, y, x, vector)
    schedule.vectorize(vector)
    schedule.compute_at(inverse, outer, preserve_unit_loops=True)
    y = schedule.get_loops(inverse)[-4]
    schedule.compute_at(columns, y, preserve_unit_loops=True)
    _unroll_tile(schedule, columns)
    _unroll_tile(schedule, inverse)
    return [schedule]


def _unroll_tile(schedule: Schedule, block: SBlockRV, count: int = 4) -> None:
    """Vectorise the innermost loop of a block, and unroll the other ones of the last `count`."""
    *tile, vector = schedule.get_loops(block)[-count:]
    for loop in tile:
        schedule.unroll(loop)
    schedule.vectorize(vector)
