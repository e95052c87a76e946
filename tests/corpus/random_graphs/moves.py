# SPDX-License-Identifier: Apache-2.0
"""Random operators that move data."""

from __future__ import annotations

import numpy as np

from .maker import MOST_ELEMENTS, GraphMaker, Value


def concat(make: GraphMaker, x: Value) -> Value | None:
    """Values side by side, or a value and a constant."""
    axis = make.integer(0, x.rank - 1)
    others = [
        y
        for y in make.values
        if y.rank == x.rank
        and y.shape[:axis] == x.shape[:axis]
        and y.shape[axis + 1 :] == x.shape[axis + 1 :]
    ]
    parts = [(x.name, x.shape[axis])]
    for _ in range(make.integer(1, 2)):
        y = make.pick(others)
        parts.append((y.name, y.shape[axis]))
    if make.chance(20):
        shape = list(x.shape)
        shape[axis] = make.integer(1, 3)
        parts.append((make.weight(shape), shape[axis]))
    shape = list(x.shape)
    shape[axis] = sum(extent for _, extent in parts)
    return make.node("Concat", [name for name, _ in parts], shape, axis=axis)


def cut(make: GraphMaker, x: Value) -> Value | None:
    """A slice with steps, which may go backwards."""
    axes = [axis for axis in range(x.rank) if make.chance(50)]
    if not axes:
        return None
    begins, ends, steps, shape = [], [], [], list(x.shape)
    for axis in axes:
        extent = x.shape[axis]
        begin = make.integer(0, extent - 1)
        end, step = make.integer(begin + 1, extent), make.pick([1, 1, 1, 2, 3])
        shape[axis] = -(-(end - begin) // step)
        if make.chance(20):
            begin -= extent
        if end == extent and make.chance(50):
            end = 2**31 - 1
        begins.append(begin)
        ends.append(end)
        steps.append(step)
    operands = [make.integers(each) for each in (begins, ends, axes, steps)]
    return make.node("Slice", [x.name, *operands], shape)


def transpose(make: GraphMaker, x: Value) -> Value:
    order = list(range(x.rank))
    for place in range(x.rank - 1, 0, -1):
        other = make.integer(0, place)
        order[place], order[other] = order[other], order[place]
    return make.node("Transpose", [x.name], [x.shape[axis] for axis in order], perm=order)


def reshape(make: GraphMaker, x: Value) -> Value | None:
    """Two axes become one, or one becomes two."""
    axis = make.integer(0, x.rank - 1)
    extent = x.shape[axis]
    shape = list(x.shape)
    if x.rank > 2 and make.chance(50):
        axis = min(axis, x.rank - 2)
        shape[axis : axis + 2] = [shape[axis] * shape[axis + 1]]
    elif x.rank < 5:
        factor = make.pick([f for f in (1, 2, 3, 4, extent) if extent % f == 0])
        shape[axis : axis + 1] = [factor, extent // factor]
    else:
        return None
    wanted = list(shape)
    if make.chance(30):
        wanted[make.integer(0, len(wanted) - 1)] = -1
    return make.node("Reshape", [x.name, make.integers(wanted)], shape)


def flatten(make: GraphMaker, x: Value) -> Value:
    axis = make.integer(1, x.rank - 1) if x.rank > 1 else 0
    before = after = 1
    for place, extent in enumerate(x.shape):
        before, after = (before * extent, after) if place < axis else (before, after * extent)
    return make.node("Flatten", [x.name], [before, after], axis=axis)


def ones(make: GraphMaker, x: Value) -> Value | None:
    """An axis of extent 1 comes or goes."""
    found = [axis for axis, extent in enumerate(x.shape) if extent == 1]
    if found and x.rank > 2 and make.chance(60):
        axis = make.pick(found)
        shape = [*x.shape[:axis], *x.shape[axis + 1 :]]
        return make.node("Squeeze", [x.name, make.integers([axis])], shape)
    if x.rank > 4:
        return None
    axis = make.integer(0, x.rank)
    shape = [*x.shape[:axis], 1, *x.shape[axis:]]
    return make.node("Unsqueeze", [x.name, make.integers([axis])], shape)


def pad(make: GraphMaker, x: Value) -> Value:
    mode = make.pick(["constant", "constant", "reflect", "edge"])
    image = range(2 if x.rank > 2 else 0, x.rank)
    most = [min(2, extent - 1) if mode == "reflect" else 2 for extent in x.shape]
    begin, end = (
        [make.integer(0, most[axis]) if axis in image else 0 for axis in range(x.rank)]
        for _ in range(2)
    )
    shape = [b + extent + e for b, extent, e in zip(begin, x.shape, end, strict=True)]
    operands = [x.name, make.integers([*begin, *end])]
    if mode == "constant" and make.chance(50):
        operands.append(make.weight([]))
    return make.node("Pad", operands, shape, mode=mode)


def resize(make: GraphMaker, x: Value) -> Value | None:
    """Nearest neighbors by whole factors, where all coordinates are exact."""
    if x.rank != 4:
        return None
    scales = [1, 1, make.integer(1, 3), make.integer(1, 2)]
    shape = [extent * scale for extent, scale in zip(x.shape, scales, strict=True)]
    if np.prod(shape) > MOST_ELEMENTS:
        return None
    operands = [x.name, "", make.constant(np.array(scales, "float32"))]
    options = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    return make.node("Resize", operands, shape, mode="nearest", **options)


def gather(make: GraphMaker, x: Value) -> Value:
    axis = make.integer(0, x.rank - 1)
    count, extent = make.integer(1, 4), x.shape[axis]
    indices = [make.integer(-extent, extent - 1) for _ in range(count)]
    shape = [*x.shape[:axis], count, *x.shape[axis + 1 :]]
    return make.node("Gather", [x.name, make.integers(indices)], shape, axis=axis)


def expand(make: GraphMaker, x: Value) -> Value:
    shape = [make.integer(1, 4) if e == 1 and make.chance(70) else e for e in x.shape]
    return make.node("Expand", [x.name, make.integers(shape)], shape)


def to_space(make: GraphMaker, x: Value) -> Value | None:
    if x.rank != 4 or x.shape[1] % 4:
        return None
    n, c, h, w = x.shape
    mode = make.pick(["DCR", "CRD"])
    return make.node("DepthToSpace", [x.name], [n, c // 4, 2 * h, 2 * w], blocksize=2, mode=mode)


MOVES = (
    *[concat] * 3, *[cut] * 2, *[transpose] * 2, *[reshape] * 2, flatten, ones, *[pad] * 2,
    *[resize] * 2, gather, expand, to_space,
)  # fmt: skip
"""Operators that move data, by how often they are tried."""
