# SPDX-License-Identifier: Apache-2.0
"""Grouped convolutions whose weights are packed for vectors of a group's outputs.

The outputs of a group are often no multiple of a vector, such as 34. Tiles are divisors of them:
17 or 34 leave much of a vector unused, or take several instructions for one. So a group computes
some outputs more, with weights of zero, and the join of the groups leaves them out.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tvm import te, topi

from .packed_groups_rule import PACKED_RULE

VECTOR = 16
"""The floats of the widest vectors."""

LEAST_OUTPUTS = 8
"""The outputs of a group, of which fewer fill too little of a vector."""


def lanes_for(outputs: int) -> int:
    """The floats of a vector for so many outputs of a group. ``outputs``: positive."""
    return VECTOR // 2 if outputs < VECTOR else VECTOR


def pack_weights(weights: "np.ndarray[Any, Any]", groups: int) -> "np.ndarray[Any, Any]":
    """Pack the weights of a grouped convolution.

    ``weights``: of shape (kernel_height, kernel_width, in_channels / groups, out_channels).
    ``groups``: divides the output channels. Returns values of shape (groups, kernel_height,
    kernel_width, in_channels / groups, vectors, lanes). What the last vector of a group has more
    than the group is zero.
    """
    outputs = weights.shape[3] // groups
    lanes = lanes_for(outputs)
    grouped = weights.reshape(*weights.shape[:3], groups, outputs)
    padded = np.pad(grouped, [(0, 0)] * 4 + [(0, -outputs % lanes)])
    vectors = padded.reshape(*padded.shape[:4], -1, lanes)
    return np.ascontiguousarray(vectors.transpose(3, 0, 1, 2, 4, 5))


def packed_convolution(
    data: te.Tensor,
    weights: te.Tensor,
    outputs: int,
    *,
    strides: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    shuffle: int = 1,
) -> te.Tensor:
    """Convolve group by group, a vector of a group's outputs at a time.

    - ``data``: of shape (batch, height, width, in_channels).
    - ``weights``: the result of ``pack_weights``.
    - ``strides``, ``dilation``: for the height and the width.
    - ``padding``: zeros at the top, left, bottom and right.
    - ``shuffle``: the groups of a channel shuffle in front of the convolution, which is then part
      of the index: the shuffle splits the channels into (shuffle, in_channels / shuffle) and swaps
      the two. 1 for none. Divides in_channels.

    Returns values of shape (batch, out_height, out_width, groups * outputs).
    """
    batch, height, width, channels = topi.utils.get_const_tuple(data.shape)
    shape = topi.utils.get_const_tuple(weights.shape)
    groups, kernel_height, kernel_width, inputs, vectors, lanes = shape
    top, left, bottom, right = padding
    out_height = (height + top + bottom - (kernel_height - 1) * dilation[0] - 1) // strides[0] + 1
    out_width = (width + left + right - (kernel_width - 1) * dilation[1] - 1) // strides[1] + 1
    padded = data
    if any(padding):
        padded = topi.nn.pad(data, (0, top, left, 0), (0, bottom, right, 0), name="pad_temp")
    ry = te.reduce_axis((0, kernel_height), name="ry")
    rx = te.reduce_axis((0, kernel_width), name="rx")
    rc = te.reduce_axis((0, inputs), name="rc")

    def product(n: Any, y: Any, x: Any, g: Any, v: Any, i: Any) -> Any:
        row, column = y * strides[0] + ry * dilation[0], x * strides[1] + rx * dilation[1]
        channel = g * inputs + rc
        if shuffle > 1:
            channel = channel % shuffle * (channels // shuffle) + channel // shuffle
        return te.sum(
            padded[n, row, column, channel] * weights[g, ry, rx, rc, v, i], axis=[ry, rx, rc]
        )

    grouped = te.compute(
        (batch, out_height, out_width, groups, vectors, lanes),
        product,
        name="grouped_conv2d_nhwc",
        attrs={"schedule_rule": PACKED_RULE},
    )
    return te.compute(
        (batch, out_height, out_width, groups * outputs),
        lambda n, y, x, c: grouped[
            n, y, x, c // outputs, c % outputs // lanes, c % outputs % lanes
        ],
        name="join_groups",
    )
