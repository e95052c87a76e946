# SPDX-License-Identifier: Apache-2.0
"""Converters for ONNX Runtime's attention operators with equally many key and query heads.

Heads are (batch, heads, rows, width) here. Masks are terms added to the scores, as in
``onnxruntime/contrib_ops/cpu/bert/attention_helper.h``.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tvm import relax
from tvm.relax import op

from ...operands import (
    Attributes,
    UnsupportedNode,
    constant,
    dtype_of,
    float32,
    number,
    part,
    parts,
    shape_of,
)
from ..quantized import mat_mul_integer
from . import converts

LOWEST = float(np.finfo(np.float32).min)
"""The term that hides a score."""


@converts("Attention")
def attention(bb: Any, inputs: Any, attr: Attributes) -> Any:
    """The projection to queries, keys and values, and their attention."""
    if attr.get("do_rotary", 0) or attr.get("past_present_share_buffer", 0):
        raise UnsupportedNode("its rotary embedding or shared buffer is not supported")
    projected = bb.emit(op.matmul(inputs[0], inputs[1]))
    if inputs[2] is not None:
        projected = bb.emit(projected + inputs[2])
    return _of_projected(bb, projected, inputs[3], inputs[4], inputs[5], attr)


@converts("QAttention")
def qattention(bb: Any, inputs: Any, attr: Attributes) -> Any:
    """``Attention`` whose input and weights are bytes."""
    factors = [inputs[0], inputs[1], inputs[6], inputs[7]]
    sums = mat_mul_integer(bb, factors, {}).astype("float32")
    projected = bb.emit(sums * (inputs[3] * inputs[4]) + inputs[2])
    return _of_projected(bb, projected, inputs[5], inputs[8], None, attr)


@converts("MultiHeadAttention")
def multi_head_attention(bb: Any, inputs: Any, attr: Attributes) -> Any:
    """The attention of queries, keys and values."""
    count = int(attr["num_heads"])
    query, key, value = (inputs[n] for n in range(3))
    if key is None or value is None:
        raise UnsupportedNode("its keys or values are packed, which is not supported")
    if inputs[3] is not None:
        query, key, value = _with_bias(bb, (query, key, value), inputs[3])
    query, key, value = (heads(bb, each, count) for each in (query, key, value))
    key, value = (
        each if past is None else bb.emit(op.concat([past, each], axis=2))
        for past, each in ((inputs[6], key), (inputs[7], value))
    )
    if any(inputs[n] is not None for n in (8, 9)):
        raise UnsupportedNode("its past_sequence_length or cache_indirection is not supported")
    before = 0 if inputs[6] is None else shape_of(inputs[6])[2]
    added = _masks(bb, inputs[4], query, shape_of(key)[2], before, attr)
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
    apart = op.reshape(value, [*shape[:2], count, shape[2] // count])
    return bb.emit(op.permute_dims(apart, [0, 2, 1, 3]))


def joined(bb: Any, value: Any) -> Any:
    """Join heads into rows (batch, rows, heads * width)."""
    batch, count, rows, width = shape_of(value)
    turned = op.permute_dims(value, [0, 2, 1, 3])
    return bb.emit(op.reshape(turned, [batch, rows, count * width]))


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
    product = op.matmul(query, bb.emit(op.permute_dims(key, [0, 1, 3, 2])))
    scores = bb.emit(product * number(float(factor), query))
    if softcap:
        cap = number(float(softcap), query)
        scores = bb.emit(op.tanh(scores / cap) * cap)
    for each in added:
        scores = bb.emit(scores + each)
    return bb.emit(op.matmul(op.nn.softmax(scores, -1), value)), scores


def hidden_unless(bb: Any, is_seen: Any, term: float = LOWEST) -> Any:
    """The terms added to scores: 0 where they are seen."""
    return bb.emit(op.where(is_seen, float32(0.0), float32(term)))


def _masks(
    bb: Any, mask: Any, query: Any, columns: int, before: int, attr: Attributes
) -> list[Any]:
    """The terms that a mask and the attributes add to the scores: an empty list, or one tensor.

    ``before``: number of past columns. If a node is unidirectional, later columns are hidden; the
    last row sees all columns. Terms are at least ``LOWEST``: the sum of two such terms would be
    infinite.
    """
    batch, _, rows, _ = shape_of(query)
    term = float(attr.get("mask_filter_value", -10000.0))
    added = [] if mask is None else [_of_mask(bb, mask, rows, columns, term, batch)]
    if not attr.get("unidirectional", 0):
        return added
    is_later = np.arange(columns)[None, :] > np.arange(rows)[:, None] + before
    is_later[-1] = False
    later = float32(np.where(is_later, LOWEST, 0.0))
    if not added:
        return [later]
    return [bb.emit(op.maximum(added[0] + later, float32(LOWEST)))]


def _of_mask(bb: Any, mask: Any, rows: int, columns: int, term: float, batch: int) -> Any:
    """The terms that an integer mask adds to the scores.

    A mask of shape (batch, columns), (batch, rows, columns) or (batch, 1, columns, columns) has 1
    for visible columns. A mask of shape (batch) has the end of each sequence's visible columns. A
    mask of shape (2 * batch) has these ends, followed by the starts, and one of (3 * batch + 2) has
    offsets of packed rows after them.
    """
    shape = shape_of(mask)
    if len(shape) == 1:
        return _of_bounds(bb, mask, columns, term, batch)
    if len(shape) == 4:
        below = [columns - rows, 0]
        mask = bb.emit(op.strided_slice(mask, [2, 3], below, [columns, columns]))
        shape = shape_of(mask)
    places = {2: [shape[0], 1, 1, shape[-1]], 3: [shape[0], 1, *shape[1:]], 4: shape}
    placed = op.reshape(mask, places[len(shape)])
    return hidden_unless(bb, placed > number(0, mask), term)


def _of_bounds(bb: Any, bounds: Any, columns: int, term: float, batch: int) -> Any:
    (count,) = shape_of(bounds)
    if count not in (batch, 2 * batch, 3 * batch + 2):
        raise UnsupportedNode(
            f"its mask has {count} numbers for a batch of {batch}: expected the "
            "length of each sequence, or a number for each key"
        )
    place = constant(np.arange(columns), dtype_of(bounds))

    def column(first: int) -> Any:
        return op.reshape(part(bounds, 0, first, first + batch), [batch, 1, 1, 1])

    is_seen = bb.emit(place < column(0))
    if count == 2 * batch:
        is_seen = op.logical_and(is_seen, place >= column(batch))
    return hidden_unless(bb, is_seen, term)


def _of_projected(
    bb: Any, projected: Any, mask: Any, past: Any, bias: Any, attr: Attributes
) -> Any:
    """The attention of queries, keys and values that are concatenated in one tensor."""
    count = int(attr["num_heads"])
    _, rows, width = shape_of(projected)
    sizes = [int(n) for n in attr.get("qkv_hidden_sizes", ())] or [width // 3] * 3
    query, key, value = (heads(bb, each, count) for each in parts(bb, projected, 2, sizes))
    if past is not None:
        before = [op.squeeze(each, [0]) for each in parts(bb, past, 0, [1, 1])]
        key, value = (
            bb.emit(op.concat([old, new], axis=2))
            for old, new in zip(before, (key, value), strict=True)
        )
    columns = shape_of(key)[2]
    added = _masks(bb, mask, query, columns, columns - rows, attr)
    if bias is not None:
        added.append(bias)
    found, _ = attend(bb, query, key, value, added, attr.get("scale", 0.0))
    output = joined(bb, found)
    if attr["tvm_custom"]["num_outputs"] == 1:
        return output
    present = [op.expand_dims(each, 0) for each in (key, value)]
    return relax.Tuple([output, bb.emit(op.concat(present, axis=0))])


def _with_bias(bb: Any, values: Sequence[Any], bias: Any) -> list[Any]:
    """Add the biases of queries, keys and values. Keys and values in heads are not supported."""
    widths = [shape_of(each)[-1] for each in values if len(shape_of(each)) == 3]
    if len(widths) < 3:
        raise UnsupportedNode("it has a bias, and keys and values in heads: not supported")
    biases = parts(bb, bias, 0, widths)
    return [bb.emit(each + own) for each, own in zip(values, biases, strict=True)]
