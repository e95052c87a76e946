# SPDX-License-Identifier: Apache-2.0
"""Channel shuffles rewritten so that they shuffle the innermost axis."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import tvm
from tvm import relax

from ..bindings import Bindings, Expr, Var, operator_name, static_shape
from ..rewriting import Emit, Rewrite, binding_pass
from .transposes import axes_of

RESHAPE, TRANSPOSE = "relax.reshape", "relax.permute_dims"


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
    joined = value_of(expr)
    if operator_name(joined) != RESHAPE:
        return None
    swapped = value_of(joined.args[0])
    if operator_name(swapped) != TRANSPOSE:
        return None
    split = value_of(swapped.args[0])
    if operator_name(split) != RESHAPE:
        return None
    source = split.args[0]
    shape, grouped = static_shape(source), static_shape(split)
    if shape is None or grouped is None or len(shape) != 4 or len(grouped) != 5:
        return None
    swaps = axes_of(swapped, 5) == (0, 1, 2, 4, 3)
    if grouped[:3] != shape[:3] or not swaps or static_shape(joined) != shape:
        return None
    return InnerShuffle(source, grouped[3])


def _shuffled(bindings: Bindings, value: Expr) -> tuple[Expr, int] | None:
    """Return what a value shuffles the channels of, and in how many groups.

    None if the value is no (N, C, H, W) -> (N, g, C / g, H, W) -> (N, C / g, g, H, W) ->
    (N, C, H, W).
    """
    transpose = bindings.call_of(value.args[0], TRANSPOSE)
    split = None if transpose is None else bindings.call_of(transpose.args[0], RESHAPE)
    if transpose is None or split is None:
        return None
    source = split.args[0]
    shape, grouped = static_shape(source), static_shape(split)
    if shape is None or grouped is None or len(shape) != 4 or len(grouped) != 5:
        return None
    kept = (grouped[0], *grouped[3:]) == (shape[0], *shape[2:])
    swaps = axes_of(transpose, 5) == (0, 2, 1, 3, 4)
    return (source, grouped[1]) if kept and swaps and static_shape(value) == shape else None


def _rewrite(bindings: Bindings) -> Rewrite:
    def rewrite(_var: Var, value: Expr, emit: Emit) -> Expr | None:
        shuffled = _shuffled(bindings, value) if operator_name(value) == RESHAPE else None
        if shuffled is None:
            return None
        source, groups = shuffled
        inner = InnerShuffle(emit(relax.op.permute_dims(source, (0, 2, 3, 1))), groups)
        return relax.op.permute_dims(emit(inner.emit(emit)), (0, 3, 1, 2))

    return rewrite


def shuffle_innermost() -> tvm.transform.Pass:
    """Make a pass that shuffles channels in NHWC, between two transposes.

    A channel shuffle (ShuffleNet; Zhang et al., 2018) reshapes (N, C, H, W) to (N, g, C / g, H, W),
    swaps the two axes of channels, and reshapes back. ``ConvertLayout`` has no rule for reshapes,
    so it turns the activation to NCHW before and to NHWC after it. With the shuffle in NHWC, those
    transposes and the ones that this pass puts around it cancel each other
    (:func:`~tvm_droplet_ms.model.layout.transposes.merge_transposes`). Returns the pass. It is for
    models whose convolutions become NHWC next.
    """
    return binding_pass("ShuffleInnermost", _rewrite, [TRANSPOSE])
