# SPDX-License-Identifier: Apache-2.0
"""Grouped NHWC convolutions, with an axis over the groups; they may read shuffled channels.

The number of outputs of a group is often not a multiple of a vector, for example 34. Tiles are
divisors of it: 17 or 34 leave much of a vector unused, or take several instructions for one vector.
So a group with packed weights computes some additional outputs with zero weights, and the join of
the groups drops them.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

import tvm
from tvm import relax, te, tirx, topi
from tvm.s_tir import Schedule
from tvm.s_tir.schedule import LoopRV, SBlockRV
from tvm.target import Target

from ...design_space.native_vectors import register_floats
from ...design_space.register_tiles.tiling import perfect_tile
from ..bindings import array_of, constant, operator_name, static_shape
from ..layers import layouts_of
from ..layout.channel_shuffle import inner_shuffle
from ..rewriting import call_pass
from .channel_vectors import elementwise_chain
from .halves import call_half_convolution, has_tiled_map, is_half_convolution
from .kernel_pass import legalize_as_tvm

_NAME = "grouped_conv2d"


def legalize_convolution(builder: relax.BlockBuilder, call: Any) -> Any:
    """Legalize ``relax.nn.conv2d``; returns the call itself if TVM cannot legalize it.

    A grouped convolution in NHWC with HWIO weights becomes `packed_convolution` if its weights are
    constant and a group has enough outputs, and `grouped_convolution` otherwise. A convolution of
    bfloat16, or of bytes whose map is padded for matrix tiles, becomes `half_convolution`. TVM
    legalizes everything else: one group, other layouts, and groups of one input channel
    (depthwise), for which TVM's form works well.
    """
    if is_half_convolution(call) or has_tiled_map(call):
        return call_half_convolution(builder, call)
    if not is_grouped(call):
        return legalize_as_tvm(builder, call)
    if is_packable(call):
        return call_packed(builder, call, call.args[0])
    return builder.call_te(
        grouped_convolution,
        *call.args,
        int(call.attrs.groups),
        **_geometry(call),
        primfunc_name_hint=_NAME,
    )


def is_grouped(call: Any) -> bool:
    """Return whether an NHWC and HWIO convolution has several groups of several inputs."""
    attributes = call.attrs
    return (
        int(attributes.groups) > 1
        and layouts_of(attributes) == ("NHWC", "HWIO", "NHWC")
        and not attributes.out_dtype
        and all(static_shape(argument) is not None for argument in call.args)
        and int(call.args[1].ty.shape[2]) > 1
    )


def is_packable(call: Any) -> bool:
    """Return whether a grouped convolution has constant weights and enough outputs per group."""
    weights = array_of(call.args[1])
    return weights is not None and weights.shape[3] // int(call.attrs.groups) >= LEAST_OUTPUTS


def call_packed(
    builder: relax.BlockBuilder, call: Any, data: relax.Expr, shuffle: int = 1
) -> relax.Call:
    """Call the kernel of a grouped convolution with packed weights.

    - ``call``: a call of ``relax.nn.conv2d``, ``is_packable``.
    - ``data``: the images to convolve.
    - ``shuffle``: the groups of the channel shuffle between `data` and the convolution; 1 for none.

    Returns a ``call_tir``.
    """
    groups = int(call.attrs.groups)
    weights = array_of(call.args[1])
    assert weights is not None
    widest = register_floats(Target.current(allow_none=True))
    return builder.call_te(
        packed_convolution,
        data,
        constant(pack_weights(weights, groups, widest)),
        weights.shape[3] // groups,
        **_geometry(call),
        shuffle=shuffle,
        primfunc_name_hint=_NAME,
    )


def grouped_convolution(
    data: te.Tensor,
    weights: te.Tensor,
    groups: int,
    *,
    strides: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> te.Tensor:
    """Convolve group by group.

    TOPI computes the input channel from the output channel by a division
    (``topi/nn/conv2d.py``, ``conv``), so a tile of output channels may read from several groups.
    With an axis over the groups, a tile lies in one group and its loop can be vectorized.

    - ``data``: images of shape (batch, height, width, in_channels).
    - ``weights``: an array of shape (kernel_height, kernel_width, in_channels / groups,
      out_channels).
    - ``groups``: a divisor of the input and the output channels.
    - ``strides``, ``dilation``: values for the height and the width.
    - ``padding``: the zeros at the top, left, bottom and right.

    Returns values of shape (batch, out_height, out_width, out_channels).
    """
    *kernel, inputs, out_channels = topi.utils.get_const_tuple(weights.shape)
    outputs = out_channels // groups
    padded, extents = padded_images(data, kernel, strides, padding, dilation)
    ry, rx, rc = reduction_axes((*kernel, inputs))

    def product(n: Any, y: Any, x: Any, g: Any, f: Any) -> Any:
        row, column = y * strides[0] + ry * dilation[0], x * strides[1] + rx * dilation[1]
        return te.sum(
            padded[n, row, column, g * inputs + rc] * weights[ry, rx, rc, g * outputs + f],
            axis=[ry, rx, rc],
        )

    grouped = te.compute((*extents, groups, outputs), product, name="grouped_conv2d_nhwc")
    return te.compute(
        (*extents, out_channels),
        lambda n, y, x, c: grouped[n, y, x, c // outputs, c % outputs],
        name="join_groups",
    )


def _geometry(call: Any) -> dict[str, list[int]]:
    attributes = call.attrs
    return {
        "strides": [int(stride) for stride in attributes.strides],
        "padding": [int(pad) for pad in attributes.padding],
        "dilation": [int(step) for step in attributes.dilation],
    }


def read_shuffled() -> tvm.transform.Pass:
    """Make a pass that fuses a channel shuffle and the grouped convolution after it.

    The kernel reads its inputs as scalars, so their order costs nothing: the shuffle becomes part
    of the index. The pass applies to prepared graphs, before ``LegalizeOps``. A shuffle without
    other users remains as dead code.
    """
    return call_pass("ReadShuffled", _of_shuffled)


def _of_shuffled(mutator: Any, call: Any) -> Any:
    is_one = operator_name(call) == "relax.nn.conv2d" and is_grouped(call) and is_packable(call)
    if not is_one:
        return call

    def value_of(expr: Any) -> Any:
        while isinstance(expr, relax.Var) and (value := mutator.lookup_binding(expr)) is not None:
            expr = value
        return expr

    shuffled = inner_shuffle(value_of, call.args[0])
    if shuffled is None or static_shape(shuffled.source) is None:
        return call
    return call_packed(mutator.builder_, call, shuffled.source, shuffled.groups)


PACKED_RULE = "tvm_droplet_ms.packed_groups"
"""The schedule rule that the reduction requests."""

_MOST_ROWS, _MOST_COLUMNS, _MOST_VECTORS, _MOST_INPUTS = 4, 16, 8, 8
_MOST_LANES = 144

VECTOR = 16
"""Number of floats in the widest vectors."""

LEAST_OUTPUTS = 8
"""Minimum outputs of a group: fewer fill too little of a vector."""


def lanes_for(outputs: int, widest: int = VECTOR) -> int:
    """Return the number of floats per vector for a number of outputs of a group.

    ``outputs``: positive. ``widest``: the floats in a vector register. If registers are shorter
    than ``VECTOR``, returns 8 where that leaves fewer lanes empty.
    """
    half = VECTOR // 2
    is_fuller = widest < VECTOR and -outputs % half < -outputs % VECTOR
    return half if outputs < VECTOR or is_fuller else VECTOR


def pack_weights(
    weights: "np.ndarray[Any, Any]", groups: int, widest: int = VECTOR
) -> "np.ndarray[Any, Any]":
    """Pack the weights of a grouped convolution.

    ``weights``: an array of shape (kernel_height, kernel_width, in_channels / groups,
    out_channels). ``groups``: a divisor of the output channels. ``widest``: see ``lanes_for``.
    Returns values of shape (groups, kernel_height, kernel_width, in_channels / groups, vectors,
    lanes). The excess lanes of a group's last vector are zero.
    """
    outputs = weights.shape[3] // groups
    lanes = lanes_for(outputs, widest)
    grouped = weights.reshape(*weights.shape[:3], groups, outputs)
    padded = np.pad(grouped, [(0, 0)] * 4 + [(0, -outputs % lanes)])
    vectors = padded.reshape(*padded.shape[:4], -1, lanes)
    return np.ascontiguousarray(vectors.transpose(3, 0, 1, 2, 4, 5))


def padded_images(
    data: te.Tensor,
    kernel: Sequence[int],
    strides: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> tuple[te.Tensor, list[int]]:
    """Pad images for a convolution; return them, and the batch, height and width of the result."""
    batch, *extents, _ = topi.utils.get_const_tuple(data.shape)
    before, after = padding[:2], padding[2:]
    if any(padding):
        data = topi.nn.pad(data, (0, *before, 0), (0, *after, 0), name="pad_temp")
    found = [
        (extents[n] + before[n] + after[n] - (kernel[n] - 1) * dilation[n] - 1) // strides[n] + 1
        for n in range(2)
    ]
    return data, [batch, *found]


def reduction_axes(extents: Sequence[int]) -> list[tirx.IterVar]:
    """Return the reduction axes over the rows, columns and inputs of a kernel."""
    names = ("ry", "rx", "rc")
    return [te.reduce_axis((0, n), name=name) for n, name in zip(extents, names, strict=True)]


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

    - ``weights``: the result of ``pack_weights``. Other arguments: see ``grouped_convolution``.
    - ``shuffle``: the groups of a channel shuffle before the convolution, a divisor of in_channels;
      1 for no shuffle. The shuffle splits the channels into (shuffle, in_channels / shuffle) and
      swaps the two axes. It becomes part of the index.

    Returns values of shape (batch, out_height, out_width, groups * outputs).
    """
    groups, *kernel, inputs, vectors, lanes = topi.utils.get_const_tuple(weights.shape)
    channels = int(data.shape[3])
    padded, extents = padded_images(data, kernel, strides, padding, dilation)
    ry, rx, rc = reduction_axes((*kernel, inputs))

    def product(n: Any, y: Any, x: Any, g: Any, v: Any, i: Any) -> Any:
        row, column = y * strides[0] + ry * dilation[0], x * strides[1] + rx * dilation[1]
        channel = g * inputs + rc
        if shuffle > 1:
            channel = channel % shuffle * (channels // shuffle) + channel // shuffle
        return te.sum(
            padded[n, row, column, channel] * weights[g, ry, rx, rc, v, i], axis=[ry, rx, rc]
        )

    grouped = te.compute(
        (*extents, groups, vectors, lanes),
        product,
        name="grouped_conv2d_nhwc",
        attrs={"schedule_rule": PACKED_RULE},
    )
    return te.compute(
        (*extents, groups * outputs),
        lambda n, y, x, c: grouped[
            n, y, x, c // outputs, c % outputs // lanes, c % outputs % lanes
        ],
        name="join_groups",
    )


def schedule_packed(schedule: Schedule, grouped: SBlockRV) -> list[Schedule]:
    """Return two design spaces: the group loop is inside the tiles of pixels, or outside.

    A tile of pixels and vectors of one group is accumulated in registers. The consumers of the
    convolution are computed for a tile of pixels and all outputs of a group. MetaSchedule's own
    rule tiles all axes of a reduction alike, and would split the lanes of a vector: most random
    points would then have no register tile.
    """
    chain = elementwise_chain(schedule, grouped)
    if chain is None:
        schedule.unannotate(grouped, "schedule_rule")
        return [schedule]  # TVM's default design space.
    *producers, last = chain
    for producer in producers:
        schedule.compute_inline(producer)
    spaces = []
    for groups_first in (False, True):
        space = schedule.copy()
        _tile(space, grouped, last, groups_first)
        spaces.append(space)
    return spaces


def _tile(schedule: Schedule, grouped: SBlockRV, last: SBlockRV, groups_first: bool) -> None:
    groups = int(schedule.get(grouped).iter_vars[3].dom.extent)
    batch, height, width, channels = schedule.get_loops(last)
    group, outputs = schedule.split(channels, [groups, None])
    rows, y = perfect_tile(schedule, height, 2, _MOST_ROWS)
    columns, x = perfect_tile(schedule, width, 2, _MOST_COLUMNS)
    outside = [group, rows, columns] if groups_first else [rows, columns, group]
    schedule.reorder(batch, *outside, y, x, outputs)
    schedule.vectorize(_vector(schedule, outputs))
    schedule.compute_at(grouped, outside[-1], preserve_unit_loops=True)
    *_, n, y, x, g, vectors, lanes, ry, rx, inputs = schedule.get_loops(grouped)
    outer, inner = perfect_tile(schedule, vectors, 2, _MOST_VECTORS)
    parts, unrolled = perfect_tile(schedule, inputs, 2, _MOST_INPUTS)
    # Pixels between vectors and lanes keep MetaSchedule from fusing these into one vector.
    schedule.reorder(n, g, outer, ry, rx, parts, unrolled, inner, y, x, lanes)
    schedule.vectorize(lanes)
    for loop in (unrolled, inner, y, x):
        schedule.unroll(loop)


def _vector(schedule: Schedule, outputs: LoopRV) -> LoopRV:
    """Return the loop over all outputs of a group, or over a part if there are many outputs.

    LLVM splits its vector into registers, with a shorter one at the end.
    """
    extent = int(schedule.get(outputs).extent)
    fitting = [part for part in range(1, min(extent, _MOST_LANES) + 1) if extent % part == 0]
    if fitting[-1] == extent:
        return outputs
    return schedule.split(outputs, [None, fitting[-1]])[1]
