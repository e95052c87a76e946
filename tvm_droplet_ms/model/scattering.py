# SPDX-License-Identifier: Apache-2.0
"""Places to write to, for tensors of indices that are smaller than what is written into.

TOPI's kernel (``topi/scatter_elements.py``) counts in the shape of the indices on both sides of the
axis, and not in that of the data. Where these differ, the data are one axis here.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tvm import relax

from .bindings import static_shape

Scatter = Callable[[Any, Any, Any, int], Any]


def scatter(emit: Callable[[Any], Any], tensors: Sequence[Any], axis: int, write: Scatter) -> Any:
    """Write elements to places along an axis.

    ``emit``: binds an expression. ``tensors``: the data, the indices, of which negative ones count
    from the end, and the updates, of which those beyond the indices are not read. ``write``: given
    three tensors and an axis along which they fit TOPI's kernel, what it computes. Returns a tensor
    of the data's shape. Of open extents it leaves all as it is.
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
