# SPDX-License-Identifier: Apache-2.0
"""The difference of two sets of outputs, relative to the scale of each row. Imports no TVM."""

from collections.abc import Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

ROW = 8
"""The minimum number of nonzero elements that determine the scale of a row."""

SPREAD = 10.0
"""The maximum ratio of a row's scale to its lower quartile. The largest of a few thousand normally
distributed numbers has this ratio. The limit keeps a fill value such as -1e9 from setting the
scale."""

NOISE = 16.0
"""The allowed difference, as a multiple of the movement that rounding the inputs causes. Sums in
another order have a few times this rounding error, and only a few movements are sampled."""

_LEAST = float(np.finfo(np.float32).tiny)
"""The smallest difference that counts. Denormals differ by less, and one side may flush them to
0."""


def element_scales(expected: Array) -> Array:
    """Return the scale at which each element of an output is judged.

    A row is a line of elements along any axis. Its scale is its largest magnitude, limited to
    ``SPREAD`` times the lower quartile of its nonzero magnitudes. A row with fewer than ``ROW``
    nonzero elements has no scale. The scale of an element is the smallest scale of the rows that
    contain it, or its own magnitude if that is larger. Where no row has a scale, the whole output
    is one row. ``expected``: the output, of any shape. Non-finite elements are ignored. The scales
    have the same shape, in float64, and are 0 where the whole output is 0.
    """
    wide = np.asarray(expected, dtype=np.float64)
    magnitudes = np.where(np.isfinite(wide), np.abs(wide), 0.0)
    least = np.full(magnitudes.shape, np.inf)
    for axis, extent in enumerate(magnitudes.shape):
        if extent >= ROW:
            np.minimum(least, _row_scales(magnitudes, axis, ROW), out=least)
    if np.isinf(least).any():
        whole = _row_scales(magnitudes.reshape(-1), 0, 1)
        least[np.isinf(least)] = whole[0] if whole.size and np.isfinite(whole[0]) else 0.0
    scales: Array = np.maximum(least, magnitudes)
    return scales


def _row_scales(magnitudes: Array, axis: int, fewest: int) -> Array:
    """The scale of each row along an axis, kept with extent 1; infinite for a row without one."""
    # Sort zeros and non-finite elements last.
    ordered = np.sort(np.where(magnitudes > 0.0, magnitudes, np.nan), axis=axis)
    count = np.count_nonzero(magnitudes, axis=axis, keepdims=True)
    if not ordered.size:
        return np.full(count.shape, np.inf)
    last = np.maximum(count - 1, 0)
    top, low = (np.take_along_axis(ordered, index, axis) for index in (last, last // 4))
    return np.where(count >= fewest, np.fmin(top, SPREAD * low), np.inf)


def deviation(found: Array, expected: Array, scales: Array | None = None) -> float:
    """Return the largest difference of two outputs, relative to the scale of the row.

    ``found``, ``expected``: the outputs. Two NaNs are equal, and so are two infinities of the same
    sign. ``scales``: the scale of each element; None for ``element_scales(expected)``. An element
    of infinite scale is not compared. Returns the maximum of ``|found - expected| / scale``. The
    result is infinite if the shapes or types differ, if only one output is finite at some element,
    if the outputs differ where the scale is 0, or if booleans or integers of 32 or 64 bits differ:
    those are identifiers, indices and counts. Integers of 8 bits are often quantized numbers and
    have a scale.
    """
    found, expected = np.asarray(found), np.asarray(expected)
    if found.shape != expected.shape or found.dtype != expected.dtype:
        return float("inf")
    if not expected.size:
        return 0.0
    difference = _difference(found, expected)
    is_different = difference > 0.0
    if not is_different.any():
        return 0.0
    scales = element_scales(expected) if scales is None else scales
    ratios = np.zeros(difference.shape)
    with np.errstate(divide="ignore"):
        np.divide(difference, scales, out=ratios, where=is_different & np.isfinite(scales))
    return float(ratios.max())


def largest_deviation(
    outputs: Sequence[Array], expected: Sequence[Array], scales: Sequence[Array] | None = None
) -> float:
    """The largest deviation of two sets of outputs; see ``deviation``.

    ``scales``: the scale of each element of each output; None for ``element_scales``. Returns
    infinity if the numbers of outputs differ.
    """
    if len(outputs) != len(expected):
        return float("inf")
    each: Sequence[Array | None] = scales or [None] * len(expected)
    triples = zip(outputs, expected, each, strict=True)
    return max((deviation(*triple) for triple in triples), default=0.0)


def moved_by_rounding(array: Array, generator: np.random.Generator, rounding: float = 0.0) -> Array:
    """Return an array with each number moved up or down at random by a rounding error.

    ``rounding``: the error relative to the number; 0 for one unit in the last place. Zeros and
    arrays of a type other than floating point stay unchanged.
    """
    if array.dtype.kind != "f":
        return array
    if rounding:
        signs = np.where(generator.random(array.shape) < 0.5, -rounding, rounding)
        with np.errstate(invalid="ignore"):  # Infinity minus infinity.
            moved = array + array * signs.astype(array.dtype)
        return np.where(np.isfinite(array), moved, array)
    towards = np.where(generator.random(array.shape) < 0.5, -np.inf, np.inf)
    # The neighbors of 0 are denormals.
    moved = np.nextafter(array, towards.astype(array.dtype))
    return np.where(array == 0, array, moved)


def noise(expected: Array, moved: Sequence[Array], scales: Array | None = None) -> Array:
    """Estimate the differences due to rounding, from perturbed runs of the same function.

    ``expected``: the output. ``moved``: the outputs of runs whose inputs or weights were moved by
    rounding errors, or that rounded differently. ``scales``: the scale of each element; None for
    ``element_scales(expected)``. Returns, for each element, ``NOISE`` times the largest movement of
    its row, relative to the scales. Rows lie along the last axis with at least ``ROW`` elements; if
    there is no such axis, the whole output is one row. The result is infinite where one run was
    finite and another was not.
    """
    expected = np.asarray(expected)
    scales = element_scales(expected) if scales is None else scales
    largest = np.zeros(expected.shape)
    for other in moved:
        np.maximum(largest, _difference(np.asarray(other), expected), out=largest)
    ratios = np.divide(largest, scales, out=np.zeros(expected.shape), where=scales > 0.0)
    is_bounded = np.isfinite(ratios)
    ratios[~is_bounded] = 0.0
    if ratios.size:
        long = [axis for axis, extent in enumerate(expected.shape) if extent >= ROW]
        ratios = ratios.max(axis=long[-1] if long else None, keepdims=True)
    result: Array = np.where(is_bounded, NOISE * ratios * scales, np.inf)
    # Where the whole output is 0 there is no scale.
    return np.maximum(result, NOISE * largest)


def _is_exact(dtype: "np.dtype[Any]") -> bool:
    return dtype.kind == "b" or (dtype.kind in "iu" and dtype.itemsize >= 4)


def _difference(found: Array, expected: Array) -> Array:
    """Absolute differences of two arrays of one shape; infinite where unequal and not finite."""
    if _is_exact(found.dtype) and _is_exact(expected.dtype):
        return np.where(found == expected, 0.0, np.inf)
    left = np.asarray(found, dtype=np.float64)
    right = np.asarray(expected, dtype=np.float64)
    same = (left == right) | (np.isnan(left) & np.isnan(right))
    is_finite = np.isfinite(left) & np.isfinite(right)
    difference = np.full(left.shape, np.inf)
    np.subtract(left, right, out=difference, where=is_finite)
    np.abs(difference, out=difference)
    difference[same | (difference < _LEAST)] = 0.0
    return difference
