# SPDX-License-Identifier: Apache-2.0
"""Channel shuffles of the innermost axis, moved after operations on separate channels."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tvm import relax

from ..bindings import Bindings, Expr, array_of, constant, operator_name, static_shape
from ..layers import layer_of
from ..rewriting import Emit, operator_pass
from .transposes import ELEMENTWISE, axes_of

RESHAPE, TRANSPOSE = "relax.reshape", "relax.permute_dims"

CHANNELS = 3
"""The axis of the channels in NHWC."""


@dataclass(frozen=True)
class InnerShuffle:
    """A shuffle of the channels of an activation in NHWC.

    ``source``: the shuffled activation, of four constant extents. ``groups``: number of groups into
    which the channels are split before the swap.
    """

    source: Expr
    groups: int

    def origins(self) -> "np.ndarray[Any, Any]":
        """Return the source channel of each shuffled channel."""
        channels = np.arange(int(self.source.ty.shape[3]))
        ret: np.ndarray[Any, Any] = channels.reshape(self.groups, -1).T.ravel()
        return ret

    def emit(self, emit: Emit) -> Expr:
        """Emit all operations of the shuffle except the last, and return the last."""
        batch, height, width, channels = static_shape(self.source) or ()
        split = (batch, height, width, self.groups, channels // self.groups)
        result = emit(relax.op.reshape(self.source, split))
        result = emit(relax.op.permute_dims(result, (0, 1, 2, 4, 3)))
        return relax.op.reshape(result, (batch, height, width, channels))


def inner_shuffle(value_of: Callable[[Expr], Expr], expr: Expr) -> InnerShuffle | None:
    """Return the shuffle that an expression computes, or None for other expressions.

    ``value_of``: returns the value of an expression, as ``Bindings.value_of`` does. A shuffle has
    the shapes (N, H, W, C) -> (N, H, W, g, C / g) -> (N, H, W, C / g, g) -> (N, H, W, C).
    """
    return _shuffle_of(value_of, expr, CHANNELS)


def _shuffle_of(value_of: Callable[[Expr], Expr], expr: Expr, axis: int) -> InnerShuffle | None:
    """Return the shuffle along an axis as if that were the innermost axis, or None."""
    joined = value_of(expr)
    swapped: Expr = value_of(joined.args[0]) if operator_name(joined) == RESHAPE else None
    split: Expr = value_of(swapped.args[0]) if operator_name(swapped) == TRANSPOSE else None
    if operator_name(split) != RESHAPE:
        return None
    source = split.args[0]
    shape, grouped = static_shape(source), static_shape(split)
    if shape is None or grouped is None or len(shape) != 4 or len(grouped) != 5:
        return None
    kept = (*grouped[:axis], *grouped[axis + 2 :]) == (*shape[:axis], *shape[axis + 1 :])
    order = [*range(axis), axis + 1, axis, *range(axis + 2, 5)]
    if not kept or axes_of(swapped, 5) != tuple(order) or static_shape(joined) != shape:
        return None
    return InnerShuffle(source, grouped[axis])


@operator_pass("ShuffleInnermost", [RESHAPE], [TRANSPOSE])
def shuffle_innermost(bindings: Bindings, value: Expr, emit: Emit) -> Expr | None:
    """Make a pass that shuffles channels in NHWC, between two transposes.

    A channel shuffle (ShuffleNet; Zhang et al., 2018) reshapes (N, C, H, W) to (N, g, C / g, H, W),
    swaps the two axes of channels, and reshapes back. ``ConvertLayout`` has no rule for reshapes,
    so it transposes the activation to NCHW before them and to NHWC after them. With the shuffle in
    NHWC, these transposes and the transposes that this pass puts around the shuffle cancel each
    other (:func:`~tvm_droplet_ms.model.layout.transposes.merge_transposes`). Run it on models whose
    convolutions become NHWC next.
    """
    outer = _shuffle_of(bindings.value_of, value, 1)
    if outer is None:
        return None
    inner = InnerShuffle(emit(relax.op.permute_dims(outer.source, (0, 2, 3, 1))), outer.groups)
    return relax.op.permute_dims(emit(inner.emit(emit)), (0, 3, 1, 2))


@operator_pass("SinkShuffles", required=[RESHAPE])
def sink_shuffles(bindings: Bindings, value: Expr, emit: Emit) -> Expr | None:
    """Make a pass that moves channel shuffles in NHWC towards the next convolution.

    In ShuffleNet, a shuffle is between a grouped and a depthwise convolution. It moves after
    depthwise convolutions and elementwise operations with constants, up to the next grouped
    convolution. Their weights and constants are permuted to the channel order before the shuffle.
    The kernel of the grouped convolution reads through the shuffle
    (``model.kernels.grouped_convolution.read_shuffled``). A layer of one group absorbs the
    shuffle into its weights. A shuffle that several operations use does not move.
    """
    if not operator_name(value) or not value.args:
        return None
    data = value.args[0]
    shuffle = inner_shuffle(bindings.value_of, data)
    if shuffle is None or not isinstance(data, relax.Var) or bindings.only_user(data) is None:
        return None
    places = np.argsort(shuffle.origins())
    layer = layer_of(value)
    if layer is not None:
        if layer.groups == 1 and layer.input_axis == CHANNELS:
            weight = np.take(layer.weight, places, axis=layer.weight_input_axis)
            return layer.rebuild(shuffle.source, weight)
        if not _is_depthwise(layer, len(places)):
            return None
        weight = np.take(layer.weight, places, axis=layer.weight_output_axis)
        moved = layer.rebuild(shuffle.source, weight)
    elif operator_name(value) in ELEMENTWISE:
        operands = [_unshuffled(operand, places) for operand in value.args[1:]]
        if any(operand is None for operand in operands):
            return None
        moved = relax.Call(value.op, [shuffle.source, *operands], value.attrs)
    else:
        return None
    return InnerShuffle(emit(moved), shuffle.groups).emit(emit)


def _is_depthwise(layer: Any, channels: int) -> bool:
    """True for a layer in NHWC with one input and one output channel per group."""
    outputs = layer.weight.shape[layer.weight_output_axis]
    axes = (layer.input_axis, layer.output_axis)
    return axes == (CHANNELS, CHANNELS) and layer.groups == channels == outputs


def _unshuffled(operand: Expr, places: "np.ndarray[Any, Any]") -> Expr | None:
    """Return an operand in the channel order before the shuffle.

    None if it is not constant, or if its rank is higher than the activation's.
    """
    values = array_of(operand)
    if values is None:
        is_tensor = isinstance(operand.ty, relax.TensorType)
        return None if is_tensor or isinstance(operand, relax.Var) else operand
    if values.ndim > CHANNELS + 1:
        return None
    if values.ndim == 0 or values.shape[-1] == 1:
        return operand
    return constant(np.take(values, places, axis=-1))
