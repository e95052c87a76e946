# SPDX-License-Identifier: Apache-2.0
"""Parameters and names of the intrinsics of a kernel in matrix tiles. Imports no TVM."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from .tile_shapes import MacroTile

PREFIX = "tvm_droplet_ms.matrix_tiles"
"""The prefix of the names of the intrinsics."""

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
"""Instructions by the dtypes of rows and columns."""


@dataclass(frozen=True)
class TileKind:
    """Parameters of the intrinsics of a kernel.

    - ``tile``: the tiles.
    - ``shared``, ``own``: the dtypes of the factor that all columns share, and of the columns.
    - ``stride``: the stride between rows of a tile, in rows of memory; 0 if the rows overlap.
    - ``pitch``: the stride between rows that overlap in a line of memory, in elements; otherwise 0.
    - ``middle``: the number of axes of one element between rows and lanes in memory.
    - ``index``: the dtype of indices.
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
        """The bytes of an element of a factor."""
        return _BYTES_OF[self.shared]

    @property
    def group(self) -> int:
        """The number of products in 4 contiguous bytes."""
        return 4 // self.element

    @property
    def sums(self) -> str:
        """The dtype of the sums."""
        return "float32" if self.shared == _HALF else "int32"

    def name(self, what: str) -> str:
        """Return the name of an intrinsic, such as "products", for these tiles."""
        one = self.tile
        shape = (one.rows, one.lanes, one.depth, one.lines, one.groups, one.panels, one.apart)
        numbers = "_".join(map(str, (*shape, self.stride, self.pitch, self.middle)))
        return f"{PREFIX}.{what}.{numbers}.{self.shared}.{self.own}.{self.index}"


def named_kinds(text: str) -> Iterator[tuple[str, str, TileKind]]:
    """Yield each intrinsic that a text names once: full name, short name, and parameters."""
    for name in dict.fromkeys(_NAME.findall(text)) if PREFIX in text else ():
        _, what, numbers, shared, own, index = name.rsplit(".", 5)
        *shape, stride, pitch, middle = map(int, numbers.split("_"))
        yield name, what, TileKind(MacroTile(*shape), shared, own, stride, pitch, middle, index)
