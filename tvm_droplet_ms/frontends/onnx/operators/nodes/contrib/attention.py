# SPDX-License-Identifier: Apache-2.0
"""Converters for ONNX Runtime's attention operators with equally many key and query heads.

Heads are (batch, heads, rows, width) here. Masks are terms added to the scores, as in
``onnxruntime/contrib_ops/cpu/bert/attention_helper.h``.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tvm import relax
from tvm.relax.frontend.onnx.onnx_frontend import OnnxOpConverter

from ...operands import UnsupportedNode, dtype_of, shape_of
from ..quantized import MatMulInteger

LOWEST = float(np.finfo(np.float32).min)
"""The term that hides a score."""


class Attention(OnnxOpConverter):  # type: ignore[misc, unused-ignore]
    """Converts ``Attention``: the projection to queries, keys and values, and their attention."""

    @classmethod
    def _impl_v1(cls, bb: Any, inputs: Sequence[Any], attr: dict[str, Any], params: Any) -> Any:
        if attr.get("do_rotary", 0) or attr.get("past_present_share_buffer", 0):
            raise UnsupportedNode("its rotary embedding or shared buffer is not supported")
        projected = bb.emit(relax.op.matmul(inputs[0], inputs[1]))
        if inputs[2] is not None:
            projected = bb.emit(relax.op.add(projected, inputs[2]))
        return _of_projected(bb, projected, inputs[3], inputs[4], inputs[5], attr)


class QAttention(OnnxOpConverter):  # type: ignore[misc, unused-ignore]
    """Converts ``QAttention``: ``Attention`` whose input and weights are bytes."""

    @classmethod
    def _impl_v1(cls, bb: Any, inputs: Sequence[Any], attr: dict[str, Any], params: Any) -> Any:
        factors = [inputs[0], inputs[1], inputs[6], inputs[7]]
        sums = bb.emit(MatMulInteger._impl_v10(bb, factors, {}, params))
        scale = bb.emit(relax.op.multiply(inputs[3], inputs[4]))
        projected = relax.op.multiply(relax.op.astype(sums, "float32"), scale)
        projected = bb.emit(relax.op.add(projected, inputs[2]))
        return _of_projected(bb, projected, inputs[5], inputs[8], None, attr)


class MultiHeadAttention(OnnxOpConverter):  # type: ignore[misc, unused-ignore]
    """Converts ``MultiHeadAttention`` of queries, keys and values."""

    @classmethod
    def _impl_v1(cls, bb: Any, inputs: Sequence[Any], attr: dict[str, Any], params: Any) -> Any:
        count = int(attr["num_heads"])
        query, key, value = (inputs[n] for n in range(3))
        if key is None or value is None:
            raise UnsupportedNode("its keys or values are packed, which is not supported")
        if inputs[3] is not None:
            query, key, value = _with_bias(bb, (query, key, value), inputs[3])
        query, key, value = (heads(bb, each, count) for each in (query, key, value))
        key, value = (
            each if past is None else bb.emit(relax.op.concat([past, each], axis=2))
            for past, each in ((inputs[6], key), (inputs[7], value))
        )
        if any(inputs[n] is not None for n in (8, 9)):
            raise UnsupportedNode("its past_sequence_length or cache_indirection is not supported")
        rows, columns = shape_of(query)[2], shape_of(key)[2]
        before = 0 if inputs[6] is None else shape_of(inputs[6])[2]
        added = masks(bb, inputs[4], rows, columns, _filter(attr), shape_of(query)[0])
        added = _hidden(bb, added, rows, columns, before, attr)
        if inputs[5] is not None:
            added.append(inputs[5])
        found, scores = attend(bb, query, key, value, added, attr.get("scale", 0.0))
        outputs = [joined(bb, found), key, value, scores]
        count = attr["tvm_custom"]["num_outputs"]
        return outputs[0] if count == 1 else relax.Tuple(outputs[:count])


def heads(bb: Any, value: Any, count: int) -> Any:
    """Split rows (batch, rows, heads * width) into heads. Four axes mean heads already."""
    shape = shape_of(value)
    if len(shape) == 4:
        return value
    apart = bb.emit(relax.op.reshape(value, [*shape[:2], count, shape[2] // count]))
    return bb.emit(relax.op.permute_dims(apart, [0, 2, 1, 3]))


def joined(bb: Any, value: Any) -> Any:
    """Join heads into rows (batch, rows, heads * width)."""
    batch, count, rows, width = shape_of(value)
    turned = bb.emit(relax.op.permute_dims(value, [0, 2, 1, 3]))
    return bb.emit(relax.op.reshape(turned, [batch, rows, count * width]))


def attend(
    bb: Any,
    query: Any,
    key: Any,
    value: Any,
    added: Sequence[Any],
    scale: float,
    softcap: float = 0.0,
) -> tuple[Any, Any]:
    """The values weighted by the softmax of the scores, and the scores.

    ``added``: terms added to the scores. ``scale``: factor of the scores; 0 for one over the square
    root of the width. ``softcap``: bound of the scores before ``added``; 0 for none.
    """
    factor = scale or shape_of(query)[-1] ** -0.5
    turned = bb.emit(relax.op.permute_dims(key, [0, 1, 3, 2]))
    scores = bb.emit(relax.op.matmul(query, turned))
    scores = bb.emit(relax.op.multiply(scores, relax.const(float(factor), dtype_of(query))))
    if softcap:
        cap = relax.const(float(softcap), dtype_of(query))
        scores = bb.emit(relax.op.multiply(relax.op.tanh(relax.op.divide(scores, cap)), cap))
    for each in added:
        scores = bb.emit(relax.op.add(scores, each))
    weights = bb.emit(relax.op.nn.softmax(scores, -1))
    return bb.emit(relax.op.matmul(weights, value)), scores


def masks(bb: Any, mask: Any, rows: int, columns: int, filtered: float, batch: int) -> list[Any]:
    """The terms that an integer mask adds to the scores: an empty list, or one tensor.

    A mask of shape (batch, columns), (batch, rows, columns) or (batch, 1, columns, columns) has 1
    for visible columns. A mask of shape (batch) has the end of each sequence's visible columns. A
    mask of shape (2 * batch) has these ends, followed by the starts.
    """
    if mask is None:
        return []
    shape = shape_of(mask)
    if len(shape) == 1:
        return [_of_bounds(bb, mask, columns, filtered, batch)]
    if len(shape) == 4:
        below = [columns - rows, 0]
        mask = bb.emit(relax.op.strided_slice(mask, [2, 3], below, [columns, columns]))
        shape = shape_of(mask)
    places = {2: [shape[0], 1, 1, shape[-1]], 3: [shape[0], 1, *shape[1:]], 4: shape}
    placed = bb.emit(relax.op.reshape(mask, places[len(shape)]))
    is_seen = bb.emit(relax.op.greater(placed, relax.const(0, dtype_of(mask))))
    zero, least = relax.const(0.0, "float32"), relax.const(filtered, "float32")
    return [bb.emit(relax.op.where(is_seen, zero, least))]


def _of_bounds(bb: Any, bounds: Any, columns: int, filtered: float, batch: int) -> Any:
    """The term for lengths, for ends and starts, or for lengths with offsets of packed rows."""
    dtype = dtype_of(bounds)
    if shape_of(bounds)[0] not in (batch, 2 * batch, 3 * batch + 2):
        raise UnsupportedNode(
            f"its mask has {shape_of(bounds)[0]} numbers for a batch of {batch}: expected the "
            "length of each sequence, or a number for each key"
        )
    place = relax.const(np.arange(columns, dtype=dtype), dtype)

    def column(first: int) -> Any:
        part = bb.emit(relax.op.strided_slice(bounds, [0], [first], [first + batch]))
        return bb.emit(relax.op.reshape(part, [batch, 1, 1, 1]))

    is_seen = bb.emit(relax.op.less(place, column(0)))
    if shape_of(bounds)[0] == 2 * batch:
        is_behind = bb.emit(relax.op.greater_equal(place, column(batch)))
        is_seen = bb.emit(relax.op.logical_and(is_seen, is_behind))
    zero, least = relax.const(0.0, "float32"), relax.const(filtered, "float32")
    return bb.emit(relax.op.where(is_seen, zero, least))


def _hidden(
    bb: Any, added: list[Any], rows: int, columns: int, before: int, attr: dict[str, Any]
) -> list[Any]:
    """Also hide later columns if a node is unidirectional. The last row sees all columns.

    ``before``: number of past columns. Terms are at least ``LOWEST``: the sum of two such terms
    would be infinite.
    """
    if not attr.get("unidirectional", 0):
        return added
    is_later = np.arange(columns)[None, :] > np.arange(rows)[:, None] + before
    is_later[-1] = False
    later = relax.const(np.where(is_later, LOWEST, 0.0).astype("float32"), "float32")
    if not added:
        return [later]
    least = relax.const(LOWEST, "float32")
    return [bb.emit(relax.op.maximum(relax.op.add(each, later), least)) for each in added]


def _filter(attr: dict[str, Any]) -> float:
    return float(attr.get("mask_filter_value", -10000.0))


def _of_projected(
    bb: Any, projected: Any, mask: Any, past: Any, bias: Any, attr: dict[str, Any]
) -> Any:
    """The attention of queries, keys and values that are concatenated in one tensor."""
    count = int(attr["num_heads"])
    batch, rows, width = shape_of(projected)
    sizes = [int(n) for n in attr.get("qkv_hidden_sizes", ())] or [width // 3] * 3
    query, key, value = (heads(bb, each, count) for each in parts(bb, projected, 2, sizes))
    if past is not None:
        before = [bb.emit(relax.op.squeeze(each, [0])) for each in parts(bb, past, 0, [1, 1])]
        key, value = (
            bb.emit(relax.op.concat([old, new], axis=2))
            for old, new in zip(before, (key, value), strict=True)
        )
    columns = shape_of(key)[2]
    added = masks(bb, mask, rows, columns, _filter(attr), batch)
    added = _hidden(bb, added, rows, columns, columns - rows, attr)
    if bias is not None:
        added.append(bias)
    found, _ = attend(bb, query, key, value, added, attr.get("scale", 0.0))
    output = joined(bb, found)
    if attr["tvm_custom"]["num_outputs"] == 1:
        return output
    present = [bb.emit(relax.op.expand_dims(each, 0)) for each in (key, value)]
    return relax.Tuple([output, bb.emit(relax.op.concat(present, axis=0))])


def _with_bias(bb: Any, values: Sequence[Any], bias: Any) -> list[Any]:
    """Add the biases of queries, keys and values. Keys and values in heads are not supported."""
    widths = [shape_of(each)[-1] for each in values if len(shape_of(each)) == 3]
    if len(widths) < 3:
        raise UnsupportedNode("it has a bias, and keys and values in heads: not supported")
    biases = parts(bb, bias, 0, widths)
    return [bb.emit(relax.op.add(each, own)) for each, own in zip(values, biases, strict=True)]


def parts(bb: Any, value: Any, axis: int, sizes: Sequence[int]) -> list[Any]:
    """Split a tensor into parts of given sizes along an axis."""
    ends = np.cumsum(sizes).tolist()
    starts = [0, *ends[:-1]]
    return [
        bb.emit(relax.op.strided_slice(value, [axis], [start], [end]))
        for start, end in zip(starts, ends, strict=True)
    ]
