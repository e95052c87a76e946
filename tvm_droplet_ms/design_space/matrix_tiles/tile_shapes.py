# SPDX-License-Identifier: Apache-2.0
"""The matrix tiles that products are computed with, and what they cost. Imports no TVM.

A CPU with AMX has eight tiles of at most 16 rows of 64 bytes. One instruction adds, to a tile of
sums, the product of a tile of rows and a tile of columns.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

TILES = 8
"""The tile registers of a core."""

MOST_ROWS, MOST_LANES, ROW_BYTES = 16, 16, 64
"""The most rows of a tile, sums in a row (4 bytes each), and bytes in a row."""

_LOAD_CYCLES, _LOAD_CYCLES_OF_ROW, _LOAD_CYCLES_FROM_L2 = 7.0, 0.4, 26.0
"""What a load of a tile takes with its data in L1, and one of 16 rows in L2 (Sapphire Rapids)."""

_PANEL_BYTES = 24 << 10
"""The most bytes of weights that stay in L1 between two uses."""

_STORE_CYCLES = 40.0
"""What the start and the store of a tile of sums take, and what follows it, for 16 rows."""

_SPACES = 4
"""The combinations that are offered."""

_CLOSE = 1.25
"""Those are offered that take up to so many times as long as the fastest."""

_MOST_ADDED, _GAIN = 3, 0.9
"""The most rows and lines that are added, and the share of the time that they have to save."""

FEWEST_ROWS, _LEAST_TALL = 4, 3
"""The fewest rows or lines of a product, and rows of a tile: vectors are as fast with fewer."""


@dataclass(frozen=True)
class MacroTile:
    """The sums that are kept in tiles at a time.

    - ``rows``, ``lanes``: of one tile of sums.
    - ``depth``: the products that an instruction adds to each sum.
    - ``lines``, ``groups``, ``panels``: the tiles of sums along the axis outside of the rows, along
      the rows and along the lanes.
    - ``apart``: 1 where the panels are an axis outside of the rows, which lines are otherwise.
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
        """The tiles of rows that are multiplied by each tile of columns."""
        return self.lines * self.groups

    @property
    def sums(self) -> int:
        """The tiles of sums."""
        return self.along_rows * self.panels

    @property
    def held(self) -> tuple[int, int]:
        """The tiles of rows, and of columns, that are loaded at a time.

        Where a tile of one kind serves all, those of the other kind are loaded one by one.
        """
        if self.along_rows == 1 or self.panels == 1:
            return 1, 1
        return self.along_rows, self.panels

    def fits(self) -> bool:
        """True if all tiles have a register."""
        return self.sums + sum(self.held) <= TILES

    def cycles(self, steps: int) -> float:
        """The cycles for each row and lane of sums, with the rows in L1.

        ``steps``: the instructions for each tile of sums.
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
    """The largest divisor of an extent that is no larger than `most`."""
    return next(part for part in range(min(extent, most), 0, -1) if extent % part == 0)


def offered_tiles(
    rows: int, lines: int, panels: int, lanes: int, depth: int, steps: int
) -> list[MacroTile]:
    """The combinations of tiles to choose from, those that should be fastest first.

    ``rows``, ``lines``, ``panels``: the extents, in rows and in tiles. ``lanes``, ``depth``: see
    ``MacroTile``. ``steps``: the instructions for each tile of sums.
    """
    found = sorted(
        _combinations(rows, lines, panels, lanes, depth),
        key=lambda tile: (tile.cycles(steps), tile.lines, tile.panels),
    )
    offered: list[MacroTile] = []
    shapes: set[tuple[int, int, int]] = set()
    for tile in found:
        # Tiles of rows of one line and those of several lines load as much.
        shape = tile.rows, tile.along_rows, tile.panels
        is_close = tile.cycles(steps) <= _CLOSE * found[0].cycles(steps)
        if shape not in shapes and is_close and len(offered) < _SPACES:
            offered.append(tile)
            shapes.add(shape)
    return offered


def padded_map(
    rows: int, lines: int, panels: int, lanes: int, depth: int, steps: int
) -> tuple[int, int]:
    """The rows and lines to compute of a map, the last ones of which may be dropped.

    Seven lines are no multiple of what registers hold, and 19 rows of none that a tile has. As of
    ``offered_tiles``; the extents themselves where more are not faster by a tenth.
    """

    def cycles(tall: int, several: int) -> float:
        tiles = offered_tiles(tall, several, panels, lanes, depth, steps)
        return tall * several * tiles[0].cycles(steps) if tiles else math.inf

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
