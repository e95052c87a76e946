# SPDX-License-Identifier: Apache-2.0
"""All forms of writing rows into a tensor at places that are known only at run time.

TOPI's kernels (``topi/scatter_elements.py``, ``topi/scatter.py``) compute a place for each number.
The kernels of this module read the place of a row once, and copy the row.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as T

from ..bindings import Bindings, Expr, array_of, operator_name, static_shape
from ..layout.transposes import axes_of
from ..scheduled import whole

_WHERE, _EQUAL, _ELEMENTS, _ND = (
    f"relax.{name}" for name in ("where", "equal", "scatter_elements", "scatter_nd")
)
TRANSPOSE = "relax.permute_dims"

WRITES = (_WHERE, _ELEMENTS, _ND, TRANSPOSE)
"""Operators that may write rows into a tensor."""


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
        axis = _counted_axis(array_of(bindings.value_of(places)), shape)
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
