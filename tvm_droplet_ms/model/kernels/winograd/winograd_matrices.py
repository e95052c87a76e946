# SPDX-License-Identifier: Apache-2.0
"""The matrices of Winograd's convolution algorithms. Imports no TVM.

Source: A. Lavin and S. Gray, "Fast Algorithms for Convolutional Neural Networks", 2016, section 4.
The construction from interpolation points is due to Toom and Cook: polynomials are multiplied by
their values at the points.
"""

from fractions import Fraction
from math import prod
from typing import NamedTuple

import numpy as np

KERNEL_SIZE = 3
"""Width of the convolution kernels."""

POINTS = {
    2: (Fraction(0), Fraction(1), Fraction(-1)),
    4: (Fraction(0), Fraction(1), Fraction(-1), Fraction(1, 2), Fraction(-2)),
}
"""The finite interpolation points by tile size. A point at infinity follows.

The points of F(4,3) differ from Lavin's and Gray's 0, 1, -1, 2, -2, which have three times the
rounding error (B. Barabasz et al., "Error Analysis and Improving the Accuracy of Winograd
Convolution for Deep Neural Networks", 2020, section 5).
"""


class WinogradMatrices(NamedTuple):
    """The matrices of F(m, r): m outputs with r weights, from alpha = m + r - 1 products.

    With inputs d and weights g, the outputs are ``A.T @ ((G @ g) * (B.T @ d))``. In two
    dimensions: ``A.T @ ((G @ g @ G.T) * (B.T @ d @ B)) @ A``.
    """

    A: np.ndarray
    """Of shape (alpha, m), float64."""
    B: np.ndarray
    """Of shape (alpha, alpha), float64."""
    G: np.ndarray
    """Of shape (alpha, r), float64."""


def winograd_matrices(tile: int) -> WinogradMatrices:
    """Compute the matrices of F(tile, 3).

    ``tile``: the number of outputs of a tile in one dimension, a key of `POINTS`. A and B are
    exact. Raises ``ValueError`` if `POINTS` has no entry for the tile.
    """
    if tile not in POINTS:
        raise ValueError(f"tile={tile!r} has no Winograd algorithm here: expected one of 2, 4")
    points = POINTS[tile]
    rows_of_a, rows_of_b, rows_of_g = [], [], []
    for point in points:
        others = [other for other in points if other != point]
        scale = prod((point - other for other in others), start=Fraction(1))
        rows_of_a.append([point**power for power in range(tile)])
        rows_of_b.append([*_polynomial(others), Fraction(0)])
        rows_of_g.append([point**power / scale for power in range(KERNEL_SIZE)])
    rows_of_a.append(_at_infinity(tile))
    rows_of_b.append(_polynomial(points))
    rows_of_g.append(_at_infinity(KERNEL_SIZE))
    return WinogradMatrices(_array(rows_of_a), _array(rows_of_b).T, _array(rows_of_g))


def transform_weights(weights: np.ndarray, tile: int) -> np.ndarray:
    """Transform the weights of 3x3 kernels: ``G @ g @ G.T`` for each pair of channels.

    ``weights``: an array of shape (3, 3, in_channels, out_channels). ``tile``: as in
    `winograd_matrices`. Returns values of shape (alpha, alpha, in_channels, out_channels) in the
    dtype of the weights, computed in float64.
    """
    kernels = weights.astype("float64")
    matrix = winograd_matrices(tile).G
    transformed = np.einsum("ik,klco,jl->ijco", matrix, kernels, matrix, optimize=True)
    return np.asarray(transformed, weights.dtype)


def _polynomial(roots: "list[Fraction] | tuple[Fraction, ...]") -> list[Fraction]:
    """Return the coefficients of the product of (x - root), the constant one first."""
    coefficients = [Fraction(1)]
    for root in roots:
        shifted = [Fraction(0), *coefficients]
        scaled = [*(root * coefficient for coefficient in coefficients), Fraction(0)]
        coefficients = [high - low for high, low in zip(shifted, scaled, strict=True)]
    return coefficients


def _at_infinity(length: int) -> list[Fraction]:
    return [Fraction(0)] * (length - 1) + [Fraction(1)]


def _array(rows: list[list[Fraction]]) -> np.ndarray:
    return np.array([[float(value) for value in row] for row in rows])
