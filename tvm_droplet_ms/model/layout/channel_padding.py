# SPDX-License-Identifier: Apache-2.0
"""Padding of output channels and matmul columns that are not multiples of the vector length.

Examples are 1000 classes, and the 257 frequencies of a Fourier transform.
"""

from math import prod
from typing import Any

import numpy as np

import tvm
from tvm import relax

from ..bindings import Bindings, Expr, Var, constant, operator_name, relax_operators, static_shape
from ..layers import CONVOLUTIONS, convolution_like, layouts_of
from ..rewriting import Emit, binding_pass

VECTOR = 16
"""Number of floats in the widest vectors. Tiles are divisors of the channels, so only multiples of
this number can use all lanes of such vectors."""

TILES_OF_EIGHTS = (24, 40)
"""Numbers of channels whose multiples make good tiles of eight-float vectors. Padding these to 32
or 48 costs time on AVX2."""

LARGEST_GROWTH, EASY_GROWTH = 1.34, 1.06
"""The largest factor by which the work may grow, and the largest factor for a multiple with more
tiles."""

LEAST_PIXELS, LEAST_PRODUCTS = 16, 24
"""Least number of output pixels of a convolution, and least number of products per output element.
With fewer, slicing off the added channels takes as long as the padding saves. A matmul may have a
single row."""

_MATMUL = "relax.matmul"
_UNARY = relax_operators("nn.relu nn.leakyrelu nn.silu nn.gelu sigmoid tanh clip astype round")
_BINARY = relax_operators("add subtract multiply maximum minimum")
_POOLS = {
    f"relax.nn.{kind}_pool{rank}d" for kind in ("max", "avg", "adaptive_avg") for rank in (1, 2, 3)
}
_REDUCTIONS = relax_operators("mean max sum")


def padded_channels(channels: int, lanes: int = VECTOR) -> int:
    """Return the number of channels to compute for a given number of channels.

    ``channels``: positive. ``lanes``: number of floats in a vector register. Returns ``channels``
    if vectors divide it, or if too many channels would have to be added. Otherwise returns the next
    multiple of 64 or 32 if that is near, because it has more tiles, or else of 16.
    """
    if channels % VECTOR == 0:
        return channels
    if lanes < VECTOR and any(channels % tile == 0 for tile in TILES_OF_EIGHTS):
        return channels
    for unit, growth in (
        (4 * VECTOR, EASY_GROWTH),
        (2 * VECTOR, EASY_GROWTH),
        (VECTOR, LARGEST_GROWTH),
    ):
        padded = -(-channels // unit) * unit
        if padded <= growth * channels:
            return padded
    return channels


def pad_channels(lanes: int = VECTOR) -> tvm.transform.Pass:
    """Make a pass that pads output channels of convolutions and matmuls to multiples of vectors.

    The weights get channels of zeros, and a slice removes the added outputs. The slice moves after
    arithmetic with constants, activations, pools and depthwise convolutions. This makes it small,
    and the arithmetic is fused with the convolution. It rewrites convolutions of one group with
    channels last (NWC, NHWC or NDHWC) and constant weights, and matmuls with a constant matrix on
    the right. ``lanes``: number of floats in a vector register.
    """
    return binding_pass(
        "PadChannels", lambda bindings: _Padder(bindings, lanes), [*CONVOLUTIONS, _MATMUL]
    )


class _Padder:
    """Pads the layers of a block, and moves the slices towards the end."""

    def __init__(self, bindings: Bindings, lanes: int) -> None:
        self._bindings = bindings
        self._lanes = lanes
        self._padded: dict[Var, Var] = {}

    def __call__(self, var: Var, value: Expr, emit: Emit) -> Expr | None:
        call = self._with_added_channels(value)
        if call is None:
            return None
        padded = self._padded[var] = emit(call)
        extents = value.ty.shape
        last = len(extents) - 1
        return relax.op.strided_slice(padded, axes=[last], begin=[0], end=[int(extents[last])])

    def _with_added_channels(self, value: Expr) -> Expr | None:
        name = operator_name(value)
        if name in CONVOLUTIONS:
            return self._convolution(value)
        if name == _MATMUL:
            return self._matmul(value)
        if not name or not value.args or value.args[0] not in self._padded:
            return None
        source = self._padded[value.args[0]]
        if name in _UNARY | _POOLS | _REDUCTIONS and _keeps_channels(name, value):
            return relax.Call(value.op, [source, *value.args[1:]], value.attrs)
        return self._arithmetic(value, source) if name in _BINARY else None

    def _convolution(self, value: Expr) -> Expr | None:
        attrs = value.attrs
        weights = self._bindings.array_of(value.args[1])
        shape = static_shape(value)
        if not _has_channels_last(value) or weights is None or shape is None:
            return None
        if int(attrs.groups) == 1:
            return _with_added_columns(value, weights, shape, self._lanes)
        source = self._padded.get(value.args[0])
        wanted = None if source is None else static_shape(source)
        is_depthwise = int(attrs.groups) == shape[-1] and weights.shape[-2] == 1
        if wanted is None or not is_depthwise:
            return None
        filters = np.pad(weights, [(0, 0)] * (len(shape) - 1) + [(0, wanted[-1] - shape[-1])])
        return convolution_like(value, source, constant(filters), groups=wanted[-1])

    def _matmul(self, value: Expr) -> Expr | None:
        matrix = self._bindings.array_of(value.args[1])
        shape = static_shape(value)
        if matrix is None or shape is None or matrix.ndim != 2 or len(shape) < 2:
            return None
        return _with_added_columns(value, matrix, shape, self._lanes)

    def _arithmetic(self, value: Expr, source: Var) -> Expr | None:
        operand = self._bindings.array_of(value.args[1])
        shape, wanted = static_shape(value), static_shape(source)
        if operand is None or shape is None or wanted is None or operand.ndim > len(shape):
            return None
        if any(extent != 1 for extent in operand.shape[:-1]):
            return None
        if operand.size > 1:
            widths = [(0, 0)] * (operand.ndim - 1) + [(0, wanted[-1] - shape[-1])]
            operand = np.pad(operand, widths)
        return relax.Call(value.op, [source, constant(operand)], value.attrs)


def _with_added_columns(
    value: Expr, weights: "np.ndarray[Any, Any]", shape: tuple[int, ...], lanes: int
) -> Expr | None:
    """Add outputs on the last axis of a layer; None if that gains nothing.

    ``shape``: shape of the output.
    """
    added = padded_channels(shape[-1], lanes) - shape[-1]
    few = operator_name(value) != _MATMUL and prod(shape[:-1]) < LEAST_PIXELS
    if not added or few or prod(weights.shape[:-1]) < LEAST_PRODUCTS:
        return None
    padded = np.pad(weights, [(0, 0)] * (weights.ndim - 1) + [(0, added)])
    return relax.Call(value.op, [value.args[0], constant(padded)], value.attrs)


def _has_channels_last(value: Expr) -> bool:
    """True for a convolution in NHWC with HWIO weights, and for NWC and NDHWC likewise."""
    data, kernel, out = layouts_of(value.attrs)
    axes = data[1:-1]
    return data == out == f"N{axes}C" and axes.isupper() and kernel == f"{axes}IO"


def _keeps_channels(name: str, value: Expr) -> bool:
    """True if an operator computes each channel separately, and keeps channels the last axis."""
    attrs = value.attrs
    if name in _POOLS:
        layout = str(attrs.layout)
        return layout.isalpha() and layout.endswith("C") and str(attrs.out_layout) == layout
    if name in _REDUCTIONS:
        axes, rank = attrs.axis, len(value.args[0].ty.shape)
        return (
            axes is not None
            and bool(attrs.keepdims)
            and all(int(a) % rank != rank - 1 for a in axes)
        )
    return True
