# SPDX-License-Identifier: Apache-2.0
"""Converters for ``Resize`` and ``Upsample``.

TVM's converter (0.27) computes scales from the rounded extents, and rounds coordinates between two
elements in its own way. TVM's operator is used where its result is the same, because graph passes
know its layouts. Elsewhere the elements and weights are constants, axis by axis. Their equations
are from ONNX's operator ``Resize``, in float32 as in ONNX Runtime
(``onnxruntime/core/providers/cpu/tensor/upsamplebase.h``): where a coordinate lies between two
elements, the rounding decides.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tvm import relax, te, topi
from tvm.relax import op

from ..operands import (
    Attributes,
    UnsupportedNode,
    constant,
    constant_input,
    converts,
    dtype_of,
    number,
    shape_of,
    text,
)

Array = np.ndarray[Any, Any]

_TIE = 1e-6
"""A coordinate at most this far from the middle of two elements counts as the middle. This gave
ONNX Runtime's elements for all of 896 axes (``tests/frontends/onnx/test_interpolation.py`` has
some)."""


@dataclass(frozen=True)
class Axis:
    """One axis of a ``Resize``.

    ``length``, ``resized``: extents before and after. ``scale``: the node's scale, or the ratio of
    the extents. ``start``, ``end``: the region of interest, as fractions of the axis.
    """

    length: int
    resized: int
    scale: float
    start: float = 0.0
    end: float = 1.0


@dataclass(frozen=True)
class Method:
    """The interpolation of a ``Resize``.

    - ``mode``: "nearest", "linear" or "cubic".
    - ``coordinates``: ONNX's ``coordinate_transformation_mode``.
    - ``nearest``: ONNX's ``nearest_mode``, or "simple": the rounding of operator set 10, which has
      no such attribute.
    - ``cubic``: ONNX's ``cubic_coeff_a``.
    - ``exclude_outside``: whether elements outside the axis have no weight. Otherwise the elements
      at its ends replace them.
    - ``antialias``: whether each input element that an output element covers has a weight.
    """

    mode: str = "nearest"
    coordinates: str = "half_pixel"
    nearest: str = "round_prefer_floor"
    cubic: float = -0.75
    exclude_outside: bool = False
    antialias: bool = False


@dataclass(frozen=True)
class Taps:
    """The input elements that each output element reads along an axis, and their weights.

    ``indices``: (resized, taps): the input elements. ``weights``: (resized, taps): their weights,
    float32. ``inside``: (resized,): whether the coordinate is on the axis, for
    ``tf_crop_and_resize``.
    """

    indices: Array
    weights: Array
    inside: Array


def coordinates(axis: Axis, mode: str) -> Any:
    """The input coordinates of all output elements along an axis, float32.

    Raises ``ValueError``, which names the mode, if ONNX has no such mode.
    """
    one = np.float32
    x = np.arange(axis.resized, dtype=one)
    scale, last = one(axis.scale), one(axis.length - 1)
    half = (x + one(0.5)) / scale - one(0.5)
    if mode == "half_pixel":
        return half
    if mode == "asymmetric":
        return x / scale
    if mode == "pytorch_half_pixel":
        return half if axis.resized > 1 else np.zeros_like(x)
    if mode == "tf_half_pixel_for_nn":
        return (x + one(0.5)) / scale
    if mode == "align_corners":
        return x * last / one(axis.resized - 1) if axis.resized > 1 else np.zeros_like(x)
    if mode == "half_pixel_symmetric":
        adjustment = one(axis.resized) / (scale * one(axis.length))
        center = one(axis.length) / one(2)
        return center * (one(1) - adjustment) + half
    if mode == "tf_crop_and_resize":
        start, end = one(axis.start), one(axis.end)
        if axis.resized == 1:
            return np.full_like(x, one(0.5) * (start + end) * last)
        return start * last + x * (end - start) * last / one(axis.resized - 1)
    raise ValueError(f"coordinate_transformation_mode is {mode!r}")


def taps(axis: Axis, method: Method) -> Taps:
    """The input elements that a ``Resize`` reads along an axis, and their weights.

    Raises ``ValueError``, which names the mode, if ONNX has no such mode.
    """
    where = coordinates(axis, method.coordinates)
    inside = (where >= 0) & (where <= axis.length - 1)
    if method.mode == "nearest":
        indices = _nearest(where, method.nearest, axis.scale < 1)[:, None]
        weights = np.ones(indices.shape, np.float32)
    elif method.mode in ("linear", "cubic"):
        indices, weights = _weighted(where, axis, method)
    else:
        raise ValueError(f"mode is {method.mode!r}")
    return Taps(np.clip(indices, 0, axis.length - 1).astype(np.int32), weights, inside)


def _nearest(where: Array, mode: str, is_smaller: bool) -> Array:
    """Round coordinates to the elements next to them."""
    half = np.abs(where - np.floor(where) - np.float32(0.5)) <= _TIE
    nearest = np.where(where - np.floor(where) > 0.5, np.ceil(where), np.floor(where))
    modes = {
        "round_prefer_floor": np.where(half, np.floor(where), nearest),
        "round_prefer_ceil": np.where(half, np.ceil(where), nearest),
        "floor": np.floor(where),
        "ceil": np.ceil(where),
        "simple": np.ceil(where) if is_smaller else np.floor(where),
    }
    if mode not in modes:
        raise ValueError(f"nearest_mode is {mode!r}")
    return modes[mode].astype(np.int64)


def _weighted(where: Array, axis: Axis, method: Method) -> tuple[Array, Array]:
    """The elements around coordinates and their weights."""
    shrink = min(axis.scale, 1.0) if method.antialias else 1.0
    reach = 1 if method.mode == "linear" else 2
    first = np.floor(where)
    # The stretched kernel reaches more elements on either side, as it may begin anywhere.
    spread = int(np.ceil(reach / shrink)) - reach
    offsets = np.arange(-reach + 1 - spread, reach + 1 + spread)
    if method.mode == "linear" and not method.antialias:
        # Outside the axis, only its end elements count.
        where = np.clip(where, 0, axis.length - 1)
        first = np.floor(where)
    distances = (offsets[None, :] - (where - first)[:, None]).astype(np.float64) * shrink
    if method.mode == "linear":
        weights = np.maximum(0.0, 1.0 - np.abs(distances))
    else:
        weights = _cubic(distances, method.cubic)
    indices = first[:, None].astype(np.int64) + offsets[None, :]
    if method.exclude_outside:
        weights = np.where((indices >= 0) & (indices < axis.length), weights, 0.0)
    if method.exclude_outside or method.antialias:
        weights = weights / weights.sum(axis=1, keepdims=True)
    return indices, weights.astype(np.float32)


def _cubic(distance: Array, a: float) -> Any:
    """Keys' cubic convolution kernel."""
    x = np.abs(distance)
    near = (a + 2) * x**3 - (a + 3) * x**2 + 1
    far = a * x**3 - 5 * a * x**2 + 8 * a * x - 4 * a
    return np.where(x <= 1, near, np.where(x < 2, far, 0.0))


_MOST_TAPS = 8
"""Maximum number of elements that are read one by one. More make a product with a matrix."""

_OF_REGION = "tf_crop_and_resize"


@converts("Resize")
def resize_of_scales(bb: Any, inputs: Any, attr: Attributes) -> Any:
    """Before version 11, there are scales only."""
    scales = constant_input(inputs, 1, "scales")
    method = Method(text(attr, "mode", "nearest"), "asymmetric", "simple")
    return _resize(bb, inputs[0], _axes(inputs[0], attr, None, scales, None), method, 0.0)


@converts("Resize", since=11)
def resize(bb: Any, inputs: Any, attr: Attributes) -> Any:
    """Resize to scales or sizes."""
    roi, scales, sizes = (
        constant_input(inputs, n, name) for n, name in enumerate(("roi", "scales", "sizes"), 1)
    )
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


@converts("Upsample")
def upsample(bb: Any, inputs: Any, attr: Attributes) -> Any:
    """The older operator."""
    scales = constant_input(inputs, 1, "scales")
    if scales is None:
        scales = np.array(attr["scales"], np.float32)
    mode = text(attr, "mode", "nearest")
    method = Method("linear" if mode == "bilinear" else mode, "asymmetric", "floor")
    return _resize(bb, inputs[0], _axes(inputs[0], attr, None, scales, None), method, 0.0)


def _axes(
    data: Any, attr: Attributes, roi: Array | None, scales: Array | None, sizes: Array | None
) -> list[Axis]:
    """All axes of the input, resized or not."""
    shape = shape_of(data)
    rank = len(shape)
    chosen = [int(axis) % rank for axis in attr.get("axes", range(rank))]
    if scales is not None and scales.size:
        axes = {
            axis: Axis(shape[axis], int(np.floor(np.float32(shape[axis]) * scale)), float(scale))
            for axis, scale in zip(chosen, scales.astype(np.float32), strict=True)
        }
    elif sizes is not None and sizes.size:
        axes = dict(zip(chosen, _sized(shape, chosen, sizes, attr), strict=True))
    else:
        raise UnsupportedNode("it has neither scales nor sizes")
    if roi is not None and roi.size == 2 * len(chosen):
        for axis, start, end in zip(chosen, *np.split(roi, 2)):
            axes[axis] = replace(axes[axis], start=float(start), end=float(end))
    return [axes.get(axis, Axis(shape[axis], shape[axis], 1.0)) for axis in range(rank)]


def _sized(
    shape: Sequence[int], chosen: Sequence[int], sizes: Array, attr: Attributes
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
    is_region = method.coordinates == _OF_REGION
    if not is_region and all(axis.resized == axis.length for axis in axes):
        return data  # As in ONNX Runtime, whatever the scales are.
    try:
        found = {
            n: taps(axis, method)
            for n, axis in enumerate(axes)
            if axis.resized != axis.length or axis.scale != 1 or is_region
        }
    except ValueError as error:
        raise UnsupportedNode(f"its {error}") from error
    dtype = dtype_of(data)
    if len(axes) == 4 and dtype == "float32":
        same = _tvms(data, axes, method, found)
        if same is not None:
            return bb.emit(same)
    is_whole = not dtype.startswith("float") and method.mode != "nearest"
    result = bb.emit(data.astype("float32")) if is_whole else data
    # With antialias, ONNX Runtime takes the last axis first, and rounds to integers after each.
    is_antialias = is_whole and method.antialias
    for n, each in reversed(found.items()) if is_antialias else found.items():
        result = _along(bb, result, n, each)
        if is_antialias:
            result = _whole(bb, result, dtype, method)
    if is_whole:
        result = bb.emit(_whole(bb, result, dtype, method).astype(dtype))
    return _with_outside(bb, result, found, outside) if is_region else result


def _tvms(data: Any, axes: Sequence[Axis], method: Method, found: dict[int, Taps]) -> Any | None:
    """TVM's operator, if its result is the same."""
    if set(found) - {2, 3} or method.antialias or method.exclude_outside or not found:
        return None
    if method.mode == "nearest":
        known = method.coordinates != _OF_REGION and all(
            np.array_equal(
                each.indices[:, 0], np.arange(axes[n].resized) * axes[n].length // axes[n].resized
            )
            for n, each in found.items()
        )
        options = {"method": "nearest_neighbor", "coordinate_transformation_mode": "asymmetric"}
        options["rounding_method"] = "floor"
    else:
        whole = all(axis.scale * axis.length == axis.resized for axis in axes)
        modes = ("half_pixel", "align_corners", "asymmetric")
        known = method.mode == "linear" and whole and method.coordinates in modes
        options = {"method": "linear", "coordinate_transformation_mode": method.coordinates}
    size = relax.ShapeExpr([axis.resized for axis in axes[2:]])
    return op.image.resize2d(data, size=size, layout="NCHW", **options) if known else None


def _along(bb: Any, data: Any, axis: int, found: Taps) -> Any:
    """Interpolate along an axis."""
    count = found.indices.shape[1]
    if count == 1:
        return bb.emit(op.take(data, constant(found.indices[:, 0], "int32"), axis))
    if count > _MOST_TAPS:
        return _matrix_along(bb, data, axis, found)

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

    constants = constant(found.indices, "int32"), constant(found.weights, dtype_of(data))
    return bb.emit_te(interpolate, data, *constants, primfunc_name_hint="interpolate")


def _whole(bb: Any, data: Any, dtype: str, method: Method) -> Any:
    """Round interpolated values to integers. ONNX Runtime truncates them in linear mode."""
    if method.mode != "linear" or method.antialias:
        up = bb.emit(op.floor(op.abs(data) + relax.const(0.5, "float32")))
        data = bb.emit(op.sign(data) * up)
    limits = np.iinfo(dtype)
    if limits.bits < 32:
        data = bb.emit(op.clip(data, limits.min, limits.max))
    return data


def _matrix_along(bb: Any, data: Any, axis: int, found: Taps) -> Any:
    """Interpolate along an axis by a product with a matrix."""
    rank = len(shape_of(data))
    matrix = np.zeros((shape_of(data)[axis], len(found.indices)), np.float64)
    columns = np.broadcast_to(np.arange(len(found.indices))[:, None], found.indices.shape)
    np.add.at(matrix, (found.indices, columns), found.weights)
    order = [*range(axis), *range(axis + 1, rank), axis]
    moved = op.permute_dims(data, order)
    product = op.matmul(moved, constant(matrix, dtype_of(data)))
    return bb.emit(op.permute_dims(product, [int(n) for n in np.argsort(order)]))


def _with_outside(bb: Any, data: Any, found: dict[int, Taps], outside: float) -> Any:
    """Put a value where the coordinate is outside an axis."""
    rank = len(shape_of(data))
    inside = np.ones((1,) * rank, bool)
    for axis, each in found.items():
        inside = inside & each.inside.reshape([-1 if n == axis else 1 for n in range(rank)])
    if inside.all():
        return data
    return bb.emit(op.where(constant(inside), data, number(outside, data)))
