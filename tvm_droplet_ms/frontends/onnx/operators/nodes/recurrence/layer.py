# SPDX-License-Identifier: Apache-2.0
"""The extents of a recurrent layer's kernel, its operands, and their packing."""

from dataclasses import dataclass
from typing import Any

from tvm import relax
from tvm.relax import op

from ...operands import part, shape_of

WIDTH = 16
"""Number of hidden units in a tile: one vector of AVX-512, or two of AVX2."""


@dataclass(frozen=True)
class Layer:
    """The extents of a recurrent layer.

    ``steps``, ``batch``, ``hidden``: numbers of steps, sequences in the batch, and hidden units.
    ``reverse``: for each direction, whether it goes from the last step to the first.
    """

    steps: int
    batch: int
    hidden: int
    reverse: tuple[bool, ...]

    @property
    def directions(self) -> int:
        """Number of directions, one or two."""
        return len(self.reverse)

    @property
    def tiles(self) -> int:
        """Number of tiles of hidden units. The last tile may be padded."""
        return -(-self.hidden // WIDTH)

    @property
    def padded(self) -> int:
        """Number of hidden units, including the padding of the last tile."""
        return self.tiles * WIDTH


@dataclass
class Operands:
    """The operands of a kernel, as tensors or buffers.

    - ``products``: (steps, batch, directions, tiles, gates, WIDTH): inputs times weights, plus
      biases.
    - ``weights``: (directions, tiles, hidden, gates, WIDTH): the weights of the old state.
    - ``state``: (directions, batch, padded): the initial hidden state.
    - ``memory``: (directions, batch, padded): the initial cell state of an LSTM, or None.
    - ``lengths``: (batch,): int32, the steps of each sequence, or None if all have all steps.
    - ``bias``: (directions, tiles, WIDTH): the bias of a GRU's product before its reset, or None.
    - ``peephole``: (directions, tiles, 3, WIDTH): the peephole weights of an LSTM, or None.
    - ``scales``, ``sums``: (directions, tiles, gates, WIDTH): the scales and sums of byte weights,
      or None. Byte weights are words of four bytes: (directions, tiles, padded / 4, gates, WIDTH).
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
        """The names of the operands that are not None."""
        return [name for name, value in vars(self).items() if value is not None]


def padded(value: Any, layer: Layer, axis: int) -> Any:
    """Pad the hidden units along an axis with zeros to whole tiles."""
    extra = layer.padded - layer.hidden
    if not extra:
        return value
    widths = [0] * (2 * value.ty.ndim)
    widths[2 * axis + 1] = extra
    return op.nn.pad(value, widths)


class Packer:
    """Packs weights and states of a layer in the order in which its kernel reads them.

    It emits Relax operators, which are folded if the weights are constants. ``builder``: the block
    builder. ``gates``: number of gates of the cell.
    """

    def __init__(self, builder: relax.BlockBuilder, layer: Layer, gates: int) -> None:
        self._builder = builder
        self._layer = layer
        self._gates = gates

    def tiled(self, value: Any, groups: int) -> Any:
        """Split (directions, groups * hidden, ...) to (directions, groups, tiles, WIDTH, ...)."""
        layer, rest = self._layer, shape_of(value)[2:]
        value = op.reshape(value, [layer.directions, groups, layer.hidden, *rest])
        value = padded(self._builder.emit(value), layer, 2)
        return op.reshape(value, [layer.directions, groups, layer.tiles, WIDTH, *rest])

    def _ordered(self, value: Any, groups: int, order: list[int]) -> Any:
        return self._builder.emit(op.permute_dims(self.tiled(value, groups), order))

    def input_weights(self, weights: Any) -> Any:
        """Pack (directions, gates * hidden, input) into a matrix with a column for each gate."""
        packed = self._ordered(weights, self._gates, [4, 0, 2, 1, 3])
        return self._builder.emit(op.reshape(packed, [shape_of(weights)[2], -1]))

    def state_weights(self, weights: Any) -> Any:
        """Pack (directions, gates * hidden, hidden) in the order of the kernel."""
        return self._ordered(weights, self._gates, [0, 2, 4, 1, 3])

    def by_tile(self, value: Any, groups: int) -> Any:
        """Rearrange (directions, groups * hidden) to (directions, tiles, groups, WIDTH)."""
        return self._ordered(value, groups, [0, 2, 1, 3])

    def state(self, value: Any | None, dtype: str) -> Any:
        """Pad an initial state (directions, batch, hidden). None gives zeros."""
        layer = self._layer
        if value is not None:
            return self._builder.emit(padded(value, layer, 2))
        shape = relax.ShapeExpr([layer.directions, layer.batch, layer.padded])
        return self._builder.emit(op.zeros(shape, dtype))

    def unpacked(self, value: Any) -> Any:
        """Remove the padding from the hidden units of a result, its last axis."""
        layer = self._layer
        if layer.padded == layer.hidden:
            return value
        return self._builder.emit(part(value, value.ty.ndim - 1, 0, layer.hidden))
