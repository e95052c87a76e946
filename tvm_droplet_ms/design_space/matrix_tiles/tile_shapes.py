# SPDX-License-Identifier: Apache-2.0
"""Shapes and costs of the matrix tiles for products, and names of intrinsics. Imports no TVM.

A CPU with AMX has eight tiles of at most 16 rows of 64 bytes. One instruction adds, to a tile of
sums, the product of a tile of rows and a tile of columns.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

TILES = 8
"""Number of tile registers of a core."""

MOST_ROWS, MOST_LANES, ROW_BYTES = 16, 16, 64
"""Maximum rows of a tile, sums in a row (4 bytes each), and bytes in a row."""

_LOAD_CYCLES, _LOAD_CYCLES_OF_ROW, _LOAD_CYCLES_FROM_L2 = 1.0, 1.0, 21.0
"""Cycles of a tile load from L1, fixed and per row, and of 16 rows from L2 (Sapphire Rapids)."""

_PANEL_BYTES = 24 << 10
"""Maximum bytes of weights that stay in L1 between two uses."""

_STORE_CYCLES = 40.0
"""Cycles to start and store a tile of sums of 16 rows, and to compute its consumers."""

_SPACES = 4
"""Maximum number of offered combinations."""

_CLOSE = 1.25
"""Maximum time of an offered combination, as a multiple of the fastest one's time."""

_MOST_ADDED, _GAIN, _GAIN_OF_JOINED = 3, 0.9, 0.95
"""Maximum number of added rows or lines, and the relative times below which added and joined ones
are used."""

_MOST_JOINED = 128
"""Maximum rows of joined lines. The consumer reads all their sums of a panel from L1."""

FEWEST_ROWS, _LEAST_TALL = 4, 3
"""Minimum rows or lines of a product, or rows of joined lines, and rows of a tile: with fewer,
vectors are as fast."""


@dataclass(frozen=True)
class MacroTile:
    """The sums that are kept in tiles at a time.

    - ``rows``, ``lanes``: the shape of one tile of sums.
    - ``depth``: the products that an instruction adds to each sum.
    - ``lines``, ``groups``, ``panels``: the numbers of tiles of sums along the axis outside the
      rows, along the rows and along the lanes.
    - ``apart``: 1 if the axis outside the rows is over panels, 0 if it is over lines.
    """

    rows: int
    lanes: int
    depth: int
    lines: int = 1
    groups: int = 1
    panels: int = 1
    apart: int = 0

    @property
    def along_rows(self) -> int:
        """The number of tiles of rows that are multiplied by each tile of columns."""
        return self.lines * self.groups

    @property
    def sums(self) -> int:
        """The number of tiles of sums."""
        return self.along_rows * self.panels

    @property
    def held(self) -> tuple[int, int]:
        """The numbers of tiles of rows and of columns that are loaded at a time.

        If there is only one tile of one kind, the tiles of the other kind are loaded one by one.
        """
        if self.along_rows == 1 or self.panels == 1:
            return 1, 1
        return self.along_rows, self.panels

    def fits(self) -> bool:
        """Return whether all tiles have a register."""
        return self.sums + sum(self.held) <= TILES

    def cycles(self, steps: int) -> float:
        """Return the cycles per sum, with the rows in L1.

        ``steps``: the number of instructions for each tile of sums.
        """
        is_near = steps * self.panels * MOST_ROWS * ROW_BYTES <= _PANEL_BYTES
        of_columns = _load(MOST_ROWS) if is_near else _LOAD_CYCLES_FROM_L2
        loads = self.along_rows * _load(self.rows) + self.panels * of_columns
        step = max(float(self.sums * self.rows), loads)
        store = self.sums * _STORE_CYCLES * self.rows / MOST_ROWS
        return (steps * step + store) / (self.sums * self.rows * self.lanes)


def _load(rows: int) -> float:
    return _LOAD_CYCLES + _LOAD_CYCLES_OF_ROW * rows


def largest_part(extent: int, most: int) -> int:
    """Return the largest divisor of an extent that is at most `most`."""
    return next(part for part in range(min(extent, most), 0, -1) if extent % part == 0)


def offered_tiles(
    rows: int, lines: int, panels: int, lanes: int, depth: int, steps: int
) -> list[MacroTile]:
    """Return the combinations of tiles to choose from, the fastest by estimate first.

    ``rows``, ``lines``, ``panels``: the product's extents. ``lanes``, ``depth``: see
    ``MacroTile``. ``steps``: the number of instructions for each tile of sums.
    """
    found = sorted(
        _combinations(rows, lines, panels, lanes, depth),
        key=lambda tile: (tile.cycles(steps), tile.lines, tile.panels),
    )
    offered: list[MacroTile] = []
    shapes: set[tuple[int, int, int]] = set()
    for tile in found:
        # Tiles of rows from one line and from several lines need as many loads.
        shape = tile.rows, tile.along_rows, tile.panels
        is_close = tile.cycles(steps) <= _CLOSE * found[0].cycles(steps)
        if shape not in shapes and is_close and len(offered) < _SPACES:
            offered.append(tile)
            shapes.add(shape)
    return offered


def map_cycles(rows: int, lines: int, panels: int, lanes: int, depth: int, steps: int) -> float:
    """Return the cycles per output channel of a map in the fastest tiles; infinite without tiles.

    Arguments: see ``offered_tiles``.
    """
    tiles = offered_tiles(rows, lines, panels, lanes, depth, steps)
    return rows * lines * tiles[0].cycles(steps) if tiles else math.inf


def joined_lines(
    rows: int, lines: int, pitch: int, panels: int, lanes: int, depth: int, steps: int
) -> int:
    """Return the lines of a map to compute if all its rows are one axis; 0 if that is not faster.

    ``pitch``: the rows from one line to the next. Other arguments: see ``offered_tiles``. The
    alternative is the map of ``padded_map``.
    """
    if lines == 1 or rows * lines < FEWEST_ROWS:
        return 0
    product = panels, lanes, depth, steps
    found = [n for n in range(lines, lines + _MOST_ADDED + 1) if n * pitch <= _MOST_JOINED]
    best = min(found, key=lambda n: map_cycles(n * pitch, 1, *product), default=0)
    apart = map_cycles(*padded_map(rows, lines, *product), *product)
    is_faster = best and map_cycles(best * pitch, 1, *product) < _GAIN_OF_JOINED * apart
    return best if is_faster else 0


def padded_map(
    rows: int, lines: int, panels: int, lanes: int, depth: int, steps: int
) -> tuple[int, int]:
    """Return the rows and lines of a map to compute; excess rows and lines are dropped.

    Seven lines are not a multiple of what the registers hold, and 19 rows are not a multiple of any
    tile's rows. Arguments: see ``offered_tiles``. Returns the extents themselves unless larger
    extents are faster by a tenth.
    """

    def cycles(tall: int, several: int) -> float:
        return map_cycles(tall, several, panels, lanes, depth, steps)

    if max(rows, lines) < FEWEST_ROWS:
        return rows, lines
    own = cycles(rows, lines)
    more_lines = range(lines, lines + _MOST_ADDED + 1) if lines > 1 else (1,)
    most = _MOST_ADDED if lines > 1 else MOST_ROWS - 1
    candidates = [(tall, n) for tall in range(rows, rows + most + 1) for n in more_lines]
    best = min(candidates, key=lambda extents: (cycles(*extents), extents))
    return best if cycles(*best) < _GAIN * own else (rows, lines)


def _combinations(
    rows: int, lines: int, panels: int, lanes: int, depth: int
) -> Iterator[MacroTile]:
    for tall in (n for n in range(_LEAST_TALL, MOST_ROWS + 1) if rows % n == 0):
        for groups in (n for n in range(1, TILES) if rows // tall % n == 0):
            for several in (n for n in range(1, TILES) if lines % n == 0):
                for wide in (n for n in range(1, TILES) if panels % n == 0):
                    tile = MacroTile(tall, lanes, depth, several, groups, wide)
                    if tile.fits():
                        yield tile


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
