# SPDX-License-Identifier: Apache-2.0
"""Converter for ``DeformConv``: elements between pixels, and then one product."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm import relax, te, tirx
from tvm.relax.frontend.onnx.onnx_frontend import OnnxOpConverter

from ..operands import shape_of
from ..refusal import UnsupportedNode


@dataclass(frozen=True)
class _Geometry:
    """The places that the kernel of a two-dimensional convolution reads."""

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
