# SPDX-License-Identifier: Apache-2.0
"""The combinations of tiles, compared with all there are, and with what was measured."""

from itertools import product

import pytest

from tvm_droplet_ms.design_space.matrix_tiles.kept_tiles import (
    configuration,
    function_code,
    function_name,
)
from tvm_droplet_ms.design_space.matrix_tiles.tile_shapes import (
    MacroTile,
    largest_part,
    offered_tiles,
    padded_map,
)


@pytest.mark.parametrize(
    ("lines", "groups", "panels", "fits"),
    [
        *((1, 2, 2, True), (2, 1, 2, True), (1, 4, 1, True), (1, 6, 1, True), (1, 1, 6, True)),
        *((1, 7, 1, False), (1, 3, 2, False), (2, 2, 2, False)),
    ],
)
def test_eight_registers_hold_sums_and_what_is_multiplied(lines, groups, panels, fits):
    assert MacroTile(16, 16, 64, lines, groups, panels).fits() == fits


@pytest.mark.parametrize(
    ("rows", "lines", "panels", "steps"),
    [(56, 56, 4, 18), (14, 14, 16, 72), (7, 7, 32, 144), (197, 1, 12, 6), (1500, 1, 24, 12)],
)
def test_the_first_one_is_the_fastest_of_all(rows, lines, panels, steps):
    """All combinations that divide and fit, by brute force."""
    every = [
        MacroTile(tall, 16, 32, several, groups, wide)
        for tall, several, groups, wide in product(range(3, 17), range(1, 8), *[range(1, 8)] * 2)
        if rows % (tall * groups) == 0 and lines % several == 0 and panels % wide == 0
    ]
    every = [tile for tile in every if tile.fits()]
    found = offered_tiles(rows, lines, panels, 16, 32, steps)
    if not every:
        assert not found
        return
    assert set(found) <= set(every)
    assert found[0].cycles(steps) == min(tile.cycles(steps) for tile in every)
    assert all(tile.cycles(steps) <= 1.5 * found[0].cycles(steps) for tile in found)


def test_the_cycles_are_near_what_was_measured():
    """Nanoseconds at 3.3 GHz for four products with their loads from L1 (Sapphire Rapids)."""
    measured = {(16, 2, 2): 19.2, (16, 1, 4): 18.8, (16, 4, 1): 19.3, (13, 2, 2): 17.6}
    measured |= {(7, 2, 2): 16.0, (7, 4, 1): 16.0, (7, 1, 4): 19.9, (7, 6, 1): 14.5}
    for (rows, groups, panels), nanoseconds in measured.items():
        tile = MacroTile(rows, 16, 64, 1, groups, panels)
        # As many steps as stay in L1; what starts and stores a tile is left out.
        steps = 1000
        alone = tile.cycles(steps) * tile.sums * rows * 16 / steps
        near = MacroTile(rows, 16, 64, 1, groups, panels).cycles(4)
        assert near > 0
        expected = nanoseconds * 3.3 * tile.sums / 4
        assert 0.7 < alone / expected < 2.0


@pytest.mark.parametrize(
    ("extents", "expected"), [((7, 7), (7, 8)), ((14, 14), (14, 14)), ((56, 56), (56, 56))]
)
def test_seven_lines_become_eight(extents, expected):
    assert padded_map(*extents, 32, 16, 32, 144) == expected


def test_rows_that_no_tile_divides_are_padded():
    """197 is prime; 19 rows, too."""
    rows, lines = padded_map(197, 1, 12, 16, 32, 24)
    assert lines == 1 and 197 < rows <= 212
    assert any(rows % tall == 0 for tall in range(10, 17))
    rows, _ = padded_map(19, 19, 6, 16, 32, 36)
    assert rows > 19
    assert padded_map(1, 1, 6, 16, 32, 36) == (1, 1)


@pytest.mark.parametrize(
    ("extent", "most", "part"), [(16, 16, 16), (24, 16, 12), (7, 4, 1), (13, 16, 13)]
)
def test_the_largest_part(extent, most, part):
    assert largest_part(extent, most) == part
    assert part == max(n for n in range(1, most + 1) if extent % n == 0)


def test_a_configuration_is_what_the_manual_says():
    """Palette 1; bytes of rows from byte 16 on, two for each tile; rows from byte 48 on.

    Two by two sums of 14 x 16, rows of 32 bfloat16, columns of 16 pairs.
    """
    layout = configuration(MacroTile(14, 16, 32, 1, 2, 2), 2)
    assert layout[0] == 1 and not any(layout[1:16]) and not any(layout[32:48] + layout[56:])
    assert list(layout[16:32:2]) == [64] * 8 and not any(layout[17:32:2])
    assert list(layout[48:56]) == [14, 14, 14, 14, 14, 14, 16, 16]
    # One tile of rows for four of columns: sums of 12 lanes, 24 bytes in a row.
    layout = configuration(MacroTile(5, 12, 24, 1, 1, 4), 1)
    assert list(layout[16:32:2]) == [48, 48, 48, 48, 24, 48, 48, 48]
    assert list(layout[48:56]) == [5, 5, 5, 5, 5, 6, 6, 6]


def test_the_function_has_the_name_and_the_bytes_of_its_configuration():
    one, other = MacroTile(14, 16, 32, 1, 2, 2), MacroTile(7, 16, 32, 1, 4, 1)
    code = function_code(2, one, other, one)
    for tile in (one, other):
        name = function_name(tile, 2)
        assert code.count(f"define void @{name}()") == 1
        text = code.split(f'@{name}_layout = private constant [64 x i8] c"')[1].split('"')[0]
        assert bytes.fromhex(text.replace("\\", "")) == configuration(tile, 2)
    assert "\n" not in code
