# SPDX-License-Identifier: Apache-2.0
"""Rows that are written into a tensor which the caller gives away, instead of into a copy of it.

A decoder's step writes one row of its cache. A graph has no state, so that it makes a new cache of
the old one and the row: at 4,096 positions that takes as long as all products of a small model.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

import tvm
from tvm import relax, tirx
from tvm.ir import IRModule
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as T

from ..bindings import (
    Bindings,
    Expr,
    Var,
    array_of,
    bound_values,
    operator_name,
    static_shape,
    users_of,
)
from ..folding.numpy_folding import RESHAPES
from ..rewriting import Rewrite, binding_pass
from ..scheduled import whole

GIVEN_AWAY = "tvm_droplet_ms.given_away"
"""The attribute of ``main`` with the names of the parameters that it may write to. Their new values
are its last outputs, in this order."""

_WHERE, _EQUAL = "relax.where", "relax.equal"


def give_away(mod: IRModule, names: Sequence[str]) -> IRModule:
    """Mark parameters of ``main`` as the caller's gift: they may be written to.

    ``names``: of those whose new values are the last outputs, in this order.
    """
    marked = mod.clone()
    marked.update_func(mod.get_global_var("main"), mod["main"].with_attr(GIVEN_AWAY, list(names)))
    return marked


class _Write(NamedTuple):
    """A row that is written.

    ``row``: its values, of extent 1 along ``axis``. ``place``: where, a tensor of one integer.
    """

    row: Expr
    place: Expr
    axis: int


def write_in_place() -> tvm.transform.Pass:
    """Make a pass that writes rows into parameters that are given away.

    For a choice between a parameter and a row, by whether the place along an axis is a number, as
    which importers write ``cache[:, :, position] = row``. Returns the pass. A parameter that
    anything else reads is left as it is. So is one whose new value is not what the choice gives, or
    is returned twice, perhaps reshaped: the caller may keep one of the two.
    """

    def transform(mod: IRModule, _context: tvm.transform.PassContext) -> IRModule:
        main = next((f for var, f in mod.functions_items() if var.name_hint == "main"), None)
        names = [str(name) for name in (getattr(main, "attrs", None) or {}).get(GIVEN_AWAY, ())]
        if main is None or not names:
            return mod
        users = users_of(main)
        given = [p for p in main.params if p.name in names and len(users.get(p, ())) == 1]
        returned, last = _returned(main), _last_outputs(main, names)
        kernels = relax.BlockBuilder()

        def make_rewrite(bindings: Bindings) -> Rewrite:
            def rewrite(var: Var, value: Expr, _emit: Any) -> Expr | None:
                found = _write_of(bindings, value, given)
                if found is None:
                    return None
                cache = value.args[2]
                if returned[var] > 1 or not var.same_as(last.get(cache.name)):
                    return None
                kernel = kernels.add_func(_kernel(cache, found), "write_row")
                arguments = relax.Tuple([cache, found.place, found.row])
                return relax.op.call_tir_inplace(kernel, arguments, [0], cache.ty)

            return rewrite

        written = binding_pass("WriteRows", make_rewrite, [_WHERE])(mod)
        written.update(kernels.get())
        return written

    return tvm.transform.module_pass(transform, opt_level=0, name="WriteInPlace")


def _last_outputs(main: relax.Function, names: Sequence[str]) -> dict[str, Var]:
    """The new values of parameters: the last outputs, through copies."""
    values = bound_values(main)

    def through_copies(expr: Expr) -> Expr:
        while isinstance(expr, relax.Var) and isinstance(values.get(expr), relax.Var):
            expr = values[expr]
        return expr

    result = through_copies(main.body.body)
    whole = values.get(result, result)
    fields = list(whole.fields) if isinstance(whole, relax.Tuple) else [result]
    found = [through_copies(field) for field in fields]
    return dict(zip(names, found[-len(names) :], strict=False))


def _returned(main: relax.Function) -> Counter[Var]:
    """How often each variable is an output, as it is or through views of the same memory."""
    values = bound_values(main)
    found: Counter[Var] = Counter()
    waiting = [main.body.body]
    while waiting:
        expr = waiting.pop()
        is_variable = isinstance(expr, relax.Var)
        value = values.get(expr) if is_variable else expr
        if isinstance(value, relax.Tuple):
            waiting += list(value.fields)
        elif is_variable:
            found[expr] += 1
            if isinstance(value, relax.Var):
                waiting.append(value)
            elif value is not None and operator_name(value) in RESHAPES:
                waiting.append(value.args[0])
    return found


def _write_of(bindings: Bindings, value: Expr, given: Sequence[Var]) -> _Write | None:
    """The row that a choice writes into a parameter; None for any other value."""
    if operator_name(value) != _WHERE or not any(value.args[2].same_as(each) for each in given):
        return None
    condition, row, cache = value.args
    equal = bindings.call_of(condition, _EQUAL)
    shape, of_row = static_shape(cache), static_shape(row)
    if equal is None or shape is None or of_row is None or static_shape(value) != shape:
        return None
    if not all("int" in str(each.ty.dtype) for each in equal.args):
        return None
    for places, place in (equal.args, equal.args[::-1]):
        numbers = array_of(bindings.value_of(places))
        if numbers is None or numbers.ndim > len(shape) or np.prod(static_shape(place) or [2]) > 1:
            continue
        column = (1,) * (len(shape) - numbers.ndim) + numbers.shape
        wide = [axis for axis, extent in enumerate(column) if extent > 1]
        if len(wide) != 1 or column[wide[0]] != shape[wide[0]]:
            continue
        axis = wide[0]
        expected = (*shape[:axis], 1, *shape[axis + 1 :])
        if of_row == expected and (numbers.reshape(-1) == np.arange(shape[axis])).all():
            return _Write(row, place, axis)
    return None


def _kernel(cache: Expr, write: _Write) -> tirx.PrimFunc:
    """Write a row where its place is one of the cache's."""
    shape, of_row = static_shape(cache) or (), static_shape(write.row) or ()
    of_place = static_shape(write.place) or ()
    kinds = str(cache.ty.dtype), str(write.place.ty.dtype)
    with IRBuilder() as builder:
        with T.prim_func(s_tir=True):
            data = T.arg("cache", T.Buffer(shape, kinds[0]))
            place = T.arg("place", T.Buffer(of_place, kinds[1]))
            row = T.arg("row", T.Buffer(of_row, kinds[0]))
            at = place[tuple(0 for _ in of_place)]
            is_inside = tirx.And(at >= 0, at < shape[write.axis])
            # TVM looks for a block inside the outermost one (``split_layout_rewrite_preproc.cc``).
            with T.sblock("root"), T.sblock("write_row"):
                T.reads(whole(place, of_place), whole(row, of_row))
                T.writes(whole(data, shape))
                with T.If(is_inside), T.Then(), T.grid(*of_row) as indices:
                    own = list(indices) if len(of_row) > 1 else [indices]
                    to = [*own[: write.axis], at, *own[write.axis + 1 :]]
                    T.buffer_store(data, row[tuple(own)], to)
        kernel = builder.get()
    return kernel.with_attr({"tirx.noalias": True, "tirx.is_scheduled": True})
