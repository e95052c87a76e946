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
from tvm.relax.frontend.onnx.onnx_frontend import OnnxOpConverter

from ...folding import as_array
from ...operands import UnsupportedNode, constant_input, dtype_of, shape_of
from ..scatter import written_from
from .attention import LOWEST, attend, heads, joined, parts

SHARES_PAST = "tvm_droplet_ms_shares_past"
"""The attribute that lists the inputs whose buffers receive the new keys and values."""


class RotaryEmbedding(OnnxOpConverter):  # type: ignore[misc, unused-ignore]
    """Converts ``RotaryEmbedding``."""

    @classmethod
    def _impl_v1(cls, bb: Any, inputs: Sequence[Any], attr: dict[str, Any], params: Any) -> Any:
        data, positions, cosines, sines = (inputs[n] for n in range(4))
        shape = shape_of(data)
        partial = int(attr.get("rotary_embedding_dim", 0))
        count = int(attr.get("num_heads", 0))
        if not partial or not count:
            count = shape[-1] // (2 * shape_of(cosines)[1])
        rows = heads(bb, data, count)
        if shape_of(positions) == [1]:
            places = relax.const(np.arange(shape_of(rows)[2], dtype="int64")[None], "int64")
            positions = bb.emit(relax.op.add(places, positions))
        is_interleaved = bool(attr.get("interleaved", 0))
        turned = _rotated(bb, rows, positions, cosines, sines, is_interleaved)
        return turned if len(shape) == 4 else joined(bb, turned)


class GroupQueryAttention(OnnxOpConverter):  # type: ignore[misc, unused-ignore]
    """Converts ``GroupQueryAttention``, where each key head serves several query heads."""

    @classmethod
    def _impl_v1(cls, bb: Any, inputs: Sequence[Any], attr: dict[str, Any], params: Any) -> Any:
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
            is_interleaved = bool(attr.get("rotary_interleaved", 0))
            query, key = (
                _rotated(bb, each, positions, inputs[7], inputs[8], is_interleaved)
                for each in (query, key)
            )
        shared = attr.get(SHARES_PAST, ())
        key, value = (
            written_from(bb, inputs[number], new, cache.before, 2)
            if number in shared and shape_of(inputs[number])[2] == cache.columns
            else _cached(bb, inputs[number], new, cache)
            for number, new in ((3, key), (4, value))
        )
        added = [_mask(bb, cache, int(attr.get("local_window_size", -1)))]
        if inputs[10] is not None:
            added.append(_widened(bb, inputs[10], cache.columns))
        batch, _, rows, width = shape_of(query)
        settings = float(attr.get("scale", 0.0)), float(attr.get("softcap", 0.0))
        if rows == 1 and inputs[10] is None:
            # The queries of a group become rows for the group's keys, so that keys are not copied.
            query = bb.emit(relax.op.reshape(query, [batch, groups, count // groups, width]))
            found, _ = attend(bb, query, key, value, added, *settings)
            output = bb.emit(relax.op.reshape(found, [batch, 1, count * width]))
        else:
            keys, values = (
                each if count == groups else bb.emit(relax.op.repeat(each, count // groups, 1))
                for each in (key, value)
            )
            found, _ = attend(bb, query, keys, values, added, *settings)
            output = joined(bb, found)
        outputs = [output, key, value]
        return output if attr["tvm_custom"]["num_outputs"] == 1 else relax.Tuple(outputs)


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
            flat = bb.emit(relax.op.reshape(given, [1, -1]))
            first = bb.emit(relax.op.strided_slice(flat, [1], [0], [1]))
        places = relax.const(np.arange(self.rows, dtype="int64")[None], "int64")
        return bb.emit(relax.op.add(places, first))


def _lengths(bb: Any, inputs: Sequence[Any], rows: int) -> _Lengths:
    past = 0 if inputs[3] is None else shape_of(inputs[3])[2]
    if past == 0:
        return _Lengths(rows, rows, relax.const(np.zeros((1, 1), "int64"), "int64"), True)
    total = constant_input(inputs, 6, "total_sequence_length")
    assert total is not None  # The operator requires it.
    count = int(total.reshape(-1)[0])
    columns, batch = max(past, count), shape_of(inputs[3])[0]
    lengths = as_array(inputs[5])
    before = 0 if count == rows else None
    if before is None and lengths is not None and batch == 1:
        before = int(lengths.reshape(-1)[0]) + 1 - rows
    if before is not None:
        known = relax.const(np.full((1, 1), before, "int64"), "int64")
        return _Lengths(rows, columns, known, count == rows)
    last = bb.emit(relax.op.astype(inputs[5], "int64"))
    last = bb.emit(relax.op.minimum(last, relax.const(columns - 1, "int64")))
    last = bb.emit(relax.op.reshape(last, [batch, 1]))
    of_each = bb.emit(relax.op.add(last, relax.const(1 - rows, "int64")))
    return _Lengths(rows, columns, of_each, count == rows)


def _cached(bb: Any, past: Any, new: Any, cache: _Lengths) -> Any:
    """The cache with new rows after the old rows of each sequence, and zeros after them."""
    if past is None or shape_of(past)[2] == 0:
        return new
    batch, groups, length, width = shape_of(past)
    before = as_array(cache.before)
    if before is not None and int(before.item()) == length:
        return bb.emit(relax.op.concat([past, new], axis=2))
    if length < cache.columns:
        more = np.zeros((batch, groups, cache.columns - length, width), dtype_of(past))
        past = bb.emit(relax.op.concat([past, relax.const(more, dtype_of(past))], axis=2))
    place = relax.const(np.arange(cache.columns, dtype="int64")[None], "int64")
    offset = bb.emit(relax.op.subtract(place, cache.before))
    zero, rows = relax.const(0, "int64"), relax.const(cache.rows, "int64")
    is_new = relax.op.logical_and(relax.op.greater_equal(offset, zero), relax.op.less(offset, rows))
    is_new = bb.emit(relax.op.reshape(bb.emit(is_new), [-1, 1, cache.columns, 1]))
    if cache.rows > 1:
        row = relax.op.minimum(relax.op.maximum(offset, zero), relax.const(cache.rows - 1, "int64"))
        row = bb.emit(relax.op.reshape(bb.emit(row), [-1, 1, cache.columns, 1]))
        shape = [batch, groups, cache.columns, width]
        row = bb.emit(relax.op.broadcast_to(row, shape))
        new = bb.emit(relax.op.gather_elements(new, row, axis=2))
    is_old = bb.emit(relax.op.less(offset, zero))
    is_old = bb.emit(relax.op.reshape(is_old, [-1, 1, cache.columns, 1]))
    kept = bb.emit(relax.op.where(is_old, past, relax.const(0, dtype_of(past))))
    return bb.emit(relax.op.where(is_new, new, kept))


def _widened(bb: Any, bias: Any, columns: int) -> Any:
    """Pad a bias of the scores with zeros for further columns, which the mask hides."""
    shape = shape_of(bias)
    if shape[-1] == columns:
        return bias
    more = np.zeros((*shape[:-1], columns - shape[-1]), dtype_of(bias))
    return bb.emit(relax.op.concat([bias, relax.const(more, dtype_of(bias))], axis=-1))


def _mask(bb: Any, cache: _Lengths, window: int) -> Any:
    """The mask added to the scores: rows see earlier columns within the window."""
    rows = np.arange(cache.rows, dtype="int64").reshape(1, 1, cache.rows, 1)
    columns = relax.const(np.arange(cache.columns, dtype="int64"), "int64")
    before = bb.emit(relax.op.reshape(cache.before, [-1, 1, 1, 1]))
    last = bb.emit(relax.op.add(before, relax.const(rows, "int64")))
    is_seen = bb.emit(relax.op.less_equal(columns, last))
    if window > 0:
        first = bb.emit(relax.op.subtract(last, relax.const(window, "int64")))
        is_near = bb.emit(relax.op.greater(columns, first))
        is_seen = bb.emit(relax.op.logical_and(is_seen, is_near))
    zero, least = relax.const(0.0, "float32"), relax.const(LOWEST, "float32")
    return bb.emit(relax.op.where(is_seen, zero, least))


def _rotated(
    bb: Any, value: Any, positions: Any, cosines: Any, sines: Any, is_interleaved: bool
) -> Any:
    """Rotate pairs of the first columns of heads by the angles of their positions."""
    half, shape = shape_of(cosines)[1], shape_of(value)
    rows = shape_of(positions)
    cosine, sine = (
        bb.emit(
            relax.op.reshape(
                bb.emit(relax.op.take(table, positions, axis=0)), [rows[0], 1, rows[1], half]
            )
        )
        for table in (cosines, sines)
    )
    if is_interleaved:
        turned = bb.emit(relax.op.strided_slice(value, [3], [0], [2 * half]))
        pairs = bb.emit(relax.op.reshape(turned, [*shape[:3], half, 2]))
        first, second = (
            bb.emit(relax.op.squeeze(each, [4])) for each in parts(bb, pairs, 4, [1, 1])
        )
    else:
        first, second = parts(bb, value, 3, [half, half])
    left = relax.op.subtract(relax.op.multiply(first, cosine), relax.op.multiply(second, sine))
    right = relax.op.add(relax.op.multiply(second, cosine), relax.op.multiply(first, sine))
    halves = [bb.emit(left), bb.emit(right)]
    if is_interleaved:
        pairs = bb.emit(relax.op.stack(halves, axis=4))
        found = [bb.emit(relax.op.reshape(pairs, [*shape[:3], 2 * half]))]
    else:
        found = halves
    if 2 * half < shape[3]:
        found.append(bb.emit(relax.op.strided_slice(value, [3], [2 * half], [shape[3]])))
    return bb.emit(relax.op.concat(found, axis=3)) if len(found) > 1 else found[0]
