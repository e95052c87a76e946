# SPDX-License-Identifier: Apache-2.0
"""Rows that are written in place into a tensor that the caller gives away, without a copy.

A decoder step writes one row of its cache. A graph has no state, so it makes a new cache from the
old cache and the row: at 4,096 positions that takes as long as all products of a small model.
"""

from collections import Counter
from collections.abc import Mapping
from math import prod

import tvm
from tvm import relax
from tvm.ir import IRModule

from ..bindings import (
    Bindings,
    Expr,
    Var,
    bound_values,
    operator_name,
    static_shape,
    users_of,
    values_of,
)
from ..folding.numpy_folding import RESHAPES, fold_constants
from ..rewriting import Emit, Rewrite, binding_pass
from .half_caches import narrow_caches
from .written_rows import TRANSPOSE, WRITES, Write, write_of

GIVEN_AWAY = "tvm_droplet_ms.given_away"
"""The attribute of ``main`` with the names of the parameters that it may write to. It maps each
name to the number of the output that is the parameter's new value."""

_IN_PLACE = "relax.call_tir_inplace"


_MOVES = RESHAPES | {
    f"relax.{name}"
    for name in (
        "permute_dims strided_slice tile repeat broadcast_to flip concat take gather_elements "
        "astype call_tir nn.pad sum max min mean prod"
    ).split()
}
"""Operators that keep each element in place if extents are 1 or if they have nothing to do."""


def give_away(mod: IRModule, names: Mapping[str, int]) -> IRModule:
    """Mark parameters of ``main`` that the caller gives away, so that they may be written to.

    ``names``: maps each parameter to the number of the output that is its new value.
    """
    marked = mod.clone()
    marked.update_func(mod.get_global_var("main"), mod["main"].with_attr(GIVEN_AWAY, dict(names)))
    return marked


def write_rows() -> tvm.transform.Pass:
    """Make a pass that writes rows into tensors with its own kernels.

    The kernels replace scatters, for which TVM's kernels are slow, and copy the tensor first. If
    the tensor is a parameter that is given away, they write into it instead. They then also replace
    choices between the parameter and a row: importers express ``cache[:, :, position] = row`` as
    such a choice. Returns the pass. A parameter is copied if anything else reads it, if its new
    value is not the result of the write, or if the result is returned twice, perhaps reshaped: the
    caller may keep one of the two.
    """

    def transform(mod: IRModule, _context: tvm.transform.PassContext) -> IRModule:
        main = _main_of(mod)
        if main is None or {operator_name(each) for each in values_of(main)}.isdisjoint(WRITES):
            return mod
        kernels = relax.BlockBuilder()
        writer = _Writer(main, kernels)
        written = binding_pass("WriteRows", writer.rewrite_of, WRITES)(mod)
        written.update(kernels.get())
        return written

    return tvm.transform.module_pass(transform, opt_level=0, name="WriteRows")


def copied(mod: IRModule) -> dict[str, str]:
    """Map each parameter that is given away but copied anyway to the reason, in words."""
    first = [relax.transform.CanonicalizeBindings(), relax.transform.ConvertToDataflow()]
    no_dead = relax.transform.DeadCodeElimination()
    passes = [*first, fold_constants(), no_dead, narrow_caches(), no_dead, write_rows()]
    main = tvm.transform.Sequential(passes)(mod)["main"]
    written = {
        value.args[1].fields[0] for value in values_of(main) if operator_name(value) == _IN_PLACE
    }
    users = users_of(main)
    reasons = {}
    for name in _given(main):
        (param,) = (each for each in main.params if each.name == name)
        if param not in written:
            reasons[name] = (
                "the model reads it elsewhere too, where its old values are needed"
                if len(users.get(param, ())) > 1
                else "the output is not this input with rows written into it, by ScatterElements, "
                "ScatterND, TensorScatter or GroupQueryAttention, or another output shares it"
            )
    return reasons


class _Writer:
    """Replaces the operators that write rows in a function, and adds kernels to ``kernels``."""

    def __init__(self, main: relax.Function, kernels: relax.BlockBuilder) -> None:
        self._kernels = kernels
        self._users, self._values = users_of(main), bound_values(main)
        self._given = [param for param in main.params if param.name in _given(main)]
        self._returned, self._new_values = _returned(main), _new_values(main)

    def rewrite_of(self, bindings: Bindings) -> Rewrite:
        def rewrite(var: Var, value: Expr, emit: Emit) -> Expr | None:
            found = write_of(bindings, value)
            follower = bindings.values.get(bindings.only_user(var))
            is_inner = operator_name(follower) == TRANSPOSE and write_of(bindings, follower)
            if found is None or is_inner:
                return None
            return self._call(found, self._may_write(var, found))

        return rewrite

    def _may_write(self, var: Var, found: Write) -> bool:
        """True if the tensor is a parameter that is given away, and ``var`` is its new value."""
        data = found.data
        return (
            any(data.same_as(each) for each in self._given)
            and not self._is_of(found.rows, data)
            and not self._is_of(found.places, data)
            and len(self._users[data]) == 1
            and self._returned[var] == 1
            and var.same_as(self._new_values.get(data.name))
        )

    def _is_of(self, expr: Expr, data: Var) -> bool:
        """True for a tensor itself, and for the result of a call with the tensor as an argument."""
        value = self._values.get(expr)
        arguments = value.args if isinstance(value, relax.Call) else ()
        return expr.same_as(data) or any(each.same_as(data) for each in arguments)

    def _call(self, found: Write, in_place: bool) -> relax.Call | None:
        if found.is_choice and not in_place:
            return None  # A choice is a kernel that TVM fuses and schedules.
        kernel = self._kernels.add_func(found.kernel(in_place=in_place), "write_rows")
        if in_place:
            arguments = relax.Tuple([found.data, found.places, found.rows])
            return relax.op.call_tir_inplace(kernel, arguments, [0], found.data.ty)
        return relax.call_tir(kernel, [found.data, found.places, found.rows], found.data.ty)


def _main_of(mod: IRModule) -> relax.Function | None:
    return next((f for var, f in mod.functions_items() if var.name_hint == "main"), None)


def _given(main: relax.Function) -> dict[str, int]:
    given = (main.attrs or {}).get(GIVEN_AWAY, {})
    return {str(name): int(number) for name, number in given.items()}


def _new_values(main: relax.Function) -> dict[str, Var]:
    """Return the variable of each parameter's new value, through copies."""
    values = bound_values(main)

    def through_copies(expr: Expr) -> Expr:
        while isinstance(expr, relax.Var) and isinstance(values.get(expr), relax.Var):
            expr = values[expr]
        return expr

    result = through_copies(main.body.body)
    whole = values.get(result, result)
    fields = list(whole.fields) if isinstance(whole, relax.Tuple) else [result]
    return {name: through_copies(fields[number]) for name, number in _given(main).items()}


def _returned(main: relax.Function) -> Counter[Var]:
    """Count how often each variable is an output, directly or through views of its memory."""
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
            elif (viewed := _viewed(value)) is not None:
                waiting.append(viewed)
    return found


def _viewed(value: Expr | None) -> Expr | None:
    """Return the tensor that a call may return a view of, without changing its elements."""
    if not isinstance(value, relax.Call) or operator_name(value) not in _MOVES:
        return None
    fields = [
        field
        for each in value.args
        for field in (each.fields if isinstance(each, relax.Tuple) else [each])
    ]
    tensors = [each for each in fields if isinstance(each.ty, relax.TensorType)]
    if len(tensors) != 1:
        return None
    shapes = [static_shape(each) for each in (value, tensors[0])]
    sizes = {prod(each) for each in shapes if each is not None}
    return tensors[0] if len(sizes) < 2 else None
