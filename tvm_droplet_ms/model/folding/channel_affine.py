# SPDX-License-Identifier: Apache-2.0
"""Per-channel affine functions, and how a convolution or dense layer absorbs one.

This is pure NumPy in float64, so that a chain of many functions does not lose precision.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class ChannelAffine:
    """The function ``scale * x + shift`` along one axis of a tensor.

    ``scale``, ``shift``: of shape (channels,) or (1,), float64.
    """

    scale: Array
    shift: Array

    def then(self, other: "ChannelAffine") -> "ChannelAffine":
        """Return the function that applies this function first and another function after it."""
        with np.errstate(all="ignore"):
            return ChannelAffine(self.scale * other.scale, self.shift * other.scale + other.shift)

    def is_finite(self) -> bool:
        """True if all scales and shifts are finite, in float32 too."""
        with np.errstate(over="ignore"):
            both = [values.astype(np.float32) for values in (self.scale, self.shift)]
        return all(bool(np.isfinite(values).all()) for values in both)

    def vanishes(self, first: "ChannelAffine", second: "ChannelAffine") -> bool:
        """True if a scale is 0 or denormal in float32, although both of its factors are nonzero.

        Applied one after the other, the two functions can keep more digits of a large number.
        """
        small = np.abs(self.scale) < np.finfo(np.float32).tiny
        return bool((small & (first.scale != 0) & (second.scale != 0)).any())

    def scales(self) -> bool:
        """True if some scale is not 1."""
        return bool((self.scale != 1).any())

    def shifts(self) -> bool:
        """True if some shift is not 0."""
        return bool((self.shift != 0).any())


IDENTITY = ChannelAffine(np.ones(1), np.zeros(1))


def batch_norm_affine(
    gamma: Array, beta: Array, mean: Array, variance: Array, epsilon: float
) -> ChannelAffine:
    """Return the affine function that an inference batch norm computes.

    ``gamma * (x - mean) / sqrt(variance + epsilon) + beta`` (Ioffe and Szegedy, 2015, algorithm 2).
    ``gamma``, ``beta``, ``mean``, ``variance``: of shape (channels,). ``epsilon``: added to the
    variance.
    """
    wide = [values.astype(np.float64) for values in (gamma, beta, mean, variance)]
    gamma, beta, mean, variance = wide
    with np.errstate(all="ignore"):
        scale = gamma / np.sqrt(variance + epsilon)
        return ChannelAffine(scale, beta - mean * scale)


def channel_vector(values: Array, shape: tuple[int, ...]) -> tuple[int | None, Array] | None:
    """Return the axis of a tensor along which a constant operand varies, and its values.

    ``values``: the constant, to be broadcast to the tensor. Returns the axis, and the values along
    it as float64, of shape (extent,) or (1,). The axis is None for a single value. Returns None if
    the constant varies along several axes, or if broadcasting would enlarge the tensor.
    """
    if values.ndim > len(shape):
        return None
    full = (1,) * (len(shape) - values.ndim) + values.shape
    axes = [axis for axis, extent in enumerate(full) if extent != 1]
    if len(axes) > 1 or any(full[axis] != shape[axis] for axis in axes):
        return None
    return (axes[0] if axes else None), values.reshape(-1).astype(np.float64)


def scale_outputs(weight: Array, axis: int, scale: Array) -> Array:
    """Multiply a weight by a scale for each output channel.

    ``weight`` is not changed. ``scale``: of shape (outputs,) or (1,). Returns the product in the
    weight's type.
    """
    full = [1] * weight.ndim
    full[axis] = -1
    product: Array = weight * scale.reshape(full).astype(weight.dtype)
    return product


def absorb_input(
    weight: Array, output_axis: int, input_axis: int, groups: int, affine: ChannelAffine
) -> tuple[Array, Array]:
    """Absorb an affine function of the input channels into a weight and a bias.

    ``W (s x + t) = (W s) x + W t``. For a convolution, this holds only without padding or with a
    shift of 0: the padding is 0, not ``t``.

    - ``weight`` is not changed.
    - ``output_axis``, ``input_axis``: axes of the weight for the output channels and for the input
      channels of a group.
    - ``groups``: number of groups. Output channels are ordered by group.
    - ``affine``: the function of all input channels.

    Returns ``weight``: the new weight, of the same shape and type; ``bias``: the bias of each
    output channel, float64, of shape (outputs,).
    """
    moved = np.moveaxis(weight, (output_axis, input_axis), (0, 1))
    outputs, inputs = moved.shape[:2]
    kernel = (1,) * (weight.ndim - 2)

    def by_output(values: Array) -> Array:
        grouped = np.broadcast_to(values, (groups * inputs,)).reshape(groups, inputs)
        return np.repeat(grouped, outputs // groups, axis=0)

    scale = by_output(affine.scale).reshape(outputs, inputs, *kernel).astype(weight.dtype)
    sums = moved.sum(axis=tuple(range(2, weight.ndim)), dtype=np.float64)
    bias = (sums * by_output(affine.shift)).sum(axis=1)
    scaled = np.moveaxis(moved * scale, (0, 1), (output_axis, input_axis))
    return scaled, bias
