# SPDX-License-Identifier: Apache-2.0
"""Caches of decoders: halves that stay narrow, and heads that share keys and values.

A model that is computed in float32 may have half-precision caches. Grouped-query attention (Ainslie
et al., 2023) has fewer key heads than query heads. Models repeat the keys for each query head: at
one row per step, this is most of their memory traffic.
"""

from functools import partial
from math import prod

import numpy as np

import tvm
from tvm import relax

from ..bindings import Bindings, Expr, Var, operator_name, static_shape
from ..folding.numpy_folding import RESHAPES, evaluate
from ..rewriting import Emit, binding_pass, operator_pass

CAST = "relax.astype"
HALVES = ("float16", "bfloat16")

_FLOAT = "float32"
_MOVES = {*RESHAPES, "relax.permute_dims"}


def narrow_caches() -> tvm.transform.Pass:
    """Make a pass that moves half floats directly if they are widened, moved and rounded again.

    This applies to a cache that gets new rows by a concatenation, a scatter or a choice. Moving and
    rounding commute, so that the new cache is the same. Other readers of the cache, such as
    attention, get the new rows rounded too, as in the model's own types.
    """
    return binding_pass("NarrowCaches", lambda bindings: partial(_narrowed, bindings), [CAST])


def _narrowed(bindings: Bindings, var: Var, value: Expr, emit: Emit) -> Expr | None:
    if operator_name(value) == CAST:
        wide = bindings.call_of(value.args[0], CAST)
        kind = str(value.ty.dtype)
        is_same = wide is not None and kind in HALVES and _is_widened(wide, kind)
        return wide.args[0] if wide is not None and is_same else None
    for user in bindings.users.get(var, ()):
        cast = bindings.call_of(user, CAST)
        if cast is not None and str(cast.ty.dtype) in HALVES and not user.same_as(var):
            half = _half_of(bindings, value, str(cast.ty.dtype), emit)
            return None if half is None else relax.op.astype(emit(half), _FLOAT)
    return None


def _half_of(bindings: Bindings, expr: Expr, kind: str, emit: Emit) -> Expr | None:
    """Return the rounded value if it is made of widened and moved half floats, otherwise None."""
    value = bindings.value_of(expr)
    name = operator_name(value)
    if name == CAST:
        return value.args[0] if _is_widened(value, kind) else None
    if name in _MOVES:
        half = _half_of(bindings, value.args[0], kind, emit)
        return None if half is None else _call(value, [_bound(half, emit), *value.args[1:]])
    if name == "relax.concat":
        fields = bindings.value_of(value.args[0])
        if not isinstance(fields, relax.Tuple):
            return None
        halves = _all_halves(bindings, list(fields.fields), kind, emit)
        return None if halves is None else _call(value, [relax.Tuple(halves)])
    if name == "relax.where":
        halves = _all_halves(bindings, list(value.args[1:]), kind, emit)
        return None if halves is None else _call(value, [value.args[0], *halves])
    if name in ("relax.scatter_elements", "relax.scatter_nd"):
        if value.attrs.reduction != "update":
            return None
        halves = _all_halves(bindings, [value.args[0], value.args[2]], kind, emit)
        return None if halves is None else _call(value, [halves[0], value.args[1], halves[1]])
    return None


def _all_halves(bindings: Bindings, parts: list[Expr], kind: str, emit: Emit) -> list[Expr] | None:
    """Round tensors to half floats; None if none of them was widened from half floats."""
    halves = [_half_of(bindings, part, kind, emit) for part in parts]
    if not any(half is not None for half in halves):
        return None
    return [
        _bound(relax.op.astype(part, kind) if half is None else half, emit)
        for part, half in zip(parts, halves, strict=True)
    ]


def _bound(value: Expr, emit: Emit) -> Var:
    return value if isinstance(value, relax.Var) else emit(value)


def _is_widened(cast: relax.Call, kind: str) -> bool:
    return str(cast.ty.dtype) == _FLOAT and str(cast.args[0].ty.dtype) == kind


def _call(value: relax.Call, arguments: list[Expr]) -> relax.Call:
    return relax.Call(value.op, arguments, value.attrs)


FEW_ROWS = 8
"""Number of rows from which on a product is compute-bound, so that copies cost little."""

_MOST_ELEMENTS = 1 << 27
"""Maximum number of elements of a factor whose places are traced one by one."""


@operator_pass("GroupHeads", ["relax.matmul"])
def group_heads(bindings: Bindings, value: Expr, emit: Emit) -> Expr | None:
    """Make a pass that multiplies all rows that share a repeated factor by the factor itself.

    It rewrites ``matmul(a, b)`` where ``b`` holds ``count`` adjacent copies of each head of a
    tensor, and ``a`` has fewer than ``FEW_ROWS`` rows. The rows of ``count`` heads become the rows
    of one head.
    """
    left, right = (static_shape(each) for each in value.args)
    if left is None or right is None or len(left) != len(right) or len(left) < 3:
        return None
    if left[:-2] != right[:-2] or left[-2] >= FEW_ROWS or 0 in left + right:
        return None
    once = _once(bindings, value.args[1], right, emit)
    if once is None:
        return None
    heads = (static_shape(once) or ())[-3]
    rows = left[-2] * (left[-3] // heads)
    few = emit(relax.op.reshape(value.args[0], [*left[:-3], heads, rows, left[-1]]))
    product = emit(relax.op.matmul(few, once, value.attrs.out_dtype or None))
    return relax.op.reshape(product, [*left[:-1], right[-1]])


def _once(
    bindings: Bindings, factor: Expr, shape: tuple[int, ...], emit: Emit
) -> relax.Expr | None:
    """Return a factor without repeated heads, or None if it does not repeat adjacent heads."""
    steps: list[relax.Call] = []
    numbers: list[relax.Expr] = []
    source, own = factor, shape
    while prod(own) == prod(shape):
        value = bindings.value_of(source)
        number = _number_of(bindings, value)
        if number is not None:
            # PyTorch's ONNX exporter scales keys this way.
            numbers.append(number)
            source = value.args[0]
            continue
        if operator_name(value) not in _REPEATS:
            return None
        steps.append(value)
        source = value.args[0]
        own = static_shape(source) or (0,)
    count = prod(shape) // max(1, prod(own))
    if prod(shape) > _MOST_ELEMENTS or count * prod(own) != prod(shape) or shape[-3] % count:
        return None
    start = np.arange(prod(own), dtype="int32")
    places = start.reshape(own)
    for step in reversed(steps):
        places = _moved(step, places)
    *batch, heads, rows, columns = shape
    grouped = places.reshape(*batch, heads // count, count, rows, columns)
    if not (grouped == grouped[..., :1, :, :]).all():
        return None
    first = grouped[..., 0, :, :]
    turned = first.swapaxes(-1, -2)
    if (first.reshape(-1) == start).all():
        once = emit(relax.op.reshape(source, first.shape))
    elif (turned.reshape(-1) == start).all():
        whole = emit(relax.op.reshape(source, turned.shape))
        axes = list(range(first.ndim))
        once = emit(relax.op.permute_dims(whole, [*axes[:-2], axes[-1], axes[-2]]))
    else:
        return None
    for number in numbers:
        once = emit(relax.op.multiply(once, number))
    return once


def _number_of(bindings: Bindings, value: Expr) -> relax.Expr | None:
    """Return the number by which a call multiplies its first operand, or None for other calls."""
    if operator_name(value) != "relax.multiply":
        return None
    array = bindings.array_of(value.args[1])
    if array is None or array.size != 1 or static_shape(value) != static_shape(value.args[0]):
        return None
    return relax.const(array.reshape(()), str(array.dtype))


def _moved(call: relax.Call, array: np.ndarray) -> np.ndarray:
    """Apply a call that moves elements to an array."""
    shape = static_shape(call) or ()
    if operator_name(call) == "relax.broadcast_to":
        return np.broadcast_to(array, shape)
    moved = evaluate(call, [array], shape)
    assert moved is not None
    return moved


_REPEATS = {*RESHAPES, "relax.broadcast_to", "relax.permute_dims", "relax.repeat"}
