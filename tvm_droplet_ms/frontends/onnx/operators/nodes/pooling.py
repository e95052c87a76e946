# SPDX-License-Identifier: Apache-2.0
"""Converters for pads, pools, and convolutions."""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from tvm import te, tirx
from tvm.relax import op

from .....model.window_maxima import Windows, pool_with_positions
from ..folding import as_array
from ..operands import (
    Attributes,
    UnsupportedNode,
    converts,
    dtype_of,
    extents_of,
    shape_of,
    text,
    tvms,
    windows_of,
)


def same_padding(
    extents: Sequence[int | None],
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    *,
    lower: bool,
) -> list[int] | None:
    """Return the padding of SAME_UPPER or SAME_LOWER in numbers.

    The output has ``ceil(extent / stride)`` elements along each axis (ONNX, operator ``Conv``).
    ``extents``: extents of the spatial axes of the input. None for an unknown extent. ``kernel``,
    ``strides``, ``dilations``: the convolution's, for each spatial axis. ``lower``: whether an odd
    element goes before the axis rather than after it. Returns the numbers of zeros before each
    axis, and then after each. None if a required extent is not known.
    """
    before, after = [], []
    for extent, size, stride, dilation in zip(extents, kernel, strides, dilations, strict=True):
        total = (size - 1) * dilation
        if stride > 1:
            if extent is None:
                return None
            total = max((-(-extent // stride) - 1) * stride + total + 1 - extent, 0)
        small, large = total // 2, total - total // 2
        before.append(large if lower else small)
        after.append(small if lower else large)
    return before + after


def _explicit(attr: Attributes, extents: Sequence[int | None], kernel: Sequence[int]) -> Attributes:
    """The attributes with numbers in place of SAME_UPPER and SAME_LOWER, if extents are known."""
    mode = text(attr, "auto_pad", "NOTSET")
    strides, dilations, _ = windows_of(attr, len(kernel))
    if not mode.startswith("SAME"):
        return attr
    pads = same_padding(extents, kernel, strides, dilations, lower=mode == "SAME_LOWER")
    return attr if pads is None else {**attr, "auto_pad": b"NOTSET", "pads": pads}


@converts("Conv")
def conv(bb: Any, inputs: Any, attr: Attributes) -> Any:
    """TVM's converter would add a separate pad for SAME_UPPER and SAME_LOWER."""
    if text(attr, "auto_pad", "NOTSET").startswith("SAME"):
        attr = _explicit(attr, extents_of(inputs[0])[2:], shape_of(inputs[1])[2:])
    return tvms("Conv", bb, inputs, attr)


@converts("Pad")
def pad(bb: Any, inputs: Any, attr: Attributes) -> Any:
    """Pad with zeros as graph passes know it, which move it into convolutions and pools.

    TVM's converter makes kernels, here only of pads with other values and modes, and of tensors
    with unknown extents.
    """
    data, value = inputs[0], attr.get("value", 0.0)
    widths = list(attr.get("pads") or attr.get("paddings") or ())
    if len(inputs) > 1:
        zero, found = (None if each is None else as_array(each) for each in (inputs[2], inputs[1]))
        value = 0.0 if inputs[2] is None else zero
        widths = [] if found is None else found.tolist()
    is_plain = text(attr, "mode", "constant") == "constant" and inputs[3] is None
    rank = len(widths) // 2
    if not is_plain or value != 0 or not dtype_of(data).startswith("float"):
        return tvms("Pad", bb, inputs, attr)
    extents = extents_of(data)
    if min(widths, default=-1) < 0 or rank != len(extents) or None in extents:
        return tvms("Pad", bb, inputs, attr)
    by_axis = [int(widths[axis + end]) for axis in range(rank) for end in (0, rank)]
    return op.nn.pad(data, by_axis)


class _Windows(Windows):
    """The windows of a pool: explicit padding, and the number of windows along each axis."""

    def __init__(self, extents: Sequence[int], attr: Attributes) -> None:
        self.kernel = list(attr["kernel_shape"])
        attr = _explicit(attr, extents, self.kernel)
        self.strides, self.dilations, self.pads = windows_of(attr, len(self.kernel))
        self.sizes, self.is_cut, ends = [], False, []
        for n, extent in enumerate(extents):
            stride, reach = self.strides[n], self.dilations[n] * (self.kernel[n] - 1) + 1
            room = extent + self.pads[n] + self.pads[len(self.kernel) + n] - reach
            size = (-(-room // stride) if attr.get("ceil_mode", 0) else room // stride) + 1
            # The last window must not begin in the padding after the axis.
            is_out = (size - 1) * stride >= extent + self.pads[n]
            self.sizes.append(size - is_out)
            self.is_cut |= is_out
            end = (self.sizes[n] - 1) * stride + reach
            ends.append(max(0, end - extent - self.pads[n]))
        self.pads_of_all = [*self.pads[: len(ends)], *ends]


def _pooled(kind: str, bb: Any, inputs: Any, attr: Attributes) -> Any:
    """Pool with TVM's converter, and correct its padding and extents.

    TVM rounds an extent down with SAME_LOWER, pads by a negative width if a stride is larger than
    the kernel, and keeps a last window that begins in the padding after the axis.
    """
    if not text(attr, "auto_pad", "").startswith("SAME") and not attr.get("ceil_mode", 0):
        return tvms(kind, bb, inputs, attr)
    windows = _Windows(shape_of(inputs[0])[2:], attr)
    result = tvms(kind, bb, inputs, {**attr, "auto_pad": b"NOTSET", "pads": windows.pads})
    if not windows.is_cut:
        return result
    axes = list(range(2, 2 + len(windows.sizes)))
    return op.strided_slice(result, axes, [0] * len(windows.sizes), windows.sizes)


converts("AveragePool")(partial(_pooled, "AveragePool"))


@converts("LpPool")
def lp_pool(bb: Any, inputs: Any, attr: Attributes) -> Any:
    """The norms of windows.

    TVM computes them from averages, which divide by fewer elements where a window reaches beyond
    the padding.
    """
    if attr.get("ceil_mode", 0):
        pads = _Windows(shape_of(inputs[0])[2:], attr).pads_of_all
        attr = {**attr, "auto_pad": b"NOTSET", "ceil_mode": 0, "pads": pads}
    return _pooled("LpPool", bb, inputs, attr)


@converts("MaxPool")
def max_pool(bb: Any, inputs: Any, attr: Attributes) -> Any:
    """The maxima of windows, and their positions if the node has them."""
    if attr["tvm_custom"]["num_outputs"] < 2:
        return _pooled("MaxPool", bb, inputs, attr)
    windows = _Windows(shape_of(inputs[0])[2:], attr)
    is_column_major = bool(attr.get("storage_order", 0))

    def pool(data: te.Tensor) -> list[te.Tensor]:
        return pool_with_positions(data, windows, is_column_major=is_column_major)

    return bb.emit_te(pool, inputs[0], primfunc_name_hint="max_pool_indices")


@converts("ConvTranspose")
def conv_transpose(bb: Any, inputs: Any, attr: Attributes) -> Any:
    """A transposed convolution, with or without ``output_shape``."""
    if "output_shape" in attr:
        attr = _with_pads(shape_of(inputs[0])[2:], shape_of(inputs[1])[2:], attr)
    return tvms("ConvTranspose", bb, inputs, attr)


def _with_pads(extents: Sequence[int], kernel: Sequence[int], attr: Attributes) -> Attributes:
    """The attributes with the pads that give the requested ``output_shape``."""
    rank = len(extents)
    wanted = list(attr["output_shape"])[-rank:]
    strides, dilations, _ = windows_of(attr, rank)
    extra = list(attr.get("output_padding", [0] * rank))
    before, after = [], []
    is_upper = text(attr, "auto_pad", "NOTSET") == "SAME_UPPER"
    for n in range(rank):
        total = strides[n] * (extents[n] - 1) + extra[n] + (kernel[n] - 1) * dilations[n] + 1
        total -= wanted[n]
        if total < 0:
            extra[n] -= total
            total = 0
        if extra[n] >= max(strides[n], dilations[n]):
            raise UnsupportedNode(f"its output_shape {wanted} is too large")
        small, large = total // 2, total - total // 2
        before.append(small if is_upper else large)
        after.append(large if is_upper else small)
    kept = {name: value for name, value in attr.items() if name not in ("output_shape", "auto_pad")}
    return {**kept, "pads": before + after, "output_padding": extra}


class _Geometry(NamedTuple):
    """The geometry of a deformable convolution of images."""

    size: list[int]
    kernel: list[int]
    output: list[int]
    strides: list[int]
    dilations: list[int]
    pads: list[int]
    channels_per_offset: int


@converts("DeformConv")
def deform_conv(bb: Any, inputs: Any, attr: Attributes) -> Any:
    """A deformable convolution of images, as a product with the values that each kernel reads."""
    data, weight, offset, bias, mask = (inputs[n] for n in range(5))
    shape, filters = shape_of(data), shape_of(weight)
    if len(shape) != 4:
        raise UnsupportedNode(f"its input has {len(shape)} axes: expected 4")
    groups, kernel, output = attr.get("group", 1), filters[2:], shape_of(offset)[2:]
    per_offset = shape[1] // attr.get("offset_group", 1)
    geometry = _Geometry(shape[2:], kernel, output, *windows_of(attr, 2), per_offset)
    given = [data, offset] if mask is None else [data, offset, mask]
    columns = bb.emit_te(
        lambda *tensors: _columns(geometry, *tensors), *given, primfunc_name_hint="deformed"
    )
    rows = filters[1] * kernel[0] * kernel[1]
    columns = bb.emit(op.reshape(columns, [shape[0], groups, rows, output[0] * output[1]]))
    matrix = op.reshape(weight, [groups, filters[0] // groups, rows])
    product = bb.emit(op.matmul(matrix, columns))
    result = bb.emit(op.reshape(product, [shape[0], filters[0], *output]))
    return result if bias is None else result + op.reshape(bias, [1, -1, 1, 1])


def _columns(
    geometry: _Geometry, data: te.Tensor, offset: te.Tensor, mask: te.Tensor | None = None
) -> te.Tensor:
    """The values that each kernel element reads: (batch, channels, kernel, height, width)."""
    height, width = geometry.size
    taps = geometry.kernel[0] * geometry.kernel[1]

    def pixel(n: Any, c: Any, y: Any, x: Any) -> Any:
        inside = tirx.all(y >= 0, y < height, x >= 0, x < width)
        return tirx.if_then_else(inside, data[n, c, y, x], tirx.const(0.0, data.dtype))

    def element(n: Any, c: Any, tap: Any, row: Any, column: Any) -> Any:
        at = (c // geometry.channels_per_offset) * taps + tap
        places = []
        for axis, output in ((0, row), (1, column)):
            inner = tap // geometry.kernel[1] if axis == 0 else tap % geometry.kernel[1]
            start = output * geometry.strides[axis] - geometry.pads[axis]
            whole = start + inner * geometry.dilations[axis]
            places.append(whole.astype(data.dtype) + offset[n, at * 2 + axis, row, column])
        y, x = (tirx.floor(place) for place in places)
        below, right = places[0] - y, places[1] - x
        y, x = y.astype("int32"), x.astype("int32")
        one = tirx.const(1.0, data.dtype)
        top = pixel(n, c, y, x) * (one - right) + pixel(n, c, y, x + 1) * right
        bottom = pixel(n, c, y + 1, x) * (one - right) + pixel(n, c, y + 1, x + 1) * right
        value = top * (one - below) + bottom * below
        return value if mask is None else value * mask[n, at, row, column]

    shape = [data.shape[0], data.shape[1], taps, *geometry.output]
    return te.compute(shape, element, name="columns")
