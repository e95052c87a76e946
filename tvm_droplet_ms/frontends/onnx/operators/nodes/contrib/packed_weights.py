# SPDX-License-Identifier: Apache-2.0
"""Converters for operators with block-quantized weights of a few bits.

Weights of products become float32 for many rows, and stay packed for a few (``pack_weights``).
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tvm import relax
from tvm.relax.frontend.onnx.onnx_frontend import OnnxOpConverter

from ....byte_products import computes_in_bytes
from ...operands import UnsupportedNode, constant_input, shape_of

Array = np.ndarray[Any, Any]


class MatMulNBits(OnnxOpConverter):  # type: ignore[misc, unused-ignore]
    """Converts ``MatMulNBits``."""

    @classmethod
    def _impl_v1(cls, bb: Any, inputs: Sequence[Any], attr: dict[str, Any], params: Any) -> Any:
        bits, depth, columns = int(attr.get("bits", 4)), int(attr["K"]), int(attr["N"])
        if bits not in (2, 4, 8):
            raise UnsupportedNode(f"its weights have {bits} bits: expected 2, 4 or 8")
        packed, scales = (constant_input(inputs, n, name) for n, name in ((1, "B"), (2, "scales")))
        assert packed is not None and scales is not None  # The operator requires them.
        order = constant_input(inputs, 4, "g_idx")
        block = int(attr["block_size"])
        blocks = -(-depth // block)
        numbers = unpacked(packed.reshape(columns, blocks, -1), bits)[..., :block]
        zeros: Array = np.full((columns, blocks), 1 << (bits - 1), "float32")
        points = constant_input(inputs, 3, "zero_points")
        if points is not None and points.dtype == np.uint8:
            zeros = unpacked(points.reshape(columns, -1), bits)[:, :blocks].astype("float32")
        elif points is not None:
            zeros = points.reshape(columns, blocks).astype("float32")
        of_blocks = scales.reshape(columns, blocks).astype("float32")
        group = np.arange(depth) // block if order is None else order.reshape(-1)[:depth]
        by_row = numbers.reshape(columns, -1)[:, :depth]
        if order is None and depth % block == 0:
            by_row = by_row.reshape(columns, blocks, block)
            zeros, of_blocks = zeros[..., None], of_blocks[..., None]
        else:
            zeros, of_blocks = zeros[:, group], of_blocks[:, group]
        # ``pack_weights`` matches these operations, and keeps the numbers packed.
        integers = relax.const(np.ascontiguousarray(by_row), "uint8")
        weight = bb.emit(relax.op.astype(integers, "float32"))
        weight = bb.emit(relax.op.subtract(weight, relax.const(zeros, "float32")))
        weight = bb.emit(relax.op.multiply(weight, relax.const(of_blocks, "float32")))
        weight = bb.emit(relax.op.reshape(weight, [columns, depth]))
        rows = inputs[0]
        if order is None and computes_in_bytes(attr):
            rows = _rounded_to_bytes(bb, rows, block)
        product = bb.emit(relax.op.matmul(rows, bb.emit(relax.op.permute_dims(weight))))
        return product if inputs[5] is None else relax.op.add(product, inputs[5])


def _rounded_to_bytes(bb: Any, rows: Any, block: int) -> Any:
    """Round rows to signed bytes times a scale per block. ``pack_weights`` matches this."""
    shape = shape_of(rows)
    blocks = bb.emit(relax.op.reshape(rows, [*shape[:-1], shape[-1] // block, block]))
    largest = bb.emit(relax.op.max(bb.emit(relax.op.abs(blocks)), axis=[-1], keepdims=True))
    scales = bb.emit(relax.op.divide(largest, relax.const(127.0)))
    zero = relax.const(0.0)
    inverse = bb.emit(relax.op.divide(relax.const(1.0), scales))
    inverse = bb.emit(relax.op.where(relax.op.equal(scales, zero), zero, inverse))
    numbers = bb.emit(relax.op.round(bb.emit(relax.op.multiply(blocks, inverse))))
    return bb.emit(relax.op.reshape(bb.emit(relax.op.multiply(numbers, scales)), shape))


class GatherBlockQuantized(OnnxOpConverter):  # type: ignore[misc, unused-ignore]
    """Converts ``GatherBlockQuantized``: rows of a quantized table."""

    @classmethod
    def _impl_v1(cls, bb: Any, inputs: Sequence[Any], attr: dict[str, Any], params: Any) -> Any:
        data, scales = (constant_input(inputs, n, name) for n, name in ((0, "data"), (2, "scales")))
        assert data is not None and scales is not None  # The operator requires them.
        points, bits = constant_input(inputs, 3, "zero_points"), int(attr.get("bits", 4))
        rank = data.ndim
        axis, along = (
            int(attr.get(f"{n}_axis", d)) % rank for n, d in (("gather", 0), ("quantize", 1))
        )
        is_whole = data.dtype == np.int8  # ``widen_integers`` makes int8.
        if not is_whole and (data.dtype != np.uint8 or (bits == 4 and along != rank - 1)):
            raise UnsupportedNode(
                f"its data are of type {data.dtype} along axis {along}: expected uint8 along the "
                "last axis"
            )
        numbers = data if is_whole else unpacked(data, bits)
        block = int(attr.get("block_size", 128))
        extent = numbers.shape[along]

        def spread(values: Array) -> Array:
            return np.take(np.repeat(values, block, along), range(extent), along)

        zeros: Array = np.full(scales.shape, 0 if is_whole else 1 << (bits - 1), "float32")
        if points is not None:
            zeros = (points if is_whole else unpacked(points, bits)).astype("float32")
            zeros = np.take(zeros, range(scales.shape[along]), along)
        indices = bb.emit(relax.op.astype(inputs[1], "int64"))
        rows = relax.const(numbers.shape[axis], "int64")
        is_negative = bb.emit(relax.op.less(indices, relax.const(0, "int64")))
        indices = bb.emit(relax.op.where(is_negative, relax.op.add(indices, rows), indices))
        if (rank, axis, along) == (2, 0, 1) and extent % block == 0:
            return _scaled_rows(bb, [numbers, zeros, scales], indices)
        table = (numbers.astype("float32") - spread(zeros)) * spread(scales.astype("float32"))
        return relax.op.take(relax.const(table, "float32"), indices, axis=axis)


def _scaled_rows(bb: Any, tables: Sequence[Array], indices: Any) -> Any:
    """Rows of bytes, minus the zero points of their blocks, times the scales of the blocks."""
    found = [
        bb.emit(relax.op.take(relax.const(each, str(each.dtype)), indices, axis=0))
        for each in tables
    ]
    numbers, zeros, scales = (bb.emit(relax.op.astype(each, "float32")) for each in found)
    shape = [int(extent) for extent in numbers.ty.shape]
    numbers = bb.emit(relax.op.reshape(numbers, [*shape[:-1], tables[2].shape[1], -1]))
    zeros, scales = (bb.emit(relax.op.expand_dims(each, -1)) for each in (zeros, scales))
    scaled = relax.op.multiply(bb.emit(relax.op.subtract(numbers, zeros)), scales)
    return relax.op.reshape(bb.emit(scaled), shape)


def unpacked(packed: Array, bits: int) -> Array:
    """Unpack unsigned numbers from bytes that hold several, the lowest bits first.

    ``packed``: uint8. ``bits``: 2, 4 or 8. The last axis becomes 8 / bits times as long.
    """
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    apart = (packed[..., None] >> shifts) & ((1 << bits) - 1)
    return apart.reshape(*packed.shape[:-1], -1)
