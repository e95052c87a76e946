# SPDX-License-Identifier: Apache-2.0
"""Converters for pools and transposed convolutions."""

from collections.abc import Sequence
from math import prod
from typing import Any

from tvm import te, tirx
from tvm.relax.frontend.onnx import onnx_frontend

from ...rewriting.pads import same_padding
from ..operands import shape_of, text
from ..refusal import UnsupportedNode


class MaxPool(onnx_frontend.MaxPool):  # type: ignore[misc, name-defined, unused-ignore]
    """Converts an ONNX ``MaxPool``, the positions of the maxima included."""

    @classmethod
    def _impl_v1(cls, bb: Any, inputs: Sequence[Any], attr: dict[str, Any], params: Any) -> Any:
        if attr["tvm_custom"]["num_outputs"] < 2:
            return super()._impl_v1(bb, inputs, attr, params)
        extents = shape_of(inputs[0])[2:]
        kernel = list(attr["kernel_shape"])
        ones = [1] * len(kernel)
        strides, dilations = attr.get("strides", ones), attr.get("dilations", ones)
        pads = list(attr.get("pads", [0] * (2 * len(kernel))))
        mode = text(attr, "auto_pad", "NOTSET")
        if mode.startswith("SAME"):
            is_lower = mode == "SAME_LOWER"
            found = same_padding(extents, kernel, strides, dilations, lower=is_lower)
            pads = pads if found is None else found
        sizes = []
        for n, extent in enumerate(extents):
            room = extent + pads[n] + pads[len(kernel) + n] - dilations[n] * (kernel[n] - 1) - 1
            size = (-(-room // strides[n]) if attr.get("ceil_mode", 0) else room // strides[n]) + 1
            # The last window has to begin before the end of the padding behind the axis.
            if (size - 1) * strides[n] >= extent + pads[n]:
                size -= 1
            sizes.append(size)

        def pool(data: te.Tensor) -> list[te.Tensor]:
            return _pool(
                data, sizes, kernel, strides, dilations, pads, bool(attr.get("storage_order", 0))
            )

        return bb.emit_te(pool, inputs[0], primfunc_name_hint="max_pool_indices")


def _pool(
    data: te.Tensor,
    sizes: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    pads: Sequence[int],
    is_column_major: bool,
) -> list[te.Tensor]:
    """The maxima of windows and their positions in the tensor."""
    shape = [int(extent) for extent in data.shape]
    extents = shape[2:]
    size = prod(extents)
    inner = [te.reduce_axis((0, size), name=f"k{n}") for n, size in enumerate(kernel)]

    def larger(one: Any, other: Any) -> tuple[Any, Any]:
        # The first of equal ones.
        keep = tirx.any(one[1] > other[1], tirx.all(one[1] == other[1], one[0] <= other[0]))
        return tirx.Select(keep, one[0], other[0]), tirx.Select(keep, one[1], other[1])

    def nothing(index: str, value: str) -> tuple[Any, Any]:
        return tirx.const((1 << 62), index), te.min_value(value)

    reducer = te.comm_reducer(larger, nothing, name="argmax")

    def element(n: Any, c: Any, *place: Any) -> Any:
        ats = [place[d] * strides[d] + inner[d] * dilations[d] - pads[d] for d in range(len(sizes))]
        inside = tirx.all(*[tirx.all(at >= 0, at < extents[d]) for d, at in enumerate(ats)])
        flat = tirx.const(0, "int64")
        for d in range(len(sizes)):
            flat = flat * extents[d] + ats[d].astype("int64")
        flat = flat + (n.astype("int64") * shape[1] + c.astype("int64")) * size
        nowhere, least = nothing("int64", data.dtype)
        source = (n, c, *ats)
        value = tirx.if_then_else(inside, data[source], least)
        return reducer((tirx.if_then_else(inside, flat, nowhere), value), axis=inner)

    index, value = te.compute([*shape[:2], *sizes], element, name="max_pool")
    if not is_column_major:
        return [value, index]

    def by_columns(*place: Any) -> Any:
        rest = tirx.floormod(index(*place), size)
        flat = index(*place) - rest
        stride = size
        for extent in reversed(extents):
            stride //= extent
            flat = flat + tirx.floormod(rest, extent) * stride
            rest = tirx.floordiv(rest, extent)
        return flat

    return [value, te.compute(index.shape, by_columns, name="by_columns")]


class ConvTranspose(onnx_frontend.ConvTranspose):  # type: ignore[misc, name-defined, unused-ignore]
    """Converts an ONNX ``ConvTranspose``, one with an ``output_shape`` included."""

    @classmethod
    def _impl_v1(cls, bb: Any, inputs: Sequence[Any], attr: dict[str, Any], params: Any) -> Any:
        if "output_shape" in attr:
            attr = _with_pads(shape_of(inputs[0])[2:], shape_of(inputs[1])[2:], attr)
        return super()._impl_v1(bb, inputs, attr, params)


def _with_pads(
    extents: Sequence[int], kernel: Sequence[int], attr: dict[str, Any]
) -> dict[str, Any]:
    """The attributes with the pads that give the shape that is asked for."""
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
