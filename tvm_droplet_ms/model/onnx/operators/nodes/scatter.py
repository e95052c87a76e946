# SPDX-License-Identifier: Apache-2.0
"""Converters for operators that write elements to computed positions.

TOPI's kernel (``topi/scatter_elements.py``) is loops without the blocks that TVM's schedules look
for. Here it is called as one that is not scheduled.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tvm import relax, te, tirx, topi
from tvm.relax.frontend.onnx.onnx_frontend import OnnxOpConverter

from ....scattering import scatter
from ....scheduled import emit_scheduled
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
        # As ONNX Runtime does, the positions count in the shape that is asked for.
        given = constant_input(inputs, 2, "output_shape")
        wanted = [*shape[:2], *sizes] if given is None else [int(extent) for extent in given]
        zeros = relax.const(np.zeros(int(np.prod(wanted)), dtype_of(data)), dtype_of(data))
        flat = [bb.emit(relax.op.reshape(each, [-1])) for each in (indices, data)]
        return relax.op.reshape(_scattered(bb, [zeros, *flat], 0, "update"), wanted)


class TensorScatter(OnnxOpConverter):  # type: ignore[misc, unused-ignore]
    """Converts an ONNX ``TensorScatter``, which writes into a cache from an index on."""

    @classmethod
    def _impl_v24(cls, bb: Any, inputs: Sequence[Any], attr: dict[str, Any], params: Any) -> Any:
        shape, size = shape_of(inputs[0]), shape_of(inputs[1])
        axis = attr.get("axis", -2) % len(shape)
        is_circular = text(attr, "mode", "linear") == "circular"
        starts = inputs[2]
        if starts is None:
            starts = relax.const(np.zeros(shape[0], np.int64), "int64")

        def write(cache: te.Tensor, update: te.Tensor, starts: te.Tensor) -> te.Tensor:
            def element(*place: Any) -> Any:
                at = place[axis] - starts[place[0]].astype("int64")
                if is_circular:
                    at = tirx.floormod(at, shape[axis])
                source = (*place[:axis], at, *place[axis + 1 :])
                written = tirx.all(at >= 0, at < size[axis])
                return tirx.if_then_else(written, update[source], cache(*place))

            return te.compute(cache.shape, element, name="write", tag=topi.tag.INJECTIVE)

        return bb.emit_te(write, *inputs[:2], starts, primfunc_name_hint="tensor_scatter")


def _scattered(bb: Any, tensors: Sequence[Any], axis: int, reduction: str) -> Any:
    """A copy of the first tensor, with the third one written where the second says."""

    def write(data: Any, index: Any, updates: Any, along: int) -> Any:
        return emit_scheduled(
            bb,
            lambda *each: [topi.scatter_elements(*each, along, reduction)],
            [data, index, updates],
            "scatter_elements",
        )

    return scatter(bb.emit, tensors, axis, write)
