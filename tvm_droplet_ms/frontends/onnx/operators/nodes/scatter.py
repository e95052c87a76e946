# SPDX-License-Identifier: Apache-2.0
"""Converters for operators that write elements to computed positions."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tvm import relax
from tvm.relax.frontend.onnx.onnx_frontend import OnnxOpConverter

from .....model.scattering import scatter
from ..operands import UnsupportedNode, constant_input, dtype_of, shape_of, text

_REDUCTIONS = {"none": "update", "add": "add", "mul": "mul", "max": "max", "min": "min"}


class ScatterElements(OnnxOpConverter):  # type: ignore[misc, unused-ignore]
    """Converts an ONNX ``ScatterElements``, and ``Scatter``, its old name."""

    @classmethod
    def _impl_v9(cls, bb: Any, inputs: Sequence[Any], attr: dict[str, Any], params: Any) -> Any:
        name = text(attr, "reduction", "none")
        if name not in _REDUCTIONS:
            raise UnsupportedNode(f"its reduction is {name!r}: expected one of {[*_REDUCTIONS]}")
        return _scattered(bb, inputs[:3], attr.get("axis", 0), _REDUCTIONS[name])


class MaxUnpool(OnnxOpConverter):  # type: ignore[misc, unused-ignore]
    """Converts an ONNX ``MaxUnpool``: zeros, and the values at their positions."""

    @classmethod
    def _impl_v9(cls, bb: Any, inputs: Sequence[Any], attr: dict[str, Any], params: Any) -> Any:
        data, indices = inputs[:2]
        shape, kernel = shape_of(data), attr["kernel_shape"]
        rank = len(kernel)
        strides, pads = attr.get("strides", [1] * rank), attr.get("pads", [0] * (2 * rank))
        sizes = [
            (shape[n + 2] - 1) * strides[n] + kernel[n] - pads[n] - pads[rank + n]
            for n in range(rank)
        ]
        # As in ONNX Runtime, the positions refer to the requested shape.
        given = constant_input(inputs, 2, "output_shape")
        wanted = [*shape[:2], *sizes] if given is None else [int(extent) for extent in given]
        zeros = relax.const(np.zeros(int(np.prod(wanted)), dtype_of(data)), dtype_of(data))
        flat = [bb.emit(relax.op.reshape(each, [-1])) for each in (indices, data)]
        return relax.op.reshape(_scattered(bb, [zeros, *flat], 0, "update"), wanted)


class TensorScatter(OnnxOpConverter):  # type: ignore[misc, unused-ignore]
    """Converts an ONNX ``TensorScatter``, which writes into a cache from a start index on."""

    @classmethod
    def _impl_v24(cls, bb: Any, inputs: Sequence[Any], attr: dict[str, Any], params: Any) -> Any:
        shape = shape_of(inputs[0])
        axis = attr.get("axis", -2) % len(shape)
        is_circular = text(attr, "mode", "linear") == "circular"
        starts = inputs[2]
        if starts is None:
            starts = relax.const(np.zeros(shape[0], np.int64), "int64")

        return written_from(bb, inputs[0], inputs[1], starts, axis, is_circular)


def written_from(
    bb: Any, cache: Any, rows: Any, starts: Any, axis: int, is_circular: bool = False
) -> Any:
    """A cache with rows written along an axis, from a start index for each batch element.

    ``starts``: (batch,), or one element for all.
    """
    shape, size = shape_of(cache), shape_of(rows)
    column = [size[axis] if n == axis else 1 for n in range(len(shape))]
    offsets = relax.const(np.arange(size[axis], dtype="int64").reshape(column), "int64")
    starts = bb.emit(relax.op.astype(starts, "int64"))
    starts = bb.emit(relax.op.reshape(starts, [-1, *(1 for _ in shape[1:])]))
    places = bb.emit(relax.op.add(starts, offsets))
    if is_circular:
        places = bb.emit(relax.op.floor_mod(places, relax.const(shape[axis], "int64")))
    places = bb.emit(relax.op.broadcast_to(places, size))
    return bb.emit(relax.op.scatter_elements(cache, places, rows, axis, "update"))


def _scattered(bb: Any, tensors: Sequence[Any], axis: int, reduction: str) -> Any:
    """A copy of the first tensor, with the third written at the indices in the second."""

    def write(data: Any, index: Any, updates: Any, along: int) -> Any:
        return relax.op.scatter_elements(data, index, updates, along, reduction)

    return bb.emit(scatter(bb.emit, tensors, axis, write))
