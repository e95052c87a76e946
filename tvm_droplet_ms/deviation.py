# SPDX-License-Identifier: Apache-2.0
"""The difference of two sets of outputs: each element at the scale of its row. Imports no TVM."""

from collections.abc import Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

ROW = 8
"""The fewest numbers other than 0 that say what the scale of a row is."""

SPREAD = 10.0
"""A row's scale is at most so many times its lower quartile. Of normally distributed numbers, the
largest of a few thousand is that; a fill value such as -1e9 is not of the scale of the others."""

NOISE = 16.0
"""The difference that may be, in times of a movement by the inputs' rounding: sums in another order
round a few times as much, and few movements are seen."""

_LEAST = float(np.finfo(np.float32).tiny)
"""Smaller differences are those of denormals, which one side may take for 0."""


def element_scales(expected: Array) -> Array:
    """The scale that each element of an output is judged at.

    A row is a line of elements along any axis. Its scale is the largest of its magnitudes, and at
    most ``SPREAD`` times the lower quartile of those that are not 0; with fewer than ``ROW`` of
    them it has none. An element has the least scale of the rows that it lies in, or its own
    magnitude where that is larger. Where no row has a scale, the whole output is one row.
    ``expected``: the output, of any shape. What is not finite is left out. Of the same shape, in
    float64; 0 where the whole output is 0.
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
    """The scale of each row along an axis, which stays with an extent of 1; infinite for none."""
    # Zeros and what is not finite come last in the order.
    ordered = np.sort(np.where(magnitudes > 0.0, magnitudes, np.nan), axis=axis)
    count = np.count_nonzero(magnitudes, axis=axis, keepdims=True)
    if not ordered.size:
        return np.full(count.shape, np.inf)
    last = np.maximum(count - 1, 0)
    top, low = (np.take_along_axis(ordered, index, axis) for index in (last, last // 4))
    return np.where(count >= fewest, np.fmin(top, SPREAD * low), np.inf)


def deviation(found: Array, expected: Array, scales: Array | None = None) -> float:
    """The largest difference of two outputs, relative to the scale of the row.

    ``found``, ``expected``: the outputs. They are equal where both are NaN, or the same infinity.
    ``scales``: the scale of each element; None for ``element_scales(expected)``. Where it is
    infinite, nothing is compared. Returns the largest of ``|found - expected| / scale``. Infinite
    where the shapes or the types differ, only one is finite somewhere, they differ where the scale
    is 0, or booleans or integers of 32 or 64 bits differ: they are identifiers, indices and counts.
    Integers of 8 bits are often quantized numbers, and have a scale.
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
    infinite where the numbers of outputs differ.
    """
    if len(outputs) != len(expected):
        return float("inf")
    each: Sequence[Array | None] = scales or [None] * len(expected)
    triples = zip(outputs, expected, each, strict=True)
    return max((deviation(*triple) for triple in triples), default=0.0)


def moved_by_rounding(array: Array, generator: np.random.Generator, rounding: float = 0.0) -> Array:
    """An array with each number moved by a rounding error, up or down by chance.

    ``rounding``: the error relative to the number. 0 for one unit in the last place. Numbers that
    are 0 or not of a floating-point type stay.
    """
    if array.dtype.kind != "f":
        return array
    if rounding:
        signs = np.where(generator.random(array.shape) < 0.5, -rounding, rounding)
        with np.errstate(invalid="ignore"):  # Infinity less infinity.
            moved = array + array * signs.astype(array.dtype)
        return np.where(np.isfinite(array), moved, array)
    towards = np.where(generator.random(array.shape) < 0.5, -np.inf, np.inf)
    # The neighbors of 0 are denormals.
    moved = np.nextafter(array, towards.astype(array.dtype))
    return np.where(array == 0, array, moved)


def noise(expected: Array, moved: Sequence[Array], scales: Array | None = None) -> Array:
    """The differences that are rounding, by how other runs of the same function moved.

    ``expected``: the output. ``moved``: the output of runs whose inputs or weights were moved by
    rounding errors, or that rounded otherwise. ``scales``: the scale of each element; None for
    ``element_scales(expected)``. Returns, for each element, ``NOISE`` times the largest movement of
    its row, relative to the scales: the row along the last axis of at least ``ROW`` elements, or
    the whole output. Infinite where a run was finite and another was not.
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
    """The differences of two arrays of a shape, infinite where they are not finite alike."""
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
