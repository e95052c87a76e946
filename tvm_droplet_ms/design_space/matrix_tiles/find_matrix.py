# SPDX-License-Identifier: Apache-2.0
"""Finds the matrix product that a block sums, and the axes to tile."""

from dataclasses import dataclass
from functools import partial
from typing import Any

from tvm_ffi import structural_equal
from tvm_ffi.structural import structural_map, structural_walk

from tvm import tirx
from tvm.sym import Analyzer
from tvm.target import Target
from tvm.tirx import IntImm, IterVar

from ..dot_products.dot_intrinsics import BYTES, HALVES
from ..dot_products.dot_units import DotUnit, has_features
from ..dot_products.find_dot import FoundDot, find_dot
from .tile_kind import MULTIPLY
from .tile_shapes import FEWEST_ROWS, MOST_LANES, ROW_BYTES, TILES, largest_part

_FEWEST_LANES, FEWEST_BYTES = 8, 16
"""Minimum lanes, and bytes in a row: below these, vector instructions are as fast."""


@dataclass(frozen=True)
class FoundMatrix:
    """The matrix product of a block; axes are positions among the block's axes.

    - ``dot``: the dot products of the block.
    - ``row``: the axis along the rows of tiles.
    - ``line``: the next outer axis, if it is tiled too; otherwise None.
    - ``stride``: the stride between rows of a tile, in rows of memory; 0 if the rows overlap.
    - ``pitch``: the stride between rows that overlap in a line of memory, in elements; otherwise 0.
    - ``middle``: 1 if an axis of one element lies between rows and lanes.
    - ``depth``: the products that one instruction adds to each sum.
    - ``reads``: the axes that index the factor that all columns share, ascending.
    """

    dot: FoundDot
    row: int
    line: int | None
    stride: int
    pitch: int
    middle: int
    depth: int
    reads: list[int]


def matrix_units(target: Target) -> list[DotUnit]:
    """Return the units of a target's matrix tiles, for bytes and bfloat16; empty without tiles."""
    lanes = tuple(range(MOST_LANES, _FEWEST_LANES - 1, -1))
    return [
        DotUnit(lanes, depth, TILES, dtypes)
        for feature, depth, dtypes in (("amx-int8", 4, BYTES), ("amx-bf16", 2, HALVES))
        if has_features(target, "amx-tile", feature)
    ]


def has_matrix_units(target: Target, dtype: str) -> bool:
    """Return whether a target's matrix tiles multiply numbers of a dtype."""
    return any(dtype in unit.dtypes for unit in matrix_units(target))


def product_geometry(
    target: Target, dtype: str, depth: int, outputs: int, taps: int = 1
) -> tuple[int, int, int, int] | None:
    """Return the panels, lanes, depth and steps of tiles for products; None if tiles do not apply.

    ``dtype``: the dtype of both factors. ``depth``: the products of an output at each tap.
    ``taps``: the number of taps.
    """
    for unit in matrix_units(target):
        lanes = next((n for n in unit.lanes if outputs % n == 0), None)
        if dtype in unit.dtypes and lanes is not None and depth % unit.depth == 0:
            length = largest_part(depth // unit.depth, ROW_BYTES // 4) * unit.depth
            if length * 4 // unit.depth >= FEWEST_BYTES:
                return outputs // lanes, lanes, length, depth * taps // length
    return None


def find_matrix(block: Any, unit: DotUnit) -> FoundMatrix | None:
    """Find the matrix product of a block; None if it has none that tiles can compute."""
    dot = find_dot(block, unit)
    if dot is None or (dot.dot.shared, dot.dot.own) not in MULTIPLY:
        return None
    axes, indices = list(block.iter_vars), list(block.body.indices)
    shared, own = _loads(block, dot)
    if len(indices) < 2 or not indices[-1].same_as(axes[dot.lane].var):
        return None
    if dot.packed_axes is None and len(own.indices) < 3:
        return None
    if dot.packed_axes is None and not _is_packed(own, axes, dot):
        return None
    if dot.packed_axes is not None and not are_axes(own, axes):
        return None
    row = _place(axes, indices[-2])
    middle = int(len(indices) > 2 and row is not None and int(axes[row].dom.extent) == 1)
    if middle:
        row = _place(axes, indices[-3])
    if row is None or depends(own.indices, axes[row]):
        return None
    places = simplified(shared.indices, axes)
    stride = _stride(places, axes, row, dot.step, middle)
    pitch = 0 if middle else _pitch(places, axes, row, dot.step)
    steps = int(axes[dot.step].dom.extent)
    depth = largest_part(steps // unit.depth, ROW_BYTES // 4) * unit.depth
    if stride + pitch == 0 or depth * 4 // unit.depth < FEWEST_BYTES:
        return None
    line = _place(axes, indices[-3]) if len(indices) > 2 and not middle else None
    if line is not None and depends(own.indices, axes[line]):
        line = None
    if max(int(axes[n].dom.extent) for n in (row, line) if n is not None) < FEWEST_ROWS:
        return None
    reads = [n for n, axis in enumerate(axes) if depends(places, axis)]
    if dot.lane in reads:
        return None
    return FoundMatrix(dot, row, line, stride, pitch, middle, depth, reads)


def _loads(block: Any, dot: FoundDot) -> tuple[Any, Any]:
    """Return the loads of the factor that all columns share and of the weights."""
    product = block.body.value.b
    one, other = (factor.value for factor in (product.a, product.b))
    return (one, other) if one.source.same_as(dot.shared) else (other, one)


def are_axes(load: Any, axes: list[Any]) -> bool:
    """Return whether each index of a load is an axis, except in dimensions of one element.

    In a slice, or in weights that are read backward, a tile would have the wrong columns.
    """
    return all(map(partial(_is_axis, axes), load.indices, load.source.shape))


def _is_axis(axes: list[Any], index: Any, extent: Any) -> bool:
    return int(extent) == 1 or any(index.same_as(axis.var) for axis in axes)


def _is_packed(own: Any, axes: list[Any], dot: FoundDot) -> bool:
    """Return whether packed weights end in axes over groups, lanes, and the elements in 4 bytes.

    The lane axis covers one panel or all lanes. The outer indices are axes, or the panel.
    """
    *others, group, lane, product = own.indices
    *outer, _, length, depth = own.source.shape
    lanes, step = axes[dot.lane].var, axes[dot.step].var
    is_whole = lane.same_as(lanes)
    expected = [step // dot.dot.depth, step % dot.dot.depth]
    if not is_whole:
        expected.append(lanes % dot.dot.lanes)
    found = [group, product, *([] if is_whole else [lane])]
    is_last = int(depth) == dot.dot.depth and (is_whole or int(length) == dot.dot.lanes)
    panel = lanes // dot.dot.lanes
    return (
        is_last
        and all(map(structural_equal, found, expected))
        and all(
            _is_axis(axes, index, extent) or (not is_whole and structural_equal(index, panel))
            for index, extent in zip(others, outer, strict=True)
        )
    )


def _place(axes: list[Any], index: Any) -> int | None:
    """Return the position of the data-parallel axis that equals an index; None if none does."""
    return next(
        (
            n
            for n, axis in enumerate(axes)
            if axis.var.same_as(index) and axis.iter_type == IterVar.DataPar
        ),
        None,
    )


def depends(indices: Any, axis: Any) -> bool:
    """Return whether any of the indices contains an axis."""
    found: list[Any] = []
    for index in indices:
        structural_walk(index, (tirx.Var, found.append))
    return any(each.same_as(axis.var) for each in found)


def simplified(indices: Any, axes: list[Any]) -> list[Any]:
    """Simplify indices as ``Schedule.reindex`` does, which removes axes of one element.

    An index that simplifies to a constant stays as is (``SimplifyNonTrivialExpr`` in TVM's
    ``schedule/utils.h``).
    """
    analyzer = Analyzer()
    for axis in axes:
        analyzer.bind(axis.var, axis.dom)
    found = [(each, analyzer.simplify(each)) for each in indices]
    return [index if isinstance(simple, IntImm) else simple for index, simple in found]


def _stride(places: list[Any], axes: list[Any], row: int, step: int, middle: int) -> int:
    """Return the stride between rows of a tile, in rows of memory; 0 if there is none."""
    own = len(places) - 2 - middle
    if own < 0 or not places[-1].same_as(axes[step].var):
        return 0
    others = [*places[:own], *places[own + 1 :]]
    if depends(others, axes[row]) or depends(places[:-1], axes[step]):
        return 0
    return growth(places[own], axes[row].var)


def _pitch(places: list[Any], axes: list[Any], row: int, step: int) -> int:
    """Return the stride between rows of a tile in one line, in elements; 0 if there is none."""
    if depends(places[:-1], axes[row]) or depends(places[:-1], axes[step]):
        return 0
    is_line = growth(places[-1], axes[step].var) == 1
    return growth(places[-1], axes[row].var) if is_line else 0


def growth(index: Any, variable: Any) -> int:
    """Return the increment of an index per step of a variable; 0 unless a positive constant."""
    after = structural_map(
        index, (tirx.Var, lambda each: each + 1 if each.same_as(variable) else each)
    )
    growth = Analyzer().simplify(after - index)
    return max(int(growth), 0) if isinstance(growth, IntImm) else 0
