# SPDX-License-Identifier: Apache-2.0
"""Converters for ``NonMaxSuppression`` and ``RoiAlign``.

TVM's ``NonMaxSuppression`` (0.27) lists no boxes at all: their number depends on the values. The
kernel here works like ONNX Runtime's
(``onnxruntime/core/providers/cpu/object_detection/non_max_suppression.cc``): class by class, it
selects the best remaining box and drops the boxes that overlap it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from tvm import te, tirx
from tvm.relax import op
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from .....model.scheduled import emit_scheduled
from ..operands import (
    Attributes,
    UnsupportedNode,
    constant,
    constant_input,
    converts,
    fields,
    integers,
    number,
    part,
    shape_of,
    text,
    tvms,
)


@dataclass(frozen=True)
class _Settings:
    """The extents and options of one node."""

    batch: int
    classes: int
    boxes: int
    most: int
    is_centered: bool


@converts("NonMaxSuppression")
def non_max_suppression(bb: Any, inputs: Any, attr: Attributes) -> Any:
    """Select boxes, up to a constant maximum number."""
    most = constant_input(inputs, 2, "max_output_boxes_per_class")
    limits = [
        constant([least], "float32") if value is None else bb.emit(op.reshape(value, [1]))
        for value, least in ((inputs[3], 0.0), (inputs[4], -np.inf))
    ]
    batch, classes, boxes = shape_of(inputs[1])
    count = 0 if most is None else min(int(most.item()), boxes)
    if count <= 0:
        return integers(np.zeros((0, 3)))
    settings = _Settings(batch, classes, boxes, count, bool(attr.get("center_point_box", 0)))
    found = emit_scheduled(
        bb,
        lambda *tensors: _select(settings, tensors),
        [*inputs[:2], *limits],
        "non_max_suppression",
    )
    rows, length = fields(bb, found, 2)
    begin, strides = (integers(np.full(2, value)) for value in (0, 1))
    end = bb.emit(op.concat([length, integers([3])], axis=0))
    return bb.emit(op.dynamic_strided_slice(rows, begin, end, strides))


def _roi_align(default: str, bb: Any, inputs: Any, attr: Attributes) -> Any:
    """Scale before the half-pixel shift: TVM scales after.

    Boxes without area give 0. If the box size sets the number of samples, TVM's kernel takes no
    samples of such a box and writes nothing.
    """
    data, boxes, *rest = inputs
    if text(attr, "mode", "avg") != "avg":
        # TVM takes the largest sample, and ONNX the largest weighted corner of the samples.
        raise UnsupportedNode(f"its mode is {text(attr, 'mode', 'avg')!r}: expected 'avg'")
    boxes = bb.emit(boxes * number(attr.get("spatial_scale", 1.0), boxes))
    pooled = tvms("RoiAlign", bb, [data, boxes, *rest], {**attr, "spatial_scale": 1.0})
    mode = text(attr, "coordinate_transformation_mode", default)
    if attr.get("sampling_ratio", 0) > 0 or mode == "output_half_pixel":
        return pooled  # With the latter, boxes have at least a pixel.
    # Subtract the half pixel as the kernel does: rounding may leave a small box without area.
    corners = bb.emit(boxes - number(0.5, boxes))
    low, high = (bb.emit(part(corners, 1, n, n + 2)) for n in (0, 2))
    has_area = bb.emit(op.min((high > low).astype("int32"), axis=1).astype("bool"))
    of_boxes = bb.emit(op.reshape(has_area, (-1, 1, 1, 1)))
    return bb.emit(op.where(of_boxes, bb.emit(pooled), number(0, data)))


converts("RoiAlign")(partial(_roi_align, "output_half_pixel"))
converts("RoiAlign", since=16)(partial(_roi_align, "half_pixel"))


def _select(settings: _Settings, tensors: Sequence[te.Tensor]) -> list[te.Tensor]:
    """The selected boxes, (rows, 3), and the number of valid rows, (1,).

    ``tensors``: boxes, scores, and the thresholds of overlap and score, (1,).
    """
    found = te.extern(
        [(settings.batch * settings.classes * settings.most, 3), (1,)],
        list(tensors),
        lambda inputs, outputs: _statements(settings, inputs, *outputs),
        dtype=["int64", "int64"],
        name="select",
    )
    return list(found)


def _statements(settings: _Settings, inputs: Sequence[Any], rows: Any, count: Any) -> Any:
    groups = settings.batch * settings.classes
    with IRBuilder() as builder:
        with T.attr(0, "selection", 1):  # The builder requires a single statement.
            left = T.alloc_buffer((groups, settings.boxes), "float32")
            chosen = T.alloc_buffer((groups, settings.most), "int64")
            counts = T.alloc_buffer((groups,), "int64")
            with T.parallel(0, groups) as group:
                _one_class(settings, group, inputs, left, chosen, counts)
            T.buffer_store(count, tirx.const(0, "int64"), [0])
            with T.serial(0, groups) as group:
                with T.serial(0, settings.most) as n:
                    with T.If(n < counts[group].astype("int32")), T.Then():
                        batch, number = group // settings.classes, group % settings.classes
                        place = (batch.astype("int64"), number.astype("int64"), chosen[group, n])
                        for column, value in enumerate(place):
                            T.buffer_store(rows, value, [count[0], column])
                        T.buffer_store(count, count[0] + 1, [0])
        return builder.get()


def _one_class(
    settings: _Settings, group: Any, inputs: Sequence[Any], left: Any, chosen: Any, counts: Any
) -> None:
    """Select the boxes of one class of one image."""
    boxes, scores, overlap, least = inputs
    batch, number = group // settings.classes, group % settings.classes
    nothing = tirx.const(-np.inf, "float32")
    best = T.alloc_buffer((1,), "int64", scope="local")
    T.buffer_store(counts, tirx.const(0, "int64"), [group])
    with T.serial(0, settings.boxes) as box:
        score = scores[batch, number, box]
        T.buffer_store(left, tirx.Select(score > least[0], score, nothing), [group, box])
    with T.serial(0, settings.most) as n:
        # After a step that selects no box, no box is left.
        with T.If(counts[group] == n.astype("int64")), T.Then():
            T.buffer_store(best, tirx.const(0, "int64"), [0])
            with T.serial(0, settings.boxes) as box:
                with T.If(left[group, box] > left[group, best[0]]), T.Then():
                    T.buffer_store(best, box.astype("int64"), [0])
            with T.If(left[group, best[0]] > nothing), T.Then():
                T.buffer_store(chosen, best[0], [group, n])
                T.buffer_store(counts, counts[group] + 1, [group])
                with T.serial(0, settings.boxes) as box:
                    pair = [[boxes[batch, at, n] for n in range(4)] for at in (best[0], box)]
                    with T.If(_overlap(settings, pair, overlap[0])), T.Then():
                        T.buffer_store(left, nothing, [group, box])
                T.buffer_store(left, nothing, [group, best[0]])


def _overlap(settings: _Settings, pair: Sequence[Sequence[Any]], most: Any) -> Any:
    """True if the intersection over union of two boxes exceeds the threshold."""
    zero = tirx.const(0.0, "float32")
    one, other = bounds = [_corners(settings, box) for box in pair]
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in bounds]
    sides = [
        tirx.max(tirx.min(one[n + 2], other[n + 2]) - tirx.max(one[n], other[n]), zero)
        for n in range(2)
    ]
    common = sides[0] * sides[1]
    is_more = common / (areas[0] + areas[1] - common) > most
    return tirx.all(common > zero, areas[0] > zero, areas[1] > zero, is_more)


def _corners(settings: _Settings, box: Sequence[Any]) -> list[Any]:
    """The smaller and then the larger coordinates of a box."""
    if settings.is_centered:
        half = tirx.const(0.5, "float32")
        low = [box[n] - half * box[n + 2] for n in range(2)]
        return [*low, *(box[n] + half * box[n + 2] for n in range(2))]
    low = [tirx.min(box[n], box[n + 2]) for n in range(2)]
    return [*low, *(tirx.max(box[n], box[n + 2]) for n in range(2))]
