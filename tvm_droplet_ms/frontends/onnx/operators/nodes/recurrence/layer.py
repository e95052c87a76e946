# SPDX-License-Identifier: Apache-2.0
"""The extents and the operands of a recurrent layer's kernel, and how they are packed for it."""

from dataclasses import dataclass
from typing import Any

from tvm import relax

from ...operands import shape_of

WIDTH = 16
"""Hidden units of a tile: a vector of AVX-512, or two of AVX2."""


@dataclass(frozen=True)
class Layer:
    """The extents of a recurrent layer.

    ``steps``, ``batch``, ``hidden``: steps of the sequence, sequences of the batch, hidden units.
    ``reverse``: for each direction, whether it goes from the last step to the first.
    """

    steps: int
    batch: int
    hidden: int
    reverse: tuple[bool, ...]

    @property
    def directions(self) -> int:
        """One or two."""
        return len(self.reverse)

    @property
    def tiles(self) -> int:
        """Tiles of hidden units; the last one may be filled up."""
        return -(-self.hidden // WIDTH)

    @property
    def padded(self) -> int:
        """Hidden units, those included that fill up the last tile."""
        return self.tiles * WIDTH


@dataclass
class Operands:
    """The tensors, or the buffers, of a kernel.

    - ``products``: (steps, batch, directions, tiles, gates, WIDTH): inputs by weights, and biases.
    - ``weights``: (directions, tiles, hidden, gates, WIDTH): of the old state.
    - ``state``: (directions, batch, padded): the first hidden state.
    - ``memory``: the same for the cell state of an LSTM, else None.
    - ``lengths``: (batch,): int32, steps of each sequence, or None if all have all steps.
    - ``bias``: (directions, tiles, WIDTH): what a GRU adds to the product that it resets, or None.
    - ``peephole``: (directions, tiles, 3, WIDTH): of an LSTM, or None.
    - ``scales``, ``sums``: (directions, tiles, gates, WIDTH): of weights of bytes, or None. The
      weights are words of four bytes then: (directions, tiles, padded / 4, gates, WIDTH).
    """

    products: Any
    weights: Any
    state: Any
    memory: Any = None
    lengths: Any = None
    bias: Any = None
    peephole: Any = None
    scales: Any = None
    sums: Any = None

    def present(self) -> list[str]:
        """The names of those that are there."""
        return [name for name, value in vars(self).items() if value is not None]


def padded(value: Any, layer: Layer, axis: int) -> Any:
    """Fill up the hidden units along an axis with zeros."""
    extra = layer.padded - layer.hidden
    if not extra:
        return value
    widths = [0] * (2 * value.ty.ndim)
    widths[2 * axis + 1] = extra
    return relax.op.nn.pad(value, widths)


class Packer:
    """Packs weights and states of a layer in the order in which its kernel reads them.

    All of it is Relax, and is folded where the weights are constants. ``builder``: takes the
    operators. ``gates``: gates of the cell.
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
            shape = relax.ShapeExpr([layer.directions, layer.batch, layer.padded])
            return self._builder.emit(relax.op.zeros(shape, dtype))
        return self._builder.emit(padded(value, layer, 2))

    def unpacked(self, value: Any) -> Any:
        """The hidden units of a result, the last axis, without those that fill up the tile."""
        layer = self._layer
        if layer.padded == layer.hidden:
            return value
        axis = value.ty.ndim - 1
        return self._builder.emit(relax.op.strided_slice(value, [axis], [0], [layer.hidden]))
