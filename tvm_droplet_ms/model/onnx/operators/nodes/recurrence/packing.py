# SPDX-License-Identifier: Apache-2.0
"""Weights and states of a recurrent layer in the order in which its kernel reads them.

All of it is Relax, and is folded where the weights are constants.
"""

from collections.abc import Sequence
from typing import Any

from tvm import relax

from .layer import WIDTH, Layer


def shape_of(value: Any) -> list[int]:
    """The extents of a tensor. They must be known."""
    return [int(extent) for extent in value.ty.shape]


def zeros(shape: Sequence[int], dtype: str) -> Any:
    """A constant of zeros."""
    return relax.op.zeros(relax.ShapeExpr(list(shape)), dtype)


def padded(value: Any, layer: Layer, axis: int) -> Any:
    """Fill up the hidden units along an axis with zeros."""
    extra = layer.padded - layer.hidden
    if not extra:
        return value
    widths = [0] * (2 * value.ty.ndim)
    widths[2 * axis + 1] = extra
    return relax.op.nn.pad(value, widths)


class Packer:
    """Packs the operands of one layer.

    ``builder``: takes the operators. ``gates``: gates of the cell.
    """

    def __init__(self, builder: relax.BlockBuilder, layer: Layer, gates: int) -> None:
        self._builder = builder
        self._layer = layer
        self._gates = gates

    def tiled(self, value: Any, groups: int) -> Any:
        """From (directions, groups * hidden, ...) to (directions, groups, tiles, WIDTH, ...)."""
        layer, rest = self._layer, shape_of(value)[2:]
        emit = self._builder.emit
        value = emit(relax.op.reshape(value, [layer.directions, groups, layer.hidden, *rest]))
        value = emit(padded(value, layer, 2))
        shape = [layer.directions, groups, layer.tiles, WIDTH, *rest]
        return emit(relax.op.reshape(value, shape))

    def input_weights(self, weights: Any) -> Any:
        """From (directions, gates * hidden, input) to one matrix with a column for each gate."""
        tiled = self.tiled(weights, self._gates)
        order = self._builder.emit(relax.op.permute_dims(tiled, [4, 0, 2, 1, 3]))
        return self._builder.emit(relax.op.reshape(order, [shape_of(weights)[2], -1]))

    def state_weights(self, weights: Any) -> Any:
        """From (directions, gates * hidden, hidden) to the order of the kernel."""
        tiled = self.tiled(weights, self._gates)
        return self._builder.emit(relax.op.permute_dims(tiled, [0, 2, 4, 1, 3]))

    def by_tile(self, value: Any, groups: int) -> Any:
        """From (directions, groups * hidden) to (directions, tiles, groups, WIDTH)."""
        return self._builder.emit(relax.op.permute_dims(self.tiled(value, groups), [0, 2, 1, 3]))

    def state(self, value: Any | None, dtype: str) -> Any:
        """A first state, (directions, batch, hidden), with the last tile filled up."""
        layer = self._layer
        if value is None:
            return self._builder.emit(zeros([layer.directions, layer.batch, layer.padded], dtype))
        return self._builder.emit(padded(value, layer, 2))

    def unpacked(self, value: Any) -> Any:
        """The hidden units of a result, the last axis, without those that fill up the tile."""
        layer = self._layer
        if layer.padded == layer.hidden:
            return value
        axis = value.ty.ndim - 1
        return self._builder.emit(relax.op.strided_slice(value, [axis], [0], [layer.hidden]))
