# SPDX-License-Identifier: Apache-2.0
"""Converters for ``Resize`` and ``Upsample``.

TVM's converter (0.27) computes scales from the rounded extents, and rounds coordinates between two
elements in its own way. TVM's operator is used where its result is the same, because graph passes
know its layouts. Elsewhere the elements and weights are constants, axis by axis.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tvm import relax, te, topi
from tvm.relax.frontend.onnx.onnx_frontend import OnnxOpConverter

from ..operands import UnsupportedNode, constant_input, dtype_of, shape_of, text
from .interpolation import Axis, Method, Taps, taps

_MOST_TAPS = 8
"""Maximum number of elements that are read one by one. More make a product with a matrix."""


class Resize(OnnxOpConverter):  # type: ignore[misc, unused-ignore]
    """Converts an ONNX ``Resize`` of any operator set."""

    @classmethod
    def _impl_v10(cls, bb: Any, inputs: Sequence[Any], attr: dict[str, Any], params: Any) -> Any:
        scales = constant_input(inputs, 1, "scales")
        method = Method(text(attr, "mode", "nearest"), "asymmetric", "simple")
        return _resize(bb, inputs[0], _axes(inputs[0], attr, None, scales, None), method, 0.0)

    @classmethod
    def _impl_v11(cls, bb: Any, inputs: Sequence[Any], attr: dict[str, Any], params: Any) -> Any:
        roi = constant_input(inputs, 1, "roi")
        scales = constant_input(inputs, 2, "scales")
        sizes = constant_input(inputs, 3, "sizes")
        method = Method(
            text(attr, "mode", "nearest"),
            text(attr, "coordinate_transformation_mode", "half_pixel"),
            text(attr, "nearest_mode", "round_prefer_floor"),
            float(attr.get("cubic_coeff_a", -0.75)),
            bool(attr.get("exclude_outside", 0)),
            bool(attr.get("antialias", 0)),
        )
        axes = _axes(inputs[0], attr, roi, scales, sizes)
        return _resize(bb, inputs[0], axes, method, float(attr.get("extrapolation_value", 0.0)))


class Upsample(OnnxOpConverter):  # type: ignore[misc, unused-ignore]
    """Converts an ONNX ``Upsample`` of any operator set."""

    @classmethod
    def _impl_v1(cls, bb: Any, inputs: Sequence[Any], attr: dict[str, Any], params: Any) -> Any:
        scales = constant_input(inputs, 1, "scales")
        if scales is None:
            scales = np.array(attr["scales"], np.float32)
        mode = {"bilinear": "linear"}.get(
            text(attr, "mode", "nearest"), text(attr, "mode", "nearest")
        )
        method = Method(mode, "asymmetric", "floor")
        return _resize(bb, inputs[0], _axes(inputs[0], attr, None, scales, None), method, 0.0)


def _axes(
    data: Any,
    attr: dict[str, Any],
    roi: np.ndarray[Any, Any] | None,
    scales: np.ndarray[Any, Any] | None,
    sizes: np.ndarray[Any, Any] | None,
) -> list[Axis]:
    """All axes of the input, resized or not."""
    shape = shape_of(data)
    rank = len(shape)
    chosen = [int(axis) % rank for axis in attr.get("axes", range(rank))]
    if scales is None or scales.size == 0:
        if sizes is None or sizes.size == 0:
            raise UnsupportedNode("it has neither scales nor sizes")
        axes = dict(zip(chosen, _sized(shape, chosen, sizes, attr), strict=True))
    else:
        axes = {
            axis: Axis(shape[axis], int(np.floor(np.float32(shape[axis]) * scale)), float(scale))
            for axis, scale in zip(chosen, scales.astype(np.float32), strict=True)
        }
    if roi is not None and roi.size == 2 * len(chosen):
        for place, axis in enumerate(chosen):
            old = axes[axis]
            start, end = float(roi[place]), float(roi[len(chosen) + place])
            axes[axis] = Axis(old.length, old.resized, old.scale, start, end)
    return [axes.get(axis, Axis(shape[axis], shape[axis], 1.0)) for axis in range(rank)]


def _sized(
    shape: Sequence[int], chosen: Sequence[int], sizes: np.ndarray[Any, Any], attr: dict[str, Any]
) -> list[Axis]:
    """The axes with given sizes. A policy may keep their aspect ratio."""
    policy = text(attr, "keep_aspect_ratio_policy", "stretch")
    wanted = [int(size) for size in sizes]
    ratios = [np.float32(size) / np.float32(shape[axis]) for size, axis in zip(wanted, chosen)]
    if policy != "stretch":
        ratio = min(ratios) if policy == "not_larger" else max(ratios)
        wanted = [int(np.floor(ratio * np.float32(shape[axis]) + 0.5)) for axis in chosen]
        ratios = [ratio] * len(chosen)
    return [
        Axis(shape[axis], size, float(ratio))
        for axis, size, ratio in zip(chosen, wanted, ratios, strict=True)
    ]


def _resize(bb: Any, data: Any, axes: Sequence[Axis], method: Method, outside: float) -> Any:
    is_region = method.coordinates == "tf_crop_and_resize"
    if not is_region and all(axis.resized == axis.length for axis in axes):
        return data  # As in ONNX Runtime, whatever the scales are.
    try:
        found = {
            number: taps(axis, method)
            for number, axis in enumerate(axes)
            if axis.resized != axis.length
            or axis.scale != 1
            or method.coordinates == "tf_crop_and_resize"
        }
    except ValueError as error:
        raise UnsupportedNode(f"its {error}") from error
    if len(axes) == 4 and dtype_of(data) == "float32":
        same = _tvms(data, axes, method, found)
        if same is not None:
            return bb.emit(same)
    result, dtype = data, dtype_of(data)
    is_whole = not dtype.startswith("float") and method.mode != "nearest"
    if is_whole:
        result = bb.emit(relax.op.astype(result, "float32"))
    # With antialias, ONNX Runtime takes the last axis first, and rounds to integers after each.
    is_antialias = is_whole and method.antialias
    for number, each in reversed(found.items()) if is_antialias else found.items():
        result = _along(bb, result, number, each)
        if is_antialias:
            result = _whole(bb, result, dtype, method)
    if is_whole:
        result = _whole(bb, result, dtype, method)
        result = bb.emit(relax.op.astype(result, dtype))
    if method.coordinates == "tf_crop_and_resize":
        result = _with_outside(bb, result, found, outside)
    return result


def _tvms(data: Any, axes: Sequence[Axis], method: Method, found: dict[int, Taps]) -> Any | None:
    """TVM's operator, if its result is the same."""
    if set(found) - {2, 3} or method.antialias or method.exclude_outside or not found:
        return None
    size = [axis.resized for axis in axes[2:]]
    if method.mode == "nearest":
        floors = all(
            np.array_equal(
                each.indices[:, 0],
                np.arange(axes[number].resized) * axes[number].length // axes[number].resized,
            )
            for number, each in found.items()
        )
        known = floors and method.coordinates != "tf_crop_and_resize"
        options = {"method": "nearest_neighbor", "coordinate_transformation_mode": "asymmetric"}
        options["rounding_method"] = "floor"
    else:
        whole = all(axis.scale * axis.length == axis.resized for axis in axes)
        modes = ("half_pixel", "align_corners", "asymmetric")
        known = method.mode == "linear" and whole and method.coordinates in modes
        options = {"method": "linear", "coordinate_transformation_mode": method.coordinates}
    if not known:
        return None
    return relax.op.image.resize2d(data, size=relax.ShapeExpr(size), layout="NCHW", **options)


def _along(bb: Any, data: Any, axis: int, found: Taps) -> Any:
    """Interpolate along an axis."""
    count = found.indices.shape[1]
    if count == 1:
        return bb.emit(relax.op.take(data, relax.const(found.indices[:, 0], "int32"), axis))
    if count > _MOST_TAPS:
        return _matrix_along(bb, data, axis, found)
    dtype = dtype_of(data)

    def interpolate(x: te.Tensor, indices: te.Tensor, weights: te.Tensor) -> te.Tensor:
        shape = [*x.shape[:axis], found.indices.shape[0], *x.shape[axis + 1 :]]

        def element(*place: Any) -> Any:
            total = None
            for tap in range(count):
                source = (*place[:axis], indices[place[axis], tap], *place[axis + 1 :])
                part = x[source] * weights[place[axis], tap]
                total = part if total is None else total + part
            return total

        return te.compute(shape, element, name="interpolate", tag=topi.tag.INJECTIVE)

    constants = [
        relax.const(found.indices, "int32"),
        relax.const(found.weights.astype(dtype), dtype),
    ]
    return bb.emit_te(interpolate, data, *constants, primfunc_name_hint="interpolate")


def _whole(bb: Any, data: Any, dtype: str, method: Method) -> Any:
    """Round interpolated values to integers. ONNX Runtime truncates them in linear mode."""
    if method.mode != "linear" or method.antialias:
        half = relax.const(0.5, "float32")
        up = bb.emit(relax.op.floor(relax.op.add(relax.op.abs(data), half)))
        data = bb.emit(relax.op.multiply(relax.op.sign(data), up))
    limits = np.iinfo(dtype)
    if limits.bits < 32:
        data = bb.emit(relax.op.clip(data, limits.min, limits.max))
    return data


def _matrix_along(bb: Any, data: Any, axis: int, found: Taps) -> Any:
    """Interpolate along an axis by a product with a matrix."""
    rank, dtype = len(shape_of(data)), dtype_of(data)
    matrix = np.zeros((shape_of(data)[axis], len(found.indices)), np.float64)
    columns = np.broadcast_to(np.arange(len(found.indices))[:, None], found.indices.shape)
    np.add.at(matrix, (found.indices, columns), found.weights)
    order = [*range(axis), *range(axis + 1, rank), axis]
    moved = bb.emit(relax.op.permute_dims(data, order))
    product = bb.emit(relax.op.matmul(moved, relax.const(matrix.astype(dtype), dtype)))
    return bb.emit(relax.op.permute_dims(product, [int(n) for n in np.argsort(order)]))


def _with_outside(bb: Any, data: Any, found: dict[int, Taps], outside: float) -> Any:
    """Put a value where the coordinate is outside an axis."""
    rank = len(shape_of(data))
    inside = np.ones((1,) * rank, bool)
    for number, each in found.items():
        inside = inside & each.inside.reshape([-1 if n == number else 1 for n in range(rank)])
    if inside.all():
        return data
    value = relax.const(outside, dtype_of(data))
    return bb.emit(relax.op.where(relax.const(inside, "bool"), data, value))
