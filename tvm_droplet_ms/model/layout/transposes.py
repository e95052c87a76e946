# SPDX-License-Identifier: Apache-2.0
"""Transposes and reshapes that follow each other merged, and those that do nothing removed."""

from collections.abc import Sequence

import tvm
from tvm import relax

from ..bindings import Bindings, Expr, Var, operator_name, static_shape
from ..rewriting import Emit, Rewrite, binding_pass

NAME = "relax.permute_dims"
RESHAPE = "relax.reshape"
BROADCAST = "relax.broadcast_to"


def axes_of(call: relax.Call, rank: int) -> tuple[int, ...]:
    """Return the axes of a ``relax.permute_dims``, counted from 0 upwards.

    ``rank``: the rank of its operand. Returns the operand's axis of
    each axis of the result.
    """
    if call.attrs.axes is None:
        return tuple(reversed(range(rank)))
    return tuple(int(axis) % rank for axis in call.attrs.axes)


def moves_data(shape: Sequence[int], axes: Sequence[int]) -> bool:
    """True if a transpose changes the order of elements in memory.

    It does not if the axes of extents other than 1 stay in order.
    """
    large = [axis for axis in axes if shape[axis] != 1]
    return large != sorted(large)


def _merged_reshape(bindings: Bindings, call: relax.Call) -> Expr | None:
    """Return a reshape of what is reshaped before. None if there is nothing to merge."""
    inner = bindings.call_of(call.args[0], RESHAPE)
    source = call.args[0] if inner is None else inner.args[0]
    shape = static_shape(call)
    if shape is not None and static_shape(source) == shape:
        return source
    return None if shape is None or inner is None else relax.op.reshape(source, shape)


def _rewrite(bindings: Bindings) -> Rewrite:
    def rewrite(_var: Var, value: Expr, _emit: Emit) -> Expr | None:
        if operator_name(value) == RESHAPE:
            return _merged_reshape(bindings, value)
        if operator_name(value) == BROADCAST:
            shape = static_shape(value)
            same = shape is not None and static_shape(value.args[0]) == shape
            return value.args[0] if same else None
        if operator_name(value) != NAME:
            return None
        if value.ty.ndim < 0:
            return None
        source, axes = value.args[0], axes_of(value, value.ty.ndim)
        inner = bindings.call_of(source, NAME)
        if inner is not None:
            inner_axes = axes_of(inner, len(axes))
            source, axes = inner.args[0], tuple(inner_axes[axis] for axis in axes)
        if axes == tuple(range(len(axes))):
            return source
        shape = static_shape(source)
        if shape is not None and not moves_data(shape, axes):
            return relax.op.reshape(source, [shape[axis] for axis in axes])
        return None if inner is None else relax.op.permute_dims(source, axes)

    return rewrite


def merge_transposes() -> tvm.transform.Pass:
    """Make a pass that merges a transpose of a transpose into one, and a reshape of a reshape.

    Two that cancel each other disappear, and so does a broadcast to the shape that is there. A
    transpose that moves no data, such as (1, 1, 1, C) to (1, C, 1, 1), becomes a reshape, which
    costs nothing at run time. Returns the pass. It leaves the inner operations as dead code where
    nothing else uses them.
    """
    return binding_pass("MergeTransposes", _rewrite, [NAME, RESHAPE, BROADCAST])
