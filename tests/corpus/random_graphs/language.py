# SPDX-License-Identifier: Apache-2.0
"""Random layers of language models: norms, embeddings of places, attention, caches."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from .maker import RUNTIME, GraphMaker, Value


def gelu(make: GraphMaker, x: Value) -> Value:
    """An activation and what it is of: ONNX Runtime's sigmoid of -20 is 0, and all may be so."""
    kind = make.pick(["Gelu", "FastGelu", "QuickGelu"])
    options = {"domain": RUNTIME}
    if kind == "Gelu":
        options = {"approximate": make.pick(["none", "tanh"])}
    active = make.node(kind, [x.name], x.shape, **options)
    return make.node("Add", [x.name, active.name], x.shape)


def rms_norm(make: GraphMaker, x: Value) -> Value | None:
    if x.rank < 2:
        return None
    axis = make.integer(1, x.rank - 1)
    operands = [x.name, make.positive(x.shape[axis:])]
    return make.node("RMSNormalization", operands, x.shape, axis=axis, epsilon=1e-2)


def skip_norm(make: GraphMaker, x: Value) -> Value | None:
    """The norm of a sum, or the sum."""
    if x.rank != 3:
        return None
    others = [y.name for y in make.values if y.shape == x.shape]
    width = x.shape[-1:]
    operands = [x.name, make.pick([*others, make.weight(x.shape)]), make.positive(width)]
    kind = make.pick(["SkipLayerNormalization", "SkipSimplifiedLayerNormalization"])
    if kind == "SkipLayerNormalization":
        operands.append(make.pick(["", make.weight(width)]))
    if make.chance(30):
        operands.append(make.weight(width))
    options = {"domain": RUNTIME, "epsilon": 1e-2, "outputs": 4, "others": False}
    options["place"] = make.pick([0, 0, 3])
    return make.node(kind, operands, x.shape, **options)


def _projected(make: GraphMaker, x: Value, columns: int) -> Value:
    weight = make.weight([x.shape[-1], columns], x.shape[-1])
    return make.node("MatMul", [x.name, weight], [*x.shape[:-1], columns])


def _tables(make: GraphMaker, rows: int, width: int) -> list[str]:
    """Cosines and sines of angles."""
    angles = np.outer(np.arange(rows), 10.0 ** -np.linspace(0, 2, width))
    return [make.constant(each(angles).astype("float32")) for each in (np.cos, np.sin)]


def rotary(make: GraphMaker, x: Value) -> Value | None:
    """Pairs of numbers are turned by an angle of their place, all or the first of them."""
    if x.rank != 3 or x.shape[1] > 16:
        return None
    batch, length, _ = x.shape
    count, width = make.integer(1, 3), make.pick([4, 8, 16])
    x = _projected(make, x, count * width)
    pairs = width // 2
    places = [[make.integer(0, 20) for _ in range(length)] for _ in range(batch)]
    options = {"interleaved": make.integer(0, 1), "num_heads": count}
    if make.chance(50):
        # ONNX Runtime takes the number of heads where a part is turned alone.
        operands = [x.name, make.integers(places), *_tables(make, 21, pairs)]
        return make.node(
            "RotaryEmbedding", operands, x.shape, domain=RUNTIME, interleaved=options["interleaved"]
        )
    if make.chance(30):
        pairs //= 2
        options["rotary_embedding_dim"] = 2 * pairs
    operands = [x.name, *_tables(make, 21, pairs), make.integers(places)]
    return make.node("RotaryEmbedding", operands, x.shape, **options)


def attention(make: GraphMaker, x: Value) -> Value | None:
    """ONNX's attention: groups of heads, masks, a cache before the keys."""
    if x.rank != 3 or x.shape[1] > 16:
        return None
    batch, length, _ = x.shape
    groups, width = make.pick([1, 2]), make.pick([4, 8])
    count = groups * make.pick([1, 1, 2, 3])
    past = make.pick([0, 0, 3, 7])
    query, key, value = (_projected(make, x, n * width) for n in (count, groups, groups))
    operands = [query.name, key.name, value.name]
    total = past + length
    options = {"q_num_heads": count, "kv_num_heads": groups}
    options["is_causal"] = int(not past and make.chance(40))
    mask = make.pick(["none", "bool", "float"])
    shape = make.pick([(length, total), (batch, 1, length, total), (batch, count, length, total)])
    if mask == "bool":
        allowed = make.chooser.random(shape) < 0.7
        allowed[..., 0] = True
        operands.append(make.constant(allowed))
    elif mask == "float":
        operands.append(make.weight(shape))
    else:
        operands.append("")
    outputs = 1
    if past:
        operands += [make.weight([batch, groups, past, width]) for _ in range(2)]
        outputs = 3
    if make.chance(20):
        options["softcap"] = 2.0
    place = make.pick([0, 0, 0, outputs - 1])
    result = (batch, length, count * width) if place == 0 else (batch, groups, total, width)
    return make.node("Attention", operands, result, outputs=outputs, place=place, **options)


def grouped_attention(make: GraphMaker, x: Value) -> Value | None:
    """ONNX Runtime's attention with a cache, of sequences of their own lengths."""
    if x.rank != 3 or x.shape[1] > 16:
        return None
    batch, length, _ = x.shape
    groups, width = make.pick([1, 2]), make.pick([16, 32])
    count = groups * make.pick([1, 2, 3])
    # Several prompts have nothing before them.
    past = make.pick([0, 4, 9]) if length == 1 or batch == 1 else 0
    query, key, value = (_projected(make, x, n * width) for n in (count, groups, groups))
    total = past + length
    lengths = [total - 1 - (make.integer(0, past) if length == 1 else 0) for _ in range(batch)]
    operands = [query.name, key.name, value.name]
    operands += [make.weight([batch, groups, past, width]) for _ in range(2)]
    operands += [make.constant(np.array(lengths, "int32")), make.constant(np.int32(total))]
    options = {"num_heads": count, "kv_num_heads": groups, "domain": RUNTIME}
    if make.chance(50):
        operands += _tables(make, total, width // 2)
        options |= {"do_rotary": 1, "rotary_interleaved": make.integer(0, 1)}
    if make.chance(30):
        options["local_window_size"] = make.integer(2, 6)
    if make.chance(20):
        options["softcap"] = 2.0
    shape = (batch, length, count * width)
    return make.node("GroupQueryAttention", operands, shape, outputs=3, **options)


def scatter_elements(make: GraphMaker, x: Value) -> Value:
    """Elements are written at positions along an axis, or added there."""
    axis = make.integer(0, x.rank - 1)
    reduction = make.pick(["none", "none", "add", "max", "mul"])
    shape = [make.integer(1, extent) for extent in x.shape]
    order = make.chooser.random([*shape[:axis], x.shape[axis], *shape[axis + 1 :]]).argsort(axis)
    places = np.take(order, range(shape[axis]), axis)
    operands = [x.name, make.constant(places.astype("int64")), make.weight(shape)]
    return make.node("ScatterElements", operands, x.shape, axis=axis, reduction=reduction)


def scatter_nd(make: GraphMaker, x: Value) -> Value:
    depth = make.integer(1, min(2, x.rank))
    outer = int(np.prod(x.shape[:depth]))
    count = make.integer(1, min(outer, 5))
    flat = make.chooser.permutation(outer)[:count]
    places = np.stack(np.unravel_index(flat, x.shape[:depth]), axis=1)
    operands = [x.name, make.constant(places.astype("int64"))]
    operands.append(make.weight([count, *x.shape[depth:]]))
    kind = make.pick(["none", "none", "add", "min"])
    return make.node("ScatterND", operands, x.shape, reduction=kind)


def tensor_scatter(make: GraphMaker, x: Value) -> Value | None:
    """New rows are written into a cache, from a place of each sequence on."""
    if x.rank != 3 or x.shape[1] > 16:
        return None
    batch, length, width = x.shape
    size = length + make.integer(1, 6)
    mode = make.pick(["linear", "circular"])
    last = size - 1 if mode == "circular" else size - length
    starts = [make.integer(0, last) for _ in range(batch)]
    operands = [make.weight([batch, size, width]), x.name, make.integers(starts)]
    return make.node("TensorScatter", operands, [batch, size, width], axis=1, mode=mode)


def through_halves(make: GraphMaker, x: Value) -> Value:
    """Arithmetic in float16."""
    half = {"dtype": TensorProto.FLOAT16}
    small = make.node("Tanh", [x.name], x.shape)
    narrow = make.node("Cast", [small.name], x.shape, to=TensorProto.FLOAT16, **half)
    weight = make.constant(make.chooser.uniform(0.5, 1.5, x.shape[-1:]).astype("float16"))
    operands = [narrow.name, weight]
    scaled = make.node(make.pick(["Mul", "Add", "Sub"]), operands, x.shape, **half)
    return make.node("Cast", [scaled.name], x.shape, to=TensorProto.FLOAT)


LANGUAGE = (
    *[gelu] * 2, *[rms_norm] * 2, *[skip_norm] * 2, *[rotary] * 2, *[attention] * 3,
    *[grouped_attention] * 3, *[scatter_elements] * 2, scatter_nd, *[tensor_scatter] * 2,
    through_halves,
)  # fmt: skip
"""Layers of language models, by how often they are tried."""
