# SPDX-License-Identifier: Apache-2.0
"""Converters for operators that write elements to computed positions.

TOPI's kernel (``topi/scatter_elements.py``) is loops without the blocks that TVM's schedules look
for. Here it is called as one that is not scheduled.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tvm import relax, topi
from tvm.relax.frontend.onnx.onnx_frontend import OnnxOpConverter

from ..operands import constant_input, dtype_of, shape_of, text
from ..refusal import UnsupportedNode
from ..scheduled import emit_scheduled

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


def _scattered(bb: Any, tensors: Sequence[Any], axis: int, reduction: str) -> Any:
    """A copy of the first tensor, with the third one written where the second says."""
    return emit_scheduled(
        bb,
        lambda *each: [topi.scatter_elements(*each, axis, reduction)],
        tensors,
        "scatter_elements",
    )
