# SPDX-License-Identifier: Apache-2.0
"""Legalization of NHWC convolutions: grouped convolutions get an axis over the groups."""

from collections.abc import Sequence
from typing import Any

import tvm
from tvm import relax, te, topi
from tvm.target import Target

from ....design_space.native_vectors import register_floats
from ...bindings import array_of, constant, static_shape
from ...layers import layouts_of
from ..halves.half_convolution import (
    call_half_convolution,
    has_tiled_map,
    is_half_convolution,
)
from .packed_groups import (
    LEAST_OUTPUTS,
    pack_weights,
    packed_convolution,
    padded_images,
    reduction_axes,
)

_NAME = "grouped_conv2d"


def legalize_convolution(builder: relax.BlockBuilder, call: Any) -> Any:
    """Legalize ``relax.nn.conv2d``; for ``LegalizeOps(customize_legalize_map=...)``.

    A grouped convolution in NHWC with HWIO weights becomes `packed_convolution` if its weights are
    constant and a group has enough outputs, and `grouped_convolution` otherwise. A convolution of
    bfloat16, or of bytes whose map is padded for matrix tiles, becomes `half_convolution`. TVM
    legalizes everything else: one group, other layouts, and groups of one input channel
    (depthwise), for which TVM's form works well. ``builder``: the builder that emits the kernel.
    ``call``: a call of ``relax.nn.conv2d``. Returns a ``call_tir``, or the call itself if TVM
    cannot legalize it.
    """
    if is_half_convolution(call) or has_tiled_map(call):
        return call_half_convolution(builder, call)
    if not is_grouped(call):
        return tvm.ir.Op.get("relax.nn.conv2d").get_attr("FLegalize")(builder, call)
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

    - ``builder``: the builder that emits the kernel.
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
