# SPDX-License-Identifier: Apache-2.0
"""Convolutions of bfloat16 or bytes whose padding copies the images as raw bits.

TVM computes bfloat16 in float32 (``BF16ComputeLegalize``), so its padding converts each number to
float32 and back. For matrix tiles, a map may be extended by rows and lines: see ``padded_map``.
"""

from collections.abc import Sequence
from math import prod
from typing import Any

from tvm import relax, te, tirx, topi
from tvm.target import Target

from ....design_space.dot_products.dot_intrinsics import BYTES, HALF
from ....design_space.matrix_tiles.find_matrix import product_geometry
from ....design_space.matrix_tiles.tile_shapes import padded_map
from ...bindings import Expr, static_shape
from ...layers import layouts_of

_BITS = {HALF: "uint16"}


def is_half_convolution(call: Any) -> bool:
    """Return whether a convolution is bfloat16 to float32, with one group, in NHWC and HWIO."""
    types = {str(operand.ty.dtype) for operand in call.args}
    return types == {HALF} and str(call.ty.dtype) == "float32" and _is_plain(call)


def has_tiled_map(call: Any) -> bool:
    """Return whether matrix tiles need an extended map for a convolution of bytes."""
    types = [str(operand.ty.dtype) for operand in call.args]
    is_of_bytes = {*types} <= {*BYTES} and str(call.ty.dtype) == "int32"
    if not is_of_bytes or not _is_plain(call):
        return False
    return _map(call) != tuple(int(extent) for extent in list(call.ty.shape)[1:3])


def _is_plain(call: Any) -> bool:
    return (
        layouts_of(call.attrs) == ("NHWC", "HWIO", "NHWC")
        and int(call.attrs.groups) == 1
        and all(static_shape(each) is not None for each in (*call.args, call))
    )


def _map(call: Any) -> tuple[int, int]:
    """Return the lines and rows of the map to compute."""
    lines, rows, outputs = (int(extent) for extent in list(call.ty.shape)[1:])
    target = Target.current(allow_none=True)
    if target is None:
        return lines, rows
    *kernel, inputs = (int(extent) for extent in list(call.args[1].ty.shape)[:3])
    dtype = str(call.args[0].ty.dtype)
    geometry = product_geometry(target, dtype, inputs, outputs, prod(kernel))
    if geometry is None:
        return lines, rows
    tall, several = padded_map(rows, lines, *geometry)
    return several, tall


def call_half_convolution(builder: relax.BlockBuilder, call: Any) -> Expr:
    """Call the kernel of a convolution, with sums in float32 or int32.

    ``builder``: the builder that emits the kernel. ``call``: a call of ``relax.nn.conv2d`` that
    ``is_half_convolution`` or ``has_tiled_map``. Returns a ``call_tir``.
    """
    attrs = call.attrs
    return builder.call_te(
        half_convolution,
        *call.args,
        *([int(n) for n in each] for each in (attrs.strides, attrs.padding, attrs.dilation)),
        _map(call),
        primfunc_name_hint="conv2d",
    )


def half_convolution(
    data: te.Tensor,
    weights: te.Tensor,
    strides: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    computed: tuple[int, int] | None = None,
) -> te.Tensor:
    """Convolve images of shape (batch, height, width, inputs) with HWIO weights.

    ``padding``: the zeros at the top, left, bottom and right. ``computed``: the lines and rows of
    the map to compute; excess ones are dropped. Returns float32 for bfloat16, and int32 for bytes.
    """
    kernel = [int(extent) for extent in weights.shape[:2]]
    reach = [(extent - 1) * step + 1 for extent, step in zip(kernel, dilation, strict=True)]
    images = [int(extent) for extent in data.shape[1:3]]
    top, left, bottom, right = padding
    own = [
        (extent + before + after - wide) // step + 1
        for extent, before, after, wide, step in zip(
            images, (top, left), (bottom, right), reach, strides, strict=True
        )
    ]
    asked = computed or tuple(own)
    bottom, right = (
        max(after, (extent - 1) * step + wide - before - image)
        for after, extent, step, wide, before, image in zip(
            (bottom, right), asked, strides, reach, (top, left), images, strict=True
        )
    )
    sums = "float32" if str(data.dtype) == HALF else "int32"
    padded = _padded(data, (top, left, bottom, right))
    product = topi.nn.conv2d_nhwc(padded, weights, strides, 0, dilation, out_dtype=sums)
    if list(asked) == own:
        return product
    batch, *_, outputs = product.shape
    return te.compute((batch, *own, outputs), lambda *at: product(*at), name="map")


def _padded(data: te.Tensor, padding: Sequence[int]) -> te.Tensor:
    if not any(padding):
        return data
    top, left, bottom, right = padding
    batch, height, width, channels = data.shape
    bits = _BITS.get(str(data.dtype), str(data.dtype))

    def copied(n: Any, y: Any, x: Any, c: Any) -> Any:
        is_inside = tirx.all(y >= top, y < top + height, x >= left, x < left + width)
        stored = tirx.reinterpret(bits, data[n, y - top, x - left, c])
        stored = tirx.if_then_else(is_inside, stored, tirx.const(0, bits))
        return tirx.reinterpret(str(data.dtype), stored)

    shape = (batch, height + top + bottom, width + left + right, channels)
    return te.compute(shape, copied, name="pad_temp")
