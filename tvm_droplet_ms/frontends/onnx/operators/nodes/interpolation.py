# SPDX-License-Identifier: Apache-2.0
"""The elements that an ONNX ``Resize`` reads along an axis, and their weights.

The equations are from ONNX's operator ``Resize``, in float32 as in ONNX Runtime
(``onnxruntime/core/providers/cpu/tensor/upsamplebase.h``): where a coordinate lies between two
elements, the rounding decides.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

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


def coordinates(axis: Axis, mode: str) -> Array:
    """The input coordinates of all output elements along an axis, float32.

    Raises ``ValueError``, which names the mode, if ONNX has no such mode.
    """
    found: Array = np.asarray(_coordinates(axis, mode), np.float32)
    return found


def _coordinates(axis: Axis, mode: str) -> Any:
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
    weights = _linear(distances) if method.mode == "linear" else _cubic(distances, method.cubic)
    indices = first[:, None].astype(np.int64) + offsets[None, :]
    if method.exclude_outside:
        weights = np.where((indices >= 0) & (indices < axis.length), weights, 0.0)
    if method.exclude_outside or method.antialias:
        weights = weights / weights.sum(axis=1, keepdims=True)
    return indices, weights.astype(np.float32)


def _linear(distance: Array) -> Array:
    found: Array = np.maximum(0.0, 1.0 - np.abs(distance))
    return found


def _cubic(distance: Array, a: float) -> Array:
    """Keys' cubic convolution kernel."""
    x = np.abs(distance)
    near = (a + 2) * x**3 - (a + 3) * x**2 + 1
    far = a * x**3 - 5 * a * x**2 + 8 * a * x - 4 * a
    found: Array = np.where(x <= 1, near, np.where(x < 2, far, 0.0))
    return found
