# SPDX-License-Identifier: Apache-2.0
"""Half-precision caches that stay narrow in a model that is computed in float32."""

import tvm
from tvm import relax

from ..bindings import Bindings, Expr, Var, operator_name
from ..folding.numpy_folding import RESHAPES
from ..rewriting import Emit, binding_pass, stateless

CAST = "relax.astype"
HALVES = ("float16", "bfloat16")

_FLOAT = "float32"
_MOVES = {*RESHAPES, "relax.permute_dims"}


def narrow_caches() -> tvm.transform.Pass:
    """Make a pass that moves half floats directly if they are widened, moved and rounded again.

    This applies to a cache that gets new rows by a concatenation, a scatter or a choice. Moving and
    rounding commute, so that the new cache is the same. Other readers of the cache, such as
    attention, get the new rows rounded too, as in the model's own types. Returns the pass.
    """
    return binding_pass("NarrowCaches", stateless(_narrowed), [CAST])


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
