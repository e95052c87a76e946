# SPDX-License-Identifier: Apache-2.0
"""Max pools that also return the positions of the maxima."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, prod
from typing import Any

from tvm import te, tirx


@dataclass
class Windows:
    """The windows of a pool, with a number for each axis of a plane; only leading pads are used."""

    kernel: Sequence[int]
    strides: Sequence[int]
    dilations: Sequence[int]
    pads: Sequence[int]
    sizes: Sequence[int]


def pool_with_positions(
    data: te.Tensor, windows: Windows, *, is_column_major: bool = False, in_plane: bool = False
) -> list[te.Tensor]:
    """Return the maxima of windows, and their positions in the tensor or each in its own plane.

    A position is the first element that equals the maximum. A separate reduction finds it, because
    TVM computes wrong numbers if it vectorizes a reduction of pairs that reads padding. A window
    of padding alone has the position of the last element of its plane.
    """
    sizes, strides, dilations, pads = (
        windows.sizes,
        windows.strides,
        windows.dilations,
        windows.pads,
    )
    shape = [int(extent) for extent in data.shape]
    extents = shape[2:]
    size = prod(extents)
    is_float = "float" in str(data.dtype)
    largest = te.comm_reducer(lambda x, y: tirx.max(x, y), _least) if is_float else te.max

    def window(name: str) -> list[tirx.IterVar]:
        return [te.reduce_axis((0, k), name=f"{name}{n}") for n, k in enumerate(windows.kernel)]

    def pixel(place: Sequence[Any], inner: Sequence[Any]) -> tuple[list[Any], Any]:
        """Return the pixel of a window element, and whether it lies in the image."""
        ats = [place[d] * strides[d] + inner[d] * dilations[d] - pads[d] for d in range(len(sizes))]
        return ats, tirx.all(*[tirx.all(at >= 0, at < extents[d]) for d, at in enumerate(ats)])

    def maximum(n: Any, c: Any, *place: Any) -> Any:
        inner = window("k")
        ats, inside = pixel(place, inner)
        source = (n, c, *ats)
        return largest(tirx.if_then_else(inside, data[source], _least(data.dtype)), axis=inner)

    value = te.compute([*shape[:2], *sizes], maximum, name="max_pool")

    def position(n: Any, c: Any, *place: Any) -> Any:
        inner = window("j")
        ats, inside = pixel(place, inner)
        flat = tirx.const(0, "int64")
        for d in range(len(sizes)):
            flat = flat * extents[d] + ats[d].astype("int64")
        plane = tirx.const(0, "int64")
        if not in_plane:
            plane = (n.astype("int64") * shape[1] + c.astype("int64")) * size
        source = (n, c, *ats)
        found = data[source] == value(n, c, *place)
        if is_float:  # A NaN equals nothing, but has a position too.
            found = tirx.any(found, tirx.isnan(data[source].astype("float32")))
        is_largest = tirx.if_then_else(inside, found, tirx.const(False, "bool"))
        last = tirx.const(size - 1, "int64")
        return te.min(tirx.Select(is_largest, plane + flat, plane + last), axis=inner)

    index = te.compute(value.shape, position, name="positions")
    if not is_column_major:
        return [value, index]

    def by_columns(*place: Any) -> Any:
        rest = tirx.floormod(index(*place), size)
        flat = index(*place) - rest
        stride = size
        for extent in reversed(extents):
            stride //= extent
            flat = flat + tirx.floormod(rest, extent) * stride
            rest = tirx.floordiv(rest, extent)
        return flat

    return [value, te.compute(index.shape, by_columns, name="by_columns")]


def _least(dtype: Any) -> Any:
    """Return the least value of a type; for floats, minus infinity, not TVM's finite minimum."""
    return tirx.const(-inf, dtype) if "float" in str(dtype) else te.min_value(dtype)
