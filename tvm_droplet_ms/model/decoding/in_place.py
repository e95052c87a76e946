# SPDX-License-Identifier: Apache-2.0
"""Rows that are written at places known only at run time, in place if the tensor is given away.

A decoder step writes one row of its cache. A graph has no state, so it makes a new cache from the
old cache and the row: at 4,096 positions that takes as long as all products of a small model.

TOPI's kernels (``topi/scatter_elements.py``, ``topi/scatter.py``) compute a place for each number.
The kernels of this module read the place of a row once, and copy the row.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from math import prod
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
    bound_values,
    operator_name,
    relax_operators,
    static_shape,
    users_of,
    values_of,
)
from ..folding.numpy_folding import RESHAPES, fold_constants
from ..layout.transposes import axes_of
from ..rewriting import Emit, Rewrite, binding_pass
from ..scheduled import whole
from .caches import narrow_caches

GIVEN_AWAY = "tvm_droplet_ms.given_away"
"""The attribute of ``main`` with the names of the parameters that it may write to. It maps each
name to the number of the output that is the parameter's new value."""

_IN_PLACE = "relax.call_tir_inplace"


_MOVES = RESHAPES | relax_operators(
    "permute_dims strided_slice tile repeat broadcast_to flip concat take gather_elements astype "
    "call_tir nn.pad sum max min mean prod"
)
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
    such a choice. A parameter is copied if anything else reads it, if its new value is not the
    result of the write, or if the result is returned twice, perhaps reshaped: the caller may keep
    one of the two.
    """

    def transform(mod: IRModule, _context: tvm.transform.PassContext) -> IRModule:
        named = {str(var.name_hint): function for var, function in mod.functions_items()}
        main = named.get("main")
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


class Write(NamedTuple):
    """Rows that are written into a tensor.

    - ``places``: integers. If ``axis`` is None, they have the shape (..., count) and hold the
      places along the first ``count`` axes. Otherwise they hold the places along ``axis`` and
      broadcast to the shape of the rows.
    - ``axes``: the order in which this class counts the axes of the tensor.
    - ``is_choice``: whether a row whose place is outside is not written. Otherwise it is written to
      the nearest place.
    """

    data: Expr
    places: Expr
    rows: Expr
    axis: int | None
    axes: tuple[int, ...]
    is_choice: bool = False

    def kernel(self, *, in_place: bool) -> tirx.PrimFunc:
        """Make the kernel that writes the rows into the tensor, or into a copy of the tensor."""
        shape, of_rows = static_shape(self.data) or (), static_shape(self.rows) or ()
        of_places = static_shape(self.places) or ()
        kinds = str(self.data.ty.dtype), str(self.places.ty.dtype)
        with IRBuilder() as builder:
            with T.prim_func(s_tir=True):
                data = T.arg("data", T.Buffer(shape, kinds[0]))
                places = T.arg("places", T.Buffer(of_places, kinds[1]))
                rows = T.arg("rows", T.Buffer(of_rows, kinds[0]))
                new = data if in_place else T.arg("new", T.Buffer(shape, kinds[0]))
                # TVM looks for a block inside the outermost one (``split_layout_rewrite_preproc``).
                with T.sblock("root"), T.sblock("write_rows"):
                    given = [(places, of_places), (rows, of_rows), (data, shape)]
                    T.reads(*(whole(*each) for each in given[: 2 if in_place else 3]))
                    T.writes(whole(new, shape))
                    if not in_place:
                        with T.grid(*shape) as loops:
                            at = _listed(loops, len(shape))
                            T.buffer_store(new, data[tuple(at)], at)
                    if self.is_choice:
                        place = places[tuple(0 for _ in of_places)]
                        with T.If(tirx.And(place >= 0, place < shape[self.axis or 0])), T.Then():
                            self._write(new, places, rows)
                    else:
                        self._write(new, places, rows)
            kernel = builder.get()
        # 8: TVM does not fuse the kernel.
        attributes = {"tirx.noalias": True, "tirx.is_scheduled": True, "op_pattern": 8}
        return kernel.with_attrs(attributes)

    def _write(self, new: Any, places: Any, rows: Any) -> None:
        shape, of_rows = static_shape(self.data) or (), static_shape(self.rows) or ()
        extents = static_shape(self.places) or ()
        with T.grid(*of_rows) as loops:
            own = _listed(loops, len(of_rows))
            if self.axis is None:
                outer, count = len(extents) - 1, extents[-1]
                found = [places[tuple([*own[:outer], n])] for n in range(count)]
                to = [*map(self._inside, found, range(count)), *own[outer:]]
            else:
                padded = (1,) * (len(own) - len(extents)) + tuple(extents)
                at = [i if extent > 1 else 0 for i, extent in zip(own, padded, strict=True)]
                found = [places[tuple(at[len(own) - len(extents) :])]]
                to = [*own[: self.axis], self._inside(found[0], self.axis), *own[self.axis + 1 :]]
            ordered = [to[self.axes.index(n)] for n in range(len(shape))]
            T.buffer_store(new, rows[tuple(own)], ordered)

    def _inside(self, place: Any, axis: int) -> Any:
        """Clamp a place to the tensor; negative places count from the end."""
        place = place.astype("int64")
        if self.is_choice:
            return place
        extent = tirx.const((static_shape(self.data) or ())[self.axes[axis]], "int64")
        from_start = tirx.Select(place < 0, place + extent, place)
        return tirx.max(tirx.min(from_start, extent - 1), tirx.const(0, "int64"))


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


_WHERE, _EQUAL, _ELEMENTS, _ND = (
    f"relax.{name}" for name in ("where", "equal", "scatter_elements", "scatter_nd")
)
TRANSPOSE = "relax.permute_dims"

WRITES = (_WHERE, _ELEMENTS, _ND, TRANSPOSE)
"""Operators that may write rows into a tensor."""


def _listed(loops: Any, count: int) -> list[Any]:
    return list(loops) if count > 1 else [loops]


def write_of(bindings: Bindings, value: Expr) -> Write | None:
    """Return the write that a value performs, or None for any other value."""
    name = operator_name(value)
    if name == _WHERE:
        return _chosen_row(bindings, value)
    if name == TRANSPOSE:
        return _behind_transposes(bindings, value)
    if name not in (_ELEMENTS, _ND) or value.attrs.reduction != "update":
        return None
    data, places, rows = value.args
    shapes = [static_shape(each) for each in value.args]
    if any(not shape or 0 in shape for shape in shapes):
        return None
    axes = tuple(range(len(shapes[0] or ())))
    if name == _ND:
        return Write(data, places, rows, None, axes)
    if shapes[1] != shapes[2]:
        return None
    wide = bindings.call_of(places, "relax.broadcast_to")
    if wide is not None and static_shape(wide.args[0]):
        places = wide.args[0]
    return Write(data, places, rows, int(value.attrs.axis) % len(axes), axes)


def _behind_transposes(bindings: Bindings, value: Expr) -> Write | None:
    """Match ``x[:, :, places] = rows`` as PyTorch exports it, with the axis of places first."""
    scattered, rank = value.args[0], int(value.ty.ndim)
    first = bindings.call_of(scattered, _ND)
    data = None if first is None else bindings.call_of(first.args[0], TRANSPOSE)
    if first is None or data is None:
        return None
    if bindings.only_user(scattered) is None or bindings.only_user(first.args[0]) is None:
        return None
    axes = axes_of(data, rank)
    if [axes[axis] for axis in axes_of(value, rank)] != list(range(rank)):
        return None
    found = write_of(bindings, first)
    return None if found is None else found._replace(data=data.args[0], axes=tuple(axes))


def _chosen_row(bindings: Bindings, value: Expr) -> Write | None:
    """Match a choice between a tensor and a row where the place along an axis equals a number."""
    condition, row, data = value.args
    equal = bindings.call_of(condition, _EQUAL)
    shape, of_row = static_shape(data), static_shape(row)
    if equal is None or not shape or of_row is None or static_shape(value) != shape:
        return None
    if not all("int" in str(each.ty.dtype) for each in equal.args):
        return None
    for places, place in (equal.args, equal.args[::-1]):
        axis = _counted_axis(bindings.array_of(places), shape)
        if axis is None or np.prod(static_shape(place) or [2]) > 1:
            continue
        if of_row == (*shape[:axis], 1, *shape[axis + 1 :]):
            return Write(data, place, row, axis, tuple(range(len(shape))), is_choice=True)
    return None


def _counted_axis(numbers: "np.ndarray[Any, Any] | None", shape: Sequence[int]) -> int | None:
    """Return the axis of a tensor whose places an array numbers from 0, or None."""
    if numbers is None or numbers.ndim > len(shape):
        return None
    column = (1,) * (len(shape) - numbers.ndim) + numbers.shape
    wide = [axis for axis, extent in enumerate(column) if extent > 1]
    if len(wide) != 1 or column[wide[0]] != shape[wide[0]]:
        return None
    return wide[0] if (numbers.reshape(-1) == np.arange(shape[wide[0]])).all() else None
