# SPDX-License-Identifier: Apache-2.0
"""Finds the matrix product that a block sums, and the axes to tile.

For convolutions with few channels, such as of images, taps and channels are fused into one axis:
the taps of a line and their channels are contiguous in memory. Seven taps of four channels are a
row of 28 numbers. The row of the next pixel starts one stride later, so rows overlap.
"""

from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

from tvm_ffi import structural_equal
from tvm_ffi.structural import structural_map

from tvm import tirx
from tvm.s_tir import Schedule
from tvm.s_tir.schedule import SBlockRV
from tvm.sym import Analyzer
from tvm.target import Target
from tvm.tirx import IndexMap, IntImm, IterVar

from ..dot_products.dot_intrinsics import BYTES, HALVES
from ..dot_products.find_dot import DotUnit, FoundDot, factors_of, find_dot, has_features
from ..trees import entry_function, mentions
from .tile_shapes import FEWEST_ROWS, MOST_LANES, MULTIPLY, ROW_BYTES, TILES, largest_part

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
    - ``is_joinable``: whether the rows of all lines are equally far apart in memory, as in a map
      of contiguous lines.
    """

    dot: FoundDot
    row: int
    line: int | None
    stride: int
    pitch: int
    middle: int
    depth: int
    reads: list[int]
    is_joinable: bool = False


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
    extents = [int(axes[n].dom.extent) for n in (row, line) if n is not None]
    is_joinable = bool(line is not None and stride and _is_joinable(places, axes, line, row))
    if (prod(extents) if is_joinable else max(extents)) < FEWEST_ROWS:
        return None
    reads = [n for n, axis in enumerate(axes) if depends(places, axis)]
    if dot.lane in reads:
        return None
    return FoundMatrix(dot, row, line, stride, pitch, middle, depth, reads, is_joinable)


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
    return mentions(list(indices), axis.var)


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


def _is_joinable(places: list[Any], axes: list[Any], line: int, row: int) -> bool:
    """Return whether a line begins where the line before it ends."""
    if row != line + 1 or depends([*places[:-2], places[-1]], axes[line]):
        return False
    of_line, of_row = (growth(places[-2], axes[axis].var) for axis in (line, row))
    return of_line == of_row * int(axes[row].dom.extent)


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


_MARK = "meta_schedule.layout_rewrite_preproc"


def join_taps(schedule: Schedule, block: SBlockRV, unit: DotUnit, is_constant: bool) -> bool:
    """Fuse taps and channels into one axis, in the images and in the packed weights.

    ``is_constant``: whether the weights are packed when a model is compiled. Returns False, and
    changes nothing, if the block is not such a convolution.
    """
    node = schedule.get(block)
    axes = list(node.iter_vars)
    found = _axes(node, unit)
    if found is None:
        return False
    tap, channel, lane = found
    channels = int(axes[channel].dom.extent)
    length = int(axes[tap].dom.extent) * channels
    if length % unit.depth or length * 4 // unit.depth < FEWEST_BYTES:
        return False
    lanes = next(n for n in unit.lanes if int(axes[lane].dom.extent) % n == 0)
    dtype = str(axes[0].var.ty)
    loads = factors_of(node, unit)
    assert loads is not None
    images, weights = loads
    reads = [region.source for region in node.reads]
    place = next(n for n, source in enumerate(reads) if source.same_as(images.source))
    own = weights.indices

    def joined(*at: Any) -> list[Any]:
        others = [index for n, index in enumerate(at) if n not in (tap, channel)]
        return [*others, at[tap] * channels + at[channel]]

    def line(*at: Any) -> list[Any]:
        return [*at[:-2], at[-2] * channels + at[-1]]

    dimension = {
        name: next(n for n, index in enumerate(own) if index.same_as(axes[axis].var))
        for name, axis in (("tap", tap), ("channel", channel), ("lane", lane))
    }

    def packed(*at: Any) -> list[Any]:
        step = at[dimension["tap"]] * channels + at[dimension["channel"]]
        column = at[dimension["lane"]]
        others = [index for n, index in enumerate(at) if n not in dimension.values()]
        inner = [step // unit.depth, column % lanes, step % unit.depth]
        return [column // lanes, *others, *inner]

    copy = schedule.cache_read(block, 1 - place, "global", consumer_blocks=[block])
    index_map = IndexMap.from_func(packed, ndim=len(own), index_dtype=dtype)
    schedule.transform_layout(copy, ("write", 0), index_map)
    if is_constant:
        schedule.annotate(copy, _MARK, True)
    else:
        schedule.transform_block_layout(copy, index_map)
    pad = _only_producer(schedule, block, images.source)
    if pad is None:
        pad = schedule.cache_read(block, place, "global", consumer_blocks=[block])
    line_map = IndexMap.from_func(line, ndim=len(images.source.shape), index_dtype=dtype)
    schedule.transform_layout(pad, ("write", 0), line_map)
    block_map = IndexMap.from_func(joined, ndim=len(axes), index_dtype=dtype)
    schedule.transform_block_layout(block, block_map)
    return True


def _axes(node: Any, unit: DotUnit) -> tuple[int, int, int] | None:
    """Return the axes over taps of a line, channels and outputs; None if one is missing."""
    loads = factors_of(node, unit)
    axes, written = list(node.iter_vars), list(node.body.indices)
    if loads is None or len(written) < 2:
        return None
    images, weights = loads
    places = simplified(images.indices, axes)
    sums = [n for n, axis in enumerate(axes) if axis.iter_type == IterVar.CommReduce]
    channel = next((n for n in sums if places[-1].same_as(axes[n].var)), None)
    lane = next((n for n, axis in enumerate(axes) if written[-1].same_as(axis.var)), None)
    if channel is None or lane is None or len(places) < 2:
        return None
    if int(images.source.shape[-1]) != int(axes[channel].dom.extent):
        return None
    tap = next((n for n in sums if growth(places[-2], axes[n].var) == 1), None)
    if tap is None or depends(places[:-2], axes[tap]) or depends(places[:-1], axes[channel]):
        return None
    if not are_axes(weights, axes):
        return None
    if not all(_covers(weights, axes[n]) for n in (tap, channel, lane)):
        return None
    if not any(int(axes[lane].dom.extent) % lanes == 0 for lanes in unit.lanes):
        return None
    return tap, channel, lane


def _covers(load: Any, axis: Any) -> bool:
    """Return whether an axis covers a whole dimension of a loaded buffer."""
    return any(
        index.same_as(axis.var) and int(extent) == int(axis.dom.extent)
        for index, extent in zip(load.indices, load.source.shape, strict=True)
    )


def _only_producer(schedule: Schedule, block: SBlockRV, images: Any) -> SBlockRV | None:
    """Return the block that produces the images for this block only; None if there is none."""
    if any(images.same_as(each) for each in entry_function(schedule.mod).params):
        return None
    producers = [
        each
        for each in schedule.get_producers(block)
        if any(region.source.same_as(images) for region in schedule.get(each).writes)
    ]
    is_only = len(producers) == 1 and len(schedule.get_consumers(producers[0])) == 1
    return producers[0] if is_only else None
