# SPDX-License-Identifier: Apache-2.0
"""Scatters whose index tensor is smaller than the data.

TOPI's kernel (``topi/scatter_elements.py``) computes offsets from the shape of the indices on both
sides of the axis, not from the shape of the data. Where the two shapes differ, this module flattens
the tensors to one axis.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tvm import relax

from .bindings import static_shape

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
    index = emit(relax.op.astype(index, "int64"))
    index = emit(relax.op.maximum(index, relax.const(-extent, "int64")))
    index = emit(relax.op.minimum(index, relax.const(extent - 1, "int64")))
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
