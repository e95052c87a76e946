# SPDX-License-Identifier: Apache-2.0
"""Winograd convolution of NHWC data with transformed weights."""

from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np

from tvm import te, tirx, topi

from .strips import RULE
from .winograd_matrices import KERNEL_SIZE, winograd_matrices

_SCHEDULED_BY_RULE = {"schedule_rule": "None"}


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
        attrs=_SCHEDULED_BY_RULE,
    )
    ci = te.reduce_axis((0, in_channels), name="ci")
    products = te.compute(
        (alpha, alpha, tiles, out_channels),
        lambda y, x, p, c: te.sum(data_pack[y, x, p, ci] * weights[y, x, ci, c], axis=[ci]),
        name="bgemm",
        attrs=_SCHEDULED_BY_RULE,
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
