# SPDX-License-Identifier: Apache-2.0
"""What the intrinsics of a kernel in matrix tiles depend on, and their names. Imports no TVM."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from .tile_shapes import MacroTile

PREFIX = "tvm_droplet_ms.matrix_tiles"
"""How the names of the intrinsics begin."""

_NAME = re.compile(re.escape(PREFIX) + r"\.[a-z0-9_.]+")

_HALF = "bfloat16"
_BYTES_OF = {_HALF: 2, "uint8": 1, "int8": 1}

MULTIPLY = {
    (_HALF, _HALF): "tdpbf16ps",
    ("uint8", "int8"): "tdpbusd",
    ("int8", "uint8"): "tdpbsud",
    ("int8", "int8"): "tdpbssd",
    ("uint8", "uint8"): "tdpbuud",
}
"""The instructions by the types of rows and columns."""


@dataclass(frozen=True)
class TileKind:
    """What the intrinsics of a kernel depend on.

    - ``tile``: the tiles.
    - ``shared``, ``own``: the types of the numbers that all columns share, and of the columns'.
    - ``stride``: how many rows of memory lie between two rows of a tile; 0 where these overlap.
    - ``pitch``: the elements between two rows that overlap in a line of memory, or else 0.
    - ``middle``: the axes of one element between rows and lanes in memory.
    - ``index``: the type of indices.
    """

    tile: MacroTile
    shared: str
    own: str
    stride: int
    pitch: int
    middle: int
    index: str

    @property
    def element(self) -> int:
        """The bytes of a factor."""
        return _BYTES_OF[self.shared]

    @property
    def group(self) -> int:
        """The products that lie side by side in 4 bytes."""
        return 4 // self.element

    @property
    def sums(self) -> str:
        """The type that is added up in."""
        return "float32" if self.shared == _HALF else "int32"

    def name(self, what: str) -> str:
        """The name of an intrinsic, such as "products", for these tiles."""
        one = self.tile
        shape = (one.rows, one.lanes, one.depth, one.lines, one.groups, one.panels, one.apart)
        numbers = "_".join(map(str, (*shape, self.stride, self.pitch, self.middle)))
        return f"{PREFIX}.{what}.{numbers}.{self.shared}.{self.own}.{self.index}"


def named_kinds(text: str) -> Iterator[tuple[str, str, TileKind]]:
    """The intrinsics that a text names, each once: their names, and what these say."""
    for name in dict.fromkeys(_NAME.findall(text)) if PREFIX in text else ():
        _, what, numbers, shared, own, index = name.rsplit(".", 5)
        *shape, stride, pitch, middle = map(int, numbers.split("_"))
        yield name, what, TileKind(MacroTile(*shape), shared, own, stride, pitch, middle, index)
