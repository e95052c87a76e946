# SPDX-License-Identifier: Apache-2.0
"""Converters for operators with block-quantized weights of a few bits.

Weights of products become float32 for many rows, and stay packed for a few (``pack_weights``).
``accuracy_level`` is the minimum accuracy: 4 allows rows of bytes, block by block, and 2 or 3
allow half floats. Rows become bytes here only where ONNX Runtime makes them bytes.
"""

import functools
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np
import onnx
from onnx import parser

from tvm import relax
from tvm.relax import op

from ....evaluation import open_session
from ...operands import (
    Attributes,
    UnsupportedNode,
    constant,
    constant_input,
    float32,
    integers,
    shape_of,
)
from . import converts

Array = np.ndarray[Any, Any]


@converts("MatMulNBits")
def mat_mul_n_bits(bb: Any, inputs: Any, attr: Attributes) -> Any:
    """A product with packed weights."""
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
        zeros = unpacked(points.reshape(columns, -1), bits)[:, :blocks]
    elif points is not None:
        zeros = points.reshape(columns, blocks)
    of_blocks = scales.reshape(columns, blocks)
    by_row = numbers.reshape(columns, -1)[:, :depth]
    if order is None and depth % block == 0:
        by_row = by_row.reshape(columns, blocks, block)
        zeros, of_blocks = zeros[..., None], of_blocks[..., None]
    else:
        group = np.arange(depth) // block if order is None else order.reshape(-1)[:depth]
        zeros, of_blocks = zeros[:, group], of_blocks[:, group]
    # ``pack_weights`` matches these operations, and keeps the numbers packed.
    weight = constant(np.ascontiguousarray(by_row), "uint8").astype("float32")
    weight = op.reshape((weight - float32(zeros)) * float32(of_blocks), [columns, depth])
    weight = bb.emit(weight)
    rows = inputs[0]
    if order is None and computes_in_bytes(attr):
        rows = _rounded_to_bytes(bb, rows, block)
    product = bb.emit(op.matmul(rows, op.permute_dims(weight)))
    return product if inputs[5] is None else product + inputs[5]


def _rounded_to_bytes(bb: Any, rows: Any, block: int) -> Any:
    """Round rows to signed bytes times a scale per block. ``pack_weights`` matches this."""
    shape, zero = shape_of(rows), relax.const(0.0)
    blocks = bb.emit(op.reshape(rows, [*shape[:-1], shape[-1] // block, block]))
    largest = op.max(op.abs(blocks), axis=[-1], keepdims=True)
    scales = bb.emit(largest / relax.const(127.0))
    inverse = bb.emit(relax.const(1.0) / scales)
    inverse = bb.emit(op.where(op.equal(scales, zero), zero, inverse))
    return bb.emit(op.reshape(op.round(blocks * inverse) * scales, shape))


@converts("GatherBlockQuantized")
def gather_block_quantized(bb: Any, inputs: Any, attr: Attributes) -> Any:
    """Rows of a quantized table."""
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
            f"its data are of type {data.dtype} along axis {along}: expected uint8 along the last "
            "axis"
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
    indices = bb.emit(inputs[1].astype("int64"))
    from_end = indices + integers(numbers.shape[axis])
    indices = bb.emit(op.where(indices < integers(0), from_end, indices))
    if (rank, axis, along) == (2, 0, 1) and extent % block == 0:
        return _scaled_rows(bb, [numbers, zeros, scales], indices)
    table = (numbers.astype("float32") - spread(zeros)) * spread(scales.astype("float32"))
    return op.take(float32(table), indices, axis=axis)


def _scaled_rows(bb: Any, tables: Sequence[Array], indices: Any) -> Any:
    """Rows of bytes, minus the zero points of their blocks, times the scales of the blocks."""
    found = [bb.emit(op.take(constant(each), indices, axis=0)) for each in tables]
    numbers, zeros, scales = (bb.emit(each.astype("float32")) for each in found)
    shape = shape_of(numbers)
    numbers = op.reshape(numbers, [*shape[:-1], tables[2].shape[1], -1])
    scaled = (numbers - op.expand_dims(zeros, -1)) * op.expand_dims(scales, -1)
    return op.reshape(scaled, shape)


def unpacked(packed: Array, bits: int) -> Array:
    """Unpack unsigned numbers from bytes that hold several, the lowest bits first.

    ``packed``: uint8. ``bits``: 2, 4 or 8. The last axis becomes 8 / bits times as long.
    """
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    apart = (packed[..., None] >> shifts) & ((1 << bits) - 1)
    return apart.reshape(*packed.shape[:-1], -1)


_KIND, _LEVEL, _EXACT, _BYTES = "MatMulNBits", "accuracy_level", 1, 4
_GROUPS = 4
"""The index of ``g_idx``, the input that gives each row its group."""

_LEAST_BLOCK = 16


def computes_in_bytes(attributes: Mapping[str, Any]) -> bool:
    """True if a product with these attributes and without ``g_idx`` rounds rows to bytes."""
    block, depth = int(attributes["block_size"]), int(attributes["K"])
    is_served = int(attributes.get("bits", 4)) in (4, 8) and depth % block == 0
    return int(attributes.get(_LEVEL, 0)) == _BYTES and is_served and block >= _LEAST_BLOCK


def has_lower_levels(model: onnx.ModelProto) -> bool:
    """True if any product in a model may round its rows."""
    return any(_level(node) > _EXACT for node in model.graph.node)


def with_exact_others(model: onnx.ModelProto, *, keeps_bytes: bool) -> onnx.ModelProto:
    """Copy a model, and make the products that round rows exact.

    ``keeps_bytes``: whether products that round rows to bytes keep doing so. A model without
    rounded rows is returned itself.
    """
    if not has_lower_levels(model):
        return model
    copy = type(model)()
    copy.CopyFrom(model)
    for node in copy.graph.node:
        if _level(node) > _EXACT and not (keeps_bytes and _is_of_bytes(node)):
            for each in node.attribute:
                if each.name == _LEVEL:
                    each.i = _EXACT
    return copy


def _level(node: onnx.NodeProto) -> int:
    if node.op_type != _KIND:
        return 0
    return next((int(each.i) for each in node.attribute if each.name == _LEVEL), 0)


def _is_of_bytes(node: onnx.NodeProto) -> bool:
    has_groups = len(node.input) > _GROUPS and bool(node.input[_GROUPS])
    return not has_groups and computes_in_bytes({each.name: each.i for each in node.attribute})


_DEPTH, _COLUMNS, _BLOCK = 64, 16, 32


@functools.cache
def rounds_to_bytes() -> bool:
    """Return whether ONNX Runtime rounds rows to 8-bit integers, if allowed, with packed weights.

    This is also True if ONNX Runtime is missing: then nothing is compared with it.
    """
    if find_spec("onnxruntime") is None:
        return True
    rng = np.random.default_rng(0)
    x = rng.standard_normal((1, _DEPTH)).astype("float32")
    weights = {
        "b": rng.integers(0, 256, (_COLUMNS, _DEPTH // _BLOCK, _BLOCK // 2)).astype("uint8"),
        "s": np.ones(_COLUMNS * _DEPTH // _BLOCK, "float32"),
    }

    def product(level: int) -> np.ndarray:
        model = parser.parse_model(
            f"""<ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]>
            probe (float[1, {_DEPTH}] x) => (float[1, {_COLUMNS}] y) {{
                y = com.microsoft.{_KIND} <K = {_DEPTH}, N = {_COLUMNS}, bits = 4,
                    block_size = {_BLOCK}, {_LEVEL} = {level}> (x, b, s)
            }}"""
        )
        tensors = [onnx.numpy_helper.from_array(array, name) for name, array in weights.items()]
        model.graph.initializer.extend(tensors)
        found: np.ndarray = open_session(model.SerializeToString()).run(None, {"x": x})[0]
        return found

    # ONNX Runtime raises about a dozen error classes. A version without the operator cannot run
    # the model either.
    try:
        exact, rounded = product(1), product(4)
    except Exception:
        return True
    return bool(np.abs(exact - rounded).max() > 1e-4 * np.abs(exact).max())
