# SPDX-License-Identifier: Apache-2.0
"""Channel shuffles moved behind what computes each channel by itself."""

from typing import Any

import numpy as np

import tvm
from tvm import relax

from ..bindings import Bindings, Expr, Var, array_of, constant, operator_name
from ..layers import layer_of
from ..rewriting import Emit, binding_pass
from .channel_shuffle import RESHAPE, InnerShuffle, inner_shuffle
from .transpose_sinking import ELEMENTWISE

CHANNELS = 3
"""The axis of the channels in NHWC."""


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
