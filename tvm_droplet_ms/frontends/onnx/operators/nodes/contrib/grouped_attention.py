# SPDX-License-Identifier: Apache-2.0
"""Converters for ONNX Runtime's rotary embedding, and its attention with a cache.

Lengths differ within a batch. New keys and values are therefore written after the cached ones of
each sequence, and a mask hides the rest of the cache
(``onnxruntime/contrib_ops/cpu/bert/gqa_attention_base.h``).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tvm import relax
from tvm.relax import op

from ...folding import as_array
from ...operands import (
    Attributes,
    UnsupportedNode,
    constant,
    constant_input,
    dtype_of,
    integers,
    number,
    part,
    parts,
    shape_of,
)
from ..shapes import written_from
from . import converts
from .attention import attend, heads, hidden_unless, joined

SHARES_PAST = "tvm_droplet_ms_shares_past"
"""The attribute that lists the inputs whose buffers receive the new keys and values."""


@converts("RotaryEmbedding")
def rotary_embedding(bb: Any, inputs: Any, attr: Attributes) -> Any:
    """Rotate pairs of columns by the angles of their positions."""
    data, positions, *tables = (inputs[n] for n in range(4))
    shape = shape_of(data)
    count = int(attr.get("num_heads", 0))
    if not attr.get("rotary_embedding_dim", 0) or not count:
        count = shape[-1] // (2 * shape_of(tables[0])[1])
    rows = heads(bb, data, count)
    if shape_of(positions) == [1]:
        positions = bb.emit(integers(np.arange(shape_of(rows)[2])[None]) + positions)
    turned = _rotated(bb, rows, positions, tables, bool(attr.get("interleaved", 0)))
    return turned if len(shape) == 4 else joined(bb, turned)


@converts("GroupQueryAttention")
def group_query_attention(bb: Any, inputs: Any, attr: Attributes) -> Any:
    """Attention where each key head serves several query heads."""
    if attr.get("smooth_softmax", 0) > 0 or inputs[11] is not None:
        raise UnsupportedNode("its smooth_softmax or head_sink is not supported")
    count, groups = int(attr["num_heads"]), int(attr["kv_num_heads"])
    query, key, value = (inputs[n] for n in range(3))
    if key is None:
        width = shape_of(query)[-1] // (count + 2 * groups)
        sizes = [count * width, groups * width, groups * width]
        query, key, value = parts(bb, query, 2, sizes)
    query = heads(bb, query, count)
    key, value = (heads(bb, each, groups) for each in (key, value))
    cache = _lengths(bb, inputs, shape_of(key)[2])
    if attr.get("do_rotary", 0):
        positions = cache.positions(bb, inputs[9])
        tables, is_interleaved = inputs[7:9], bool(attr.get("rotary_interleaved", 0))
        query, key = (
            _rotated(bb, each, positions, tables, is_interleaved) for each in (query, key)
        )
    shared = attr.get(SHARES_PAST, ())
    key, value = (
        written_from(bb, inputs[n], new, cache.before, 2)
        if n in shared and shape_of(inputs[n])[2] == cache.columns
        else _cached(bb, inputs[n], new, cache)
        for n, new in ((3, key), (4, value))
    )
    added = [_mask(bb, cache, int(attr.get("local_window_size", -1)))]
    if inputs[10] is not None:
        added.append(_widened(bb, inputs[10], -1, cache.columns))
    batch, _, rows, width = shape_of(query)
    settings = float(attr.get("scale", 0.0)), float(attr.get("softcap", 0.0))
    if rows == 1 and inputs[10] is None:
        # The queries of a group become rows for the group's keys, so that keys are not copied.
        query = bb.emit(op.reshape(query, [batch, groups, count // groups, width]))
        found, _ = attend(bb, query, key, value, added, *settings)
        output = bb.emit(op.reshape(found, [batch, 1, count * width]))
    else:
        keys, values = (
            each if count == groups else bb.emit(op.repeat(each, count // groups, 1))
            for each in (key, value)
        )
        found, _ = attend(bb, query, keys, values, added, *settings)
        output = joined(bb, found)
    single = attr["tvm_custom"]["num_outputs"] == 1
    return output if single else relax.Tuple([output, key, value])


@dataclass(frozen=True)
class _Lengths:
    """The lengths of a cache.

    - ``rows``: the number of new rows.
    - ``columns``: the number of rows in the new cache.
    - ``before``: the number of old rows of each sequence, (batch, 1), or of all, (1, 1).
    - ``is_prompt``: whether the given lengths say that there were no old rows.
    """

    rows: int
    columns: int
    before: Any
    is_prompt: bool

    def positions(self, bb: Any, given: Any) -> Any:
        """The positions of the new rows, (batch, rows) or (1, rows).

        ``given``: the positions that the node reads, or None. For a prompt, ONNX Runtime reads only
        the first position (``group_query_attention.cc``), and counts up from it in each sequence.
        """
        if given is not None and not self.is_prompt:
            return given
        first = self.before
        if given is not None:
            first = part(op.reshape(given, [1, -1]), 1, 0, 1)
        return bb.emit(integers(np.arange(self.rows)[None]) + first)


def _lengths(bb: Any, inputs: Sequence[Any], rows: int) -> _Lengths:
    past = 0 if inputs[3] is None else shape_of(inputs[3])[2]
    if past == 0:
        return _Lengths(rows, rows, integers(np.zeros((1, 1))), True)
    total = constant_input(inputs, 6, "total_sequence_length")
    assert total is not None  # The operator requires it.
    count = int(total.reshape(-1)[0])
    columns, batch = max(past, count), shape_of(inputs[3])[0]
    lengths = as_array(inputs[5])
    before = 0 if count == rows else None
    if before is None and lengths is not None and batch == 1:
        before = int(lengths.reshape(-1)[0]) + 1 - rows
    if before is not None:
        return _Lengths(rows, columns, integers(np.full((1, 1), before)), count == rows)
    last = op.minimum(inputs[5].astype("int64"), integers(columns - 1))
    of_each = bb.emit(op.reshape(last, [batch, 1]) + integers(1 - rows))
    return _Lengths(rows, columns, of_each, count == rows)


def _cached(bb: Any, past: Any, new: Any, cache: _Lengths) -> Any:
    """The cache with new rows after the old rows of each sequence, and zeros after them."""
    if past is None or shape_of(past)[2] == 0:
        return new
    batch, groups, length, width = shape_of(past)
    before = as_array(cache.before)
    if before is not None and int(before.item()) == length:
        return bb.emit(op.concat([past, new], axis=2))
    past = _widened(bb, past, 2, cache.columns)
    offset = bb.emit(integers(np.arange(cache.columns)[None]) - cache.before)
    zero, rows = integers(0), integers(cache.rows)

    def by_row(value: Any) -> Any:
        return bb.emit(op.reshape(bb.emit(value), [-1, 1, cache.columns, 1]))

    is_new = by_row(op.logical_and(offset >= zero, offset < rows))
    if cache.rows > 1:
        row = by_row(op.minimum(op.maximum(offset, zero), integers(cache.rows - 1)))
        row = bb.emit(op.broadcast_to(row, [batch, groups, cache.columns, width]))
        new = bb.emit(op.gather_elements(new, row, axis=2))
    kept = bb.emit(op.where(by_row(offset < zero), past, number(0, past)))
    return bb.emit(op.where(is_new, new, kept))


def _widened(bb: Any, value: Any, axis: int, extent: int) -> Any:
    """Append zeros along an axis, which the mask hides."""
    shape = shape_of(value)
    if shape[axis] == extent:
        return value
    shape[axis] = extent - shape[axis]
    return bb.emit(op.concat([value, constant(np.zeros(shape), dtype_of(value))], axis=axis))


def _mask(bb: Any, cache: _Lengths, window: int) -> Any:
    """The mask added to the scores: rows see earlier columns within the window."""
    rows = integers(np.arange(cache.rows).reshape(1, 1, cache.rows, 1))
    columns = integers(np.arange(cache.columns))
    last = bb.emit(op.reshape(cache.before, [-1, 1, 1, 1]) + rows)
    is_seen = bb.emit(columns <= last)
    if window > 0:
        is_seen = op.logical_and(is_seen, columns > last - integers(window))
    return hidden_unless(bb, is_seen)


def _rotated(
    bb: Any, value: Any, positions: Any, tables: Sequence[Any], is_interleaved: bool
) -> Any:
    """Rotate pairs of the first columns of heads by the angles of their positions.

    ``tables``: the cosines and the sines of all positions.
    """
    half, shape = shape_of(tables[0])[1], shape_of(value)
    rows = shape_of(positions)
    cosine, sine = (
        bb.emit(op.reshape(op.take(table, positions, axis=0), [rows[0], 1, rows[1], half]))
        for table in tables
    )
    if is_interleaved:
        pairs = bb.emit(op.reshape(part(value, 3, 0, 2 * half), [*shape[:3], half, 2]))
        first, second = (bb.emit(op.squeeze(each, [4])) for each in parts(bb, pairs, 4, [1, 1]))
    else:
        first, second = parts(bb, value, 3, [half, half])
    found = [
        bb.emit(first * cosine - second * sine),
        bb.emit(second * cosine + first * sine),
    ]
    if is_interleaved:
        found = [bb.emit(op.reshape(op.stack(found, axis=4), [*shape[:3], 2 * half]))]
    if 2 * half < shape[3]:
        found.append(bb.emit(part(value, 3, 2 * half, shape[3])))
    return bb.emit(op.concat(found, axis=3)) if len(found) > 1 else found[0]
