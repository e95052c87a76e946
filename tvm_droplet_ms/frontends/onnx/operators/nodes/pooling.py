# SPDX-License-Identifier: Apache-2.0
"""Converters for pools, and for transposed and deformable convolutions."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm import relax, te, tirx
from tvm.relax.frontend.onnx import onnx_frontend
from tvm.relax.frontend.onnx.onnx_frontend import OnnxOpConverter

from .....model.window_maxima import Windows, pool_with_positions
from ...rewriting.pads import same_padding
from ..operands import UnsupportedNode, shape_of, text


class _Windows(Windows):
    """The windows of a pool: explicit padding, and the number of windows along each axis."""

    def __init__(self, extents: Sequence[int], attr: dict[str, Any]) -> None:
        self.kernel = list(attr["kernel_shape"])
        ones = [1] * len(self.kernel)
        self.strides, self.dilations = attr.get("strides", ones), attr.get("dilations", ones)
        self.pads = list(attr.get("pads", [0] * (2 * len(self.kernel))))
        mode = text(attr, "auto_pad", "NOTSET")
        if mode.startswith("SAME"):
            is_lower = mode == "SAME_LOWER"
            geometry = extents, self.kernel, self.strides, self.dilations
            self.pads = same_padding(*geometry, lower=is_lower) or self.pads
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


class _Pool:
    """Converts a pool with TVM's converter, and corrects its padding and extents.

    TVM rounds an extent down with SAME_LOWER, pads by a negative width if a stride is larger than
    the kernel, and keeps a last window that begins in the padding after the axis.
    """

    @classmethod
    def _impl_v1(cls, bb: Any, inputs: Sequence[Any], attr: dict[str, Any], params: Any) -> Any:
        convert = super()._impl_v1  # type: ignore[misc]
        if not (text(attr, "auto_pad", "NOTSET").startswith("SAME") or attr.get("ceil_mode", 0)):
            return convert(bb, inputs, attr, params)
        windows = _Windows(shape_of(inputs[0])[2:], attr)
        rest = {name: value for name, value in attr.items() if name != "auto_pad"}
        result = convert(bb, inputs, {**rest, "pads": windows.pads}, params)
        if not windows.is_cut:
            return result
        axes = list(range(2, 2 + len(windows.sizes)))
        return relax.op.strided_slice(result, axes, [0] * len(windows.sizes), windows.sizes)


class AveragePool(_Pool, onnx_frontend.AveragePool):  # type: ignore[misc, name-defined, unused-ignore]
    """Converts an ONNX ``AveragePool``."""


class LpPool(_Pool, onnx_frontend.LpPool):  # type: ignore[misc, name-defined, unused-ignore]
    """Converts an ONNX ``LpPool``.

    TVM computes it from an average, which divides by fewer elements where a window reaches beyond
    the padding.
    """

    @classmethod
    def _impl_v1(cls, bb: Any, inputs: Sequence[Any], attr: dict[str, Any], params: Any) -> Any:
        if attr.get("ceil_mode", 0):
            windows = _Windows(shape_of(inputs[0])[2:], attr)
            attr = {name: value for name, value in attr.items() if name != "auto_pad"}
            attr |= {"ceil_mode": 0, "pads": windows.pads_of_all}
        return super()._impl_v1(bb, inputs, attr, params)


class MaxPool(_Pool, onnx_frontend.MaxPool):  # type: ignore[misc, name-defined, unused-ignore]
    """Converts an ONNX ``MaxPool``, including the positions of the maxima."""

    @classmethod
    def _impl_v1(cls, bb: Any, inputs: Sequence[Any], attr: dict[str, Any], params: Any) -> Any:
        if attr["tvm_custom"]["num_outputs"] < 2:
            return super()._impl_v1(bb, inputs, attr, params)
        windows = _Windows(shape_of(inputs[0])[2:], attr)
        is_column_major = bool(attr.get("storage_order", 0))

        def pool(data: te.Tensor) -> list[te.Tensor]:
            return pool_with_positions(data, windows, is_column_major=is_column_major)

        return bb.emit_te(pool, inputs[0], primfunc_name_hint="max_pool_indices")


class ConvTranspose(onnx_frontend.ConvTranspose):  # type: ignore[misc, name-defined, unused-ignore]
    """Converts an ONNX ``ConvTranspose``, with or without ``output_shape``."""

    @classmethod
    def _impl_v1(cls, bb: Any, inputs: Sequence[Any], attr: dict[str, Any], params: Any) -> Any:
        if "output_shape" in attr:
            attr = _with_pads(shape_of(inputs[0])[2:], shape_of(inputs[1])[2:], attr)
        return super()._impl_v1(bb, inputs, attr, params)


def _with_pads(
    extents: Sequence[int], kernel: Sequence[int], attr: dict[str, Any]
) -> dict[str, Any]:
    """The attributes with the pads that give the requested ``output_shape``."""
    rank = len(extents)
    wanted = list(attr["output_shape"])[-rank:]
    strides = attr.get("strides", [1] * rank)
    dilations = attr.get("dilations", [1] * rank)
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


@dataclass(frozen=True)
class _Geometry:
    """The geometry of the kernel of a two-dimensional convolution."""

    size: tuple[int, int]
    kernel: tuple[int, int]
    output: tuple[int, int]
    strides: tuple[int, int]
    dilations: tuple[int, int]
    pads: tuple[int, int]
    channels_per_offset: int


class DeformConv(OnnxOpConverter):  # type: ignore[misc, unused-ignore]
    """Converts an ONNX ``DeformConv`` of images."""

    @classmethod
    def _impl_v19(cls, bb: Any, inputs: Sequence[Any], attr: dict[str, Any], params: Any) -> Any:
        data, weight, offset, bias, mask = (inputs[n] for n in range(5))
        shape, filters = shape_of(data), shape_of(weight)
        if len(shape) != 4:
            raise UnsupportedNode(f"its input has {len(shape)} axes: expected 4")
        groups, kernel = attr.get("group", 1), filters[2:]
        pads = list(attr.get("pads", [0] * 4))
        geometry = _Geometry(
            (shape[2], shape[3]),
            (kernel[0], kernel[1]),
            (shape_of(offset)[2], shape_of(offset)[3]),
            tuple(attr.get("strides", (1, 1))),
            tuple(attr.get("dilations", (1, 1))),
            (pads[0], pads[1]),
            shape[1] // attr.get("offset_group", 1),
        )
        given = [data, offset] if mask is None else [data, offset, mask]
        columns = bb.emit_te(
            lambda *tensors: _columns(geometry, *tensors), *given, primfunc_name_hint="deformed"
        )
        pixels = geometry.output[0] * geometry.output[1]
        rows = filters[1] * kernel[0] * kernel[1]
        columns = bb.emit(relax.op.reshape(columns, [shape[0], groups, rows, pixels]))
        matrix = bb.emit(relax.op.reshape(weight, [groups, filters[0] // groups, rows]))
        product = bb.emit(relax.op.matmul(matrix, columns))
        result = bb.emit(relax.op.reshape(product, [shape[0], filters[0], *geometry.output]))
        if bias is None:
            return result
        return relax.op.add(result, relax.op.reshape(bias, [1, -1, 1, 1]))


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
