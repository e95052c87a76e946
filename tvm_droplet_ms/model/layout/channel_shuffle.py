# SPDX-License-Identifier: Apache-2.0
"""Channel shuffles of the innermost axis, moved behind what computes each channel by itself."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import tvm
from tvm import relax

from ..bindings import Bindings, Expr, Var, array_of, constant, operator_name, static_shape
from ..layers import layer_of
from ..rewriting import Emit, binding_pass, stateless
from .transposes import ELEMENTWISE, axes_of

RESHAPE, TRANSPOSE = "relax.reshape", "relax.permute_dims"

CHANNELS = 3
"""The axis of the channels in NHWC."""


@dataclass(frozen=True)
class InnerShuffle:
    """A shuffle of the channels of an activation in NHWC.

    ``source``: what is shuffled, of four constant extents. ``groups``: the groups that the channels
    are split into before they are swapped.
    """

    source: Expr
    groups: int

    def origins(self) -> "np.ndarray[Any, Any]":
        """The channel of the source that each shuffled channel is."""
        channels = np.arange(int(self.source.ty.shape[3]))
        ret: np.ndarray[Any, Any] = channels.reshape(self.groups, -1).T.ravel()
        return ret

    def emit(self, emit: Emit) -> Expr:
        """Emit the shuffle but for its last operation, and return that."""
        batch, height, width, channels = static_shape(self.source) or ()
        split = (batch, height, width, self.groups, channels // self.groups)
        result = emit(relax.op.reshape(self.source, split))
        result = emit(relax.op.permute_dims(result, (0, 1, 2, 4, 3)))
        return relax.op.reshape(result, (batch, height, width, channels))


def inner_shuffle(value_of: Callable[[Expr], Expr], expr: Expr) -> InnerShuffle | None:
    """Return the shuffle that an expression is.

    ``value_of``: gives what an expression is bound to, as ``Bindings.value_of`` does. ``expr``: any
    expression. None if it is not (N, H, W, C) -> (N, H, W, g, C / g) -> (N, H, W, C / g, g) -> (N,
    H, W, C).
    """
    return _shuffle_of(value_of, expr, CHANNELS)


def _shuffle_of(value_of: Callable[[Expr], Expr], expr: Expr, axis: int) -> InnerShuffle | None:
    """Return the shuffle along an axis, as if that were the innermost one, or None."""
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


def _rewrite(bindings: Bindings, _var: Var, value: Expr, emit: Emit) -> Expr | None:
    outer = _shuffle_of(bindings.value_of, value, 1)
    if outer is None:
        return None
    inner = InnerShuffle(emit(relax.op.permute_dims(outer.source, (0, 2, 3, 1))), outer.groups)
    return relax.op.permute_dims(emit(inner.emit(emit)), (0, 3, 1, 2))


def shuffle_innermost() -> tvm.transform.Pass:
    """Make a pass that shuffles channels in NHWC, between two transposes.

    A channel shuffle (ShuffleNet; Zhang et al., 2018) reshapes (N, C, H, W) to (N, g, C / g, H, W),
    swaps the two axes of channels, and reshapes back. ``ConvertLayout`` has no rule for reshapes,
    so it turns the activation to NCHW before and to NHWC after it. With the shuffle in NHWC, those
    transposes and the ones that this pass puts around it cancel each other
    (:func:`~tvm_droplet_ms.model.layout.transposes.merge_transposes`). Returns the pass. It is for
    models whose convolutions become NHWC next.
    """
    return binding_pass("ShuffleInnermost", stateless(_rewrite), [TRANSPOSE])


def sink_shuffles() -> tvm.transform.Pass:
    """Make a pass that moves channel shuffles in NHWC towards the next convolution.

    A shuffle of ShuffleNet is between a grouped and a depthwise convolution. It moves behind
    depthwise convolutions and elementwise operations with constants, whose weights are put into the
    order of the channels before it, up to the next grouped convolution. Its kernel reads through
    the shuffle (``model.kernels.groups.shuffled_convolution.read_shuffled``). A layer of one group
    takes the shuffle into its weights. Returns the pass. A shuffle that several operations use
    stays where it is.
    """
    return binding_pass("SinkShuffles", lambda bindings: _Sinking(bindings).rewrite, [RESHAPE])


class _Sinking:
    """The rewrite of one block."""

    def __init__(self, bindings: Bindings) -> None:
        self._bindings = bindings

    def rewrite(self, var: Var, value: Expr, emit: Emit) -> Expr | None:
        if not operator_name(value) or not value.args:
            return None
        data = value.args[0]
        user = self._bindings.only_user(data) if isinstance(data, relax.Var) else None
        shuffle = inner_shuffle(self._bindings.value_of, data)
        if shuffle is None or user is None or not user.same_as(var):
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
    """True if a layer in NHWC has one input and one output channel in each group."""
    outputs = layer.weight.shape[layer.weight_output_axis]
    axes = (layer.input_axis, layer.output_axis)
    return axes == (CHANNELS, CHANNELS) and layer.groups == channels == outputs


def _unshuffled(operand: Expr, places: "np.ndarray[Any, Any]") -> Expr | None:
    """Return an operand for the channels before the shuffle.

    None if it is no constant, or of a higher rank.
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
