# SPDX-License-Identifier: Apache-2.0
"""Fuses taps and channels into one axis, for convolutions with few channels, such as of images.

The taps of a line and their channels are contiguous in memory: seven taps of four channels are a
row of 28 numbers. The row of the next pixel starts one stride later, so rows overlap.
"""

from typing import Any

from tvm.s_tir import Schedule
from tvm.s_tir.schedule import SBlockRV
from tvm.tirx import IndexMap, IterVar

from ..dot_products.dot_units import DotUnit
from ..dot_products.find_dot import factors_of
from ..entry_function import entry_function
from .find_matrix import FEWEST_BYTES, are_axes, depends, growth, simplified

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
