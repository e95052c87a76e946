# SPDX-License-Identifier: Apache-2.0
"""The converter for an ``LSTM`` whose weights, inputs and states are rounded to bytes."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tvm import relax
from tvm.target import Target
from tvm.target.codegen import target_has_features

from ...operands import constant_input
from ..quantized import DequantizeLinear, DynamicQuantizeLinear, MatMulInteger
from .cells import GATES
from .converters import Lstm
from .layer import WIDTH, Operands, Packer

Array = np.ndarray[Any, Any]

_TOGETHER = 4
"""Number of bytes in a word."""


class DynamicQuantizeLSTM(Lstm):
    """Converts ``DynamicQuantizeLSTM``.

    With VNNI, the products are computed in bytes. Without VNNI, or if weights minus their zero
    points need more than eight bits, they are computed in float32 from dequantized numbers.
    """

    rounds_states = True

    @classmethod
    def _multiply(
        cls, bb: Any, pack: Packer, rows: Any, inputs: Sequence[Any], operands: Operands
    ) -> Any:
        fields = DynamicQuantizeLinear._impl_v11(bb, [rows], {}, None).fields
        data, scale, point = (bb.emit(each) for each in fields)
        weights, scales = zip(*(_of_directions(inputs, *each) for each in _WEIGHTS), strict=True)
        if not _has_dot() or any(np.abs(each + 0.5).max() > 128 for each in weights):
            numbers = [
                (each * factor[..., None]).astype("float32")
                for each, factor in zip(weights, scales, strict=True)
            ]
            operands.weights = pack.state_weights(relax.const(numbers[1]))
            rounded = bb.emit(DequantizeLinear._impl_v10(bb, [data, scale, point], {}, None))
            return relax.op.matmul(rounded, pack.input_weights(relax.const(numbers[0])))
        operands.weights = relax.const(_words(weights[1]))
        operands.scales = relax.const(_by_tile(scales[1]))
        operands.sums = relax.const(_by_tile(weights[1].sum(-1, dtype="int32")))
        columns = pack.input_weights(relax.const(weights[0].astype("int8")))
        sums = bb.emit(MatMulInteger._impl_v10(bb, [data, columns, point, None], {}, None))
        factors = relax.const(_by_tile(scales[0]).reshape(1, -1))
        return relax.op.multiply(
            bb.emit(relax.op.astype(sums, "float32")), bb.emit(relax.op.multiply(scale, factors))
        )


def _has_dot() -> bool:
    target = Target.current(allow_none=True)
    if target is None or target.kind.name != "llvm":
        return False
    return bool(target_has_features(["avx512vnni", "avx512f"], target))


_WEIGHTS = ((1, "W", 8), (2, "R", 10))
"""The indices of the inputs with byte weights, the names of these inputs, and the indices of the
inputs with scales. Each input with zero points follows its scales."""


def _of_directions(inputs: Sequence[Any], number: int, name: str, first: int) -> list[Array]:
    """Weights minus zero points, (directions, 4 * hidden, inputs) in int32, and their scales.

    The scales are of shape (directions, 4 * hidden). The node's bytes have the last two axes
    swapped.
    """
    found = [
        constant_input(inputs, n, each)
        for n, each in ((number, name), (first, f"{name}_scale"), (first + 1, f"{name}_zero_point"))
    ]
    assert all(each is not None for each in found)  # All are required.
    data, scales, points = (np.asarray(each) for each in found)
    count, _, columns = data.shape
    shifted = data.astype("int32") - points.reshape(count, 1, -1).astype("int32")
    spread = np.broadcast_to(scales.reshape(count, -1), (count, columns)).astype("float32")
    return [np.ascontiguousarray(np.swapaxes(shifted, 1, 2)), spread]


def _by_tile(values: Array) -> Array:
    """Rearrange (directions, gates * hidden, ...) to (directions, tiles, gates, WIDTH, ...)."""
    count, rows, *rest = values.shape
    gates = GATES["LSTM"]
    values = values.reshape(count, gates, rows // gates, *rest)
    extra = -values.shape[2] % WIDTH
    values = np.pad(values, [(0, extra if axis == 2 else 0) for axis in range(values.ndim)])
    values = values.reshape(count, gates, -1, WIDTH, *rest)
    return np.ascontiguousarray(np.swapaxes(values, 1, 2))


def _words(weights: Array) -> Array:
    """State weights as words of four bytes, in the order in which the kernel reads them."""
    tiled = _by_tile(weights.astype("int8"))
    extra = -tiled.shape[-1] % WIDTH
    tiled = np.pad(tiled, [(0, 0)] * 4 + [(0, extra)])
    fours = tiled.reshape(*tiled.shape[:-1], -1, _TOGETHER)
    ordered = np.ascontiguousarray(fours.transpose(0, 1, 4, 2, 3, 5))
    return ordered.view("int32")[..., 0]
