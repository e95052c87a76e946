# SPDX-License-Identifier: Apache-2.0
"""Converters for ``NonMaxSuppression`` and ``RoiAlign``.

TVM's ``NonMaxSuppression`` (0.27) lists no boxes at all: their number depends on the values. The
kernel here works like ONNX Runtime's
(``onnxruntime/core/providers/cpu/object_detection/non_max_suppression.cc``): class by class, it
selects the best remaining box and drops the boxes that overlap it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tvm import relax, te, tirx
from tvm.relax.frontend.onnx import onnx_frontend
from tvm.relax.frontend.onnx.onnx_frontend import OnnxOpConverter
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from .....model.scheduled import emit_scheduled
from ..operands import UnsupportedNode, constant_input, dtype_of, shape_of, text


@dataclass(frozen=True)
class _Settings:
    """The extents and options of one node."""

    batch: int
    classes: int
    boxes: int
    most: int
    is_centered: bool


class NonMaxSuppression(OnnxOpConverter):  # type: ignore[misc, unused-ignore]
    """Converts an ONNX ``NonMaxSuppression`` with a constant maximum number of boxes."""

    @classmethod
    def _impl_v10(cls, bb: Any, inputs: Sequence[Any], attr: dict[str, Any], params: Any) -> Any:
        most = constant_input(inputs, 2, "max_output_boxes_per_class")
        limits = [
            relax.const(np.array([least], np.float32), "float32")
            if value is None
            else bb.emit(relax.op.reshape(value, [1]))
            for value, least in ((inputs[3], 0.0), (inputs[4], -np.inf))
        ]
        batch, classes, boxes = shape_of(inputs[1])
        settings = _Settings(
            batch,
            classes,
            boxes,
            0 if most is None else min(int(most.item()), boxes),
            bool(attr.get("center_point_box", 0)),
        )
        if settings.most <= 0:
            return relax.const(np.zeros((0, 3), np.int64), "int64")
        found = emit_scheduled(
            bb,
            lambda *tensors: _select(settings, tensors),
            [*inputs[:2], *limits],
            "non_max_suppression",
        )
        rows, count = (bb.emit(relax.TupleGetItem(found, n)) for n in range(2))
        begin, strides = (relax.const(np.full(2, value, np.int64), "int64") for value in (0, 1))
        end = bb.emit(relax.op.concat([count, relax.const(np.array([3]), "int64")], axis=0))
        return bb.emit(relax.op.dynamic_strided_slice(rows, begin, end, strides))


class RoiAlign(onnx_frontend.RoiAlign):  # type: ignore[misc, name-defined, unused-ignore]
    """Converts an ONNX ``RoiAlign``: it scales before the half-pixel shift, and TVM scales after.

    Boxes without area give 0. If the box size sets the number of samples, TVM's kernel takes no
    samples of such a box and writes nothing.
    """

    @classmethod
    def _impl(
        cls, bb: Any, inputs: Any, attr: dict[str, Any], params: Any, default_mode: bytes
    ) -> Any:
        if text(attr, "mode", "avg") != "avg":
            # TVM takes the largest sample, and ONNX the largest weighted corner of the samples.
            raise UnsupportedNode(f"its mode is {text(attr, 'mode', 'avg')!r}: expected 'avg'")
        scale = relax.const(attr.get("spatial_scale", 1.0), dtype_of(inputs[1]))
        inputs[1] = bb.emit(relax.op.multiply(inputs[1], scale))
        attr = {**attr, "spatial_scale": 1.0}
        pooled = super()._impl(bb, inputs, attr, params, default_mode)
        if attr.get("sampling_ratio", 0) > 0:
            return pooled
        mode = attr.get("coordinate_transformation_mode", default_mode)
        if mode in ("output_half_pixel", b"output_half_pixel"):
            return pooled  # Boxes have at least a pixel.
        # Subtract the half pixel as the kernel does: rounding may leave a small box without area.
        half = relax.const(0.5, dtype_of(inputs[1]))
        corners = bb.emit(relax.op.subtract(inputs[1], half))
        low, high = (bb.emit(relax.op.strided_slice(corners, [1], [n], [n + 2])) for n in (0, 2))
        is_long = bb.emit(relax.op.astype(relax.op.greater(high, low), "int32"))
        has_area = bb.emit(relax.op.astype(relax.op.min(is_long, axis=1), "bool"))
        of_boxes = bb.emit(relax.op.reshape(has_area, (-1, 1, 1, 1)))
        nothing = relax.const(0, dtype_of(inputs[0]))
        return bb.emit(relax.op.where(of_boxes, bb.emit(pooled), nothing))


@dataclass(frozen=True)
class _Inputs:
    """The buffers of the inputs."""

    boxes: Any
    scores: Any
    overlap: Any
    score: Any


def _select(settings: _Settings, tensors: Sequence[te.Tensor]) -> list[te.Tensor]:
    """The selected boxes, (rows, 3), and the number of valid rows, (1,)."""
    groups = settings.batch * settings.classes
    found = te.extern(
        [(groups * settings.most, 3), (1,)],
        list(tensors),
        lambda inputs, outputs: _statements(settings, _Inputs(*inputs), *outputs),
        dtype=["int64", "int64"],
        name="select",
    )
    return list(found)


def _statements(settings: _Settings, inputs: _Inputs, rows: Any, count: Any) -> Any:
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
    settings: _Settings, group: Any, inputs: _Inputs, left: Any, chosen: Any, counts: Any
) -> None:
    """Select the boxes of one class of one image."""
    batch, number = group // settings.classes, group % settings.classes
    nothing = tirx.const(-np.inf, "float32")
    best = T.alloc_buffer((1,), "int64", scope="local")
    T.buffer_store(counts, tirx.const(0, "int64"), [group])
    with T.serial(0, settings.boxes) as box:
        score = inputs.scores[batch, number, box]
        T.buffer_store(left, tirx.Select(score > inputs.score[0], score, nothing), [group, box])
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
                    with T.If(_overlap(settings, inputs, batch, best[0], box)), T.Then():
                        T.buffer_store(left, nothing, [group, box])
                T.buffer_store(left, nothing, [group, best[0]])


def _overlap(settings: _Settings, inputs: _Inputs, batch: Any, one: Any, other: Any) -> Any:
    """True if the intersection over union of two boxes exceeds the threshold."""
    zero = tirx.const(0.0, "float32")
    bounds, areas = [], []
    for box in (one, other):
        corners = _corners(settings, [inputs.boxes[batch, box, n] for n in range(4)])
        bounds.append(corners)
        areas.append((corners[2] - corners[0]) * (corners[3] - corners[1]))
    sides = [
        tirx.max(
            tirx.min(bounds[0][n + 2], bounds[1][n + 2]) - tirx.max(bounds[0][n], bounds[1][n]),
            zero,
        )
        for n in range(2)
    ]
    common = sides[0] * sides[1]
    return tirx.all(
        common > zero,
        areas[0] > zero,
        areas[1] > zero,
        common / (areas[0] + areas[1] - common) > inputs.overlap[0],
    )


def _corners(settings: _Settings, box: Sequence[Any]) -> list[Any]:
    """The smaller and then the larger coordinates of a box."""
    if settings.is_centered:
        half = tirx.const(0.5, "float32")
        low = [box[n] - half * box[n + 2] for n in range(2)]
        return [*low, *(box[n] + half * box[n + 2] for n in range(2))]
    low = [tirx.min(box[n], box[n + 2]) for n in range(2)]
    return [*low, *(tirx.max(box[n], box[n + 2]) for n in range(2))]
