# SPDX-License-Identifier: Apache-2.0
"""The extents and the operands of a recurrent layer's kernel."""

from dataclasses import dataclass
from typing import Any

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
    """

    products: Any
    weights: Any
    state: Any
    memory: Any = None
    lengths: Any = None
    bias: Any = None
    peephole: Any = None

    def present(self) -> list[str]:
        """The names of those that are there."""
        return [name for name, value in vars(self).items() if value is not None]
