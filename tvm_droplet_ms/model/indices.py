# SPDX-License-Identifier: Apache-2.0
"""Runtime indices, clamped to the bounds of the tensors that they index, and scatters by them.

TVM's kernels do not check indices. ONNX Runtime and PyTorch raise an error for an index out of
bounds. A compiled kernel cannot, so it uses the nearest element and never touches foreign memory.

TOPI's scatter (``topi/scatter_elements.py``) computes offsets from the shape of the indices on both
sides of the axis, not from the shape of the data. Where the two differ, tensors are flattened.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tvm import relax

from .bindings import Bindings, Expr, operator_name, static_shape
from .rewriting import Emit, operator_pass

_ALONG_AXIS = ("relax.gather_elements", "relax.scatter_elements")
_BOUNDED = ("relax.take", *_ALONG_AXIS, "relax.gather_nd", "relax.scatter_nd")


@operator_pass("BoundIndices", _BOUNDED)
def bound_indices(bindings: Bindings, value: Expr, emit: Emit) -> Expr | None:
    """Make a pass that clamps indices to the bounds of their tensors.

    It does not change constant indices and tensors of open extents. Negative indices of
    ``scatter_elements`` count from the end, as in TVM's kernel.
    """
    name = operator_name(value)
    data, index, *rest = value.args
    shape = static_shape(data)
    if shape is None or bindings.array_of(index) is not None or 0 in shape:
        return None
    attrs = value.attrs
    if name == "relax.take":
        if attrs.mode != "fast":
            return None
        axis = None if attrs.axis is None else int(attrs.axis)
        return relax.op.take(data, index, axis=axis, mode="clip")
    if name in _ALONG_AXIS:
        extents: Sequence[int] = [shape[int(attrs.axis)]]
    else:
        places = static_shape(index)
        if places is None:
            return None
        start = int(getattr(attrs, "batch_dims", 0))
        extents = shape[start : start + places[-1]]
    if max(extents) > np.iinfo(str(index.ty.dtype)).max:
        return None
    inside = _within(index, extents, name == "relax.scatter_elements", emit)
    return relax.Call(value.op, [data, inside, *rest], attrs)


def _within(index: Any, extents: Sequence[int], may_be_negative: bool, emit: Emit) -> Any:
    """Clamp indices to an extent, or to one extent for each position on their last axis."""
    dtype = str(index.ty.dtype)
    ends = np.array(extents if len(extents) > 1 else extents[0], dtype)
    starts = -ends if may_be_negative and not dtype.startswith("uint") else np.zeros_like(ends)
    above = emit(relax.op.maximum(index, relax.const(starts, dtype)))
    return emit(relax.op.minimum(above, relax.const(ends - 1, dtype)))


Scatter = Callable[[Any, Any, Any, int], Any]


def scatter(emit: Callable[[Any], Any], tensors: Sequence[Any], axis: int, write: Scatter) -> Any:
    """Scatter elements along an axis.

    ``emit``: binds an expression. ``tensors``: the data, the indices and the updates. Negative
    indices count from the end. Updates beyond the shape of the indices are not read. ``write``:
    scatters three tensors along an axis, given shapes that fit TOPI's kernel. Returns a tensor of
    the data's shape. Tensors of open extents go to ``write`` unchanged.
    """
    data, index, updates = tensors
    shape, counts, given = (static_shape(each) for each in tensors)
    if shape is None or counts is None or given is None or not shape or 0 in (*shape, *counts):
        return write(data, index, updates, axis)
    axis %= len(shape)
    if given != counts:
        ends = list(counts)
        axes = list(range(len(counts)))
        updates = emit(relax.op.strided_slice(updates, axes, [0] * len(ends), ends))
    extent = shape[axis]
    others = [n for n in range(len(shape)) if n != axis]
    if all(shape[n] == counts[n] for n in others):
        return write(data, index, updates, axis)
    index = _within(emit(relax.op.astype(index, "int64")), [extent], True, emit)
    strides = [int(np.prod(shape[n + 1 :])) for n in range(len(shape))]
    base = np.zeros(counts, "int64")
    for n in others:
        column = [-1 if m == n else 1 for m in range(len(shape))]
        base += strides[n] * np.arange(counts[n]).reshape(column)
    from_start = relax.op.where(
        relax.op.less(index, relax.const(0, "int64")),
        relax.op.add(index, relax.const(extent, "int64")),
        index,
    )
    steps = relax.op.multiply(emit(from_start), relax.const(strides[axis], "int64"))
    places = emit(relax.op.add(emit(steps), relax.const(base, "int64")))
    flat = [emit(relax.op.reshape(each, [-1])) for each in (data, places, updates)]
    return relax.op.reshape(emit(write(flat[0], flat[1], flat[2], 0)), list(shape))
