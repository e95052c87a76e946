# SPDX-License-Identifier: Apache-2.0
"""Converters for sequences of tensors, whose lengths are known."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tvm import relax
from tvm.relax.frontend.onnx.onnx_frontend import OnnxOpConverter

from ..operands import constant_input, shape_of
from ..refusal import UnsupportedNode


class SequenceInsert(OnnxOpConverter):  # type: ignore[misc, unused-ignore]
    """Converts an ONNX ``SequenceInsert``; TVM's counts a negative position from one too many."""

    @classmethod
    def _impl_v11(cls, bb: Any, inputs: Sequence[Any], attr: dict[str, Any], params: Any) -> Any:
        items = list(inputs[0])
        given = constant_input(inputs, 2, "position")
        position = len(items) if given is None else int(given.item())
        if not -len(items) <= position <= len(items):
            raise UnsupportedNode(f"its position {position} is not in a sequence of {len(items)}")
        items.insert(position, inputs[1])
        return relax.Tuple(items)


class SplitToSequence(OnnxOpConverter):  # type: ignore[misc, unused-ignore]
    """Converts an ONNX ``SplitToSequence`` into parts of one size, or of several."""

    @classmethod
    def _impl_v11(cls, bb: Any, inputs: Sequence[Any], attr: dict[str, Any], params: Any) -> Any:
        data, given = inputs[0], constant_input(inputs, 1, "split")
        shape = shape_of(data)
        axis = attr.get("axis", 0) % len(shape)
        if given is None or given.ndim == 0:
            size = 1 if given is None else int(given)
            starts = list(range(0, shape[axis], size))
        else:
            starts = [0, *np.cumsum(given)[:-1].tolist()]
        parts = [
            bb.emit(relax.op.strided_slice(data, [axis], [start], [end]))
            for start, end in zip(starts, [*starts[1:], shape[axis]], strict=True)
        ]
        if given is None and not attr.get("keepdims", 1):
            parts = [bb.emit(relax.op.squeeze(part, [axis])) for part in parts]
        return relax.Tuple(parts)
