# SPDX-License-Identifier: Apache-2.0
"""Where to prefetch weights that loops walk through several times. Does not import TVM.

The loops of a tiled product read a panel of the weights once for each tile of the outputs. The
first time, the panel comes from memory, and the arithmetic waits for it. From the second time on,
it comes from a cache, and memory is idle. So each walk through a panel fetches its share of the
next panel. Matrix tiles compute faster than memory delivers even weights that are read in order. If
no panel is read again before the next one, each tile fetches the tile at a fixed distance.
"""

from collections.abc import Sequence
from math import ceil, prod
from typing import NamedTuple

LINE = 64
"""Number of bytes in a cache line."""

MOST_LINES = 16
"""Maximum number of lines that are fetched at once. More lines wait for each other, because a core
has a few dozen requests in flight. Fewer lines need a place closer to the arithmetic, where they
disturb LLVM's use of registers."""

FEWEST_WALKS = 4
"""Minimum number of walks through a panel in vectors. With two walks, memory is already busy half
of the time: three kernels of ResNet-50 became 2% slower. Matrix tiles compute ten times as fast and
wait for memory longer, so two walks are enough."""

TILE = 1024
"""Minimum number of bytes that a product of matrix tiles reads at once. Vectors read fewer."""

STREAM_AHEAD = 16384
"""Bytes from a tile to the tile that is fetched, if tiles are read in order. From L3 or memory, 7x7
layers of ResNet-50 then take 0.70 to 0.84 of the time."""

AHEAD = 8192
"""Minimum number of bytes from a panel to the panel that is fetched. The kernel reads this much
while it waits for memory."""


class Loop(NamedTuple):
    """A loop around a product, and how it moves through the weights.

    ``extent``: number of iterations. ``repeats``: number of iterations at one place of the weights,
    before the first iteration that moves: 1 if each moves, ``extent`` if none does. ``step``: the
    elements by which this iteration moves, 0 if none does. ``is_regular``: whether all moves have
    the same size. ``is_sum``: whether this is a reduction loop.
    """

    extent: int
    repeats: int
    step: int
    is_regular: bool
    is_sum: bool


class Term(NamedTuple):
    """``iteration // divisor % modulus * factor`` for a loop's iteration, in elements."""

    loop: int
    divisor: int
    modulus: int
    factor: int


class Place(NamedTuple):
    """Where to fetch, and which lines.

    ``loop``: number of the loop whose body begins with the fetch. ``inner``: number of iterations
    of that loop per fetch. If it is more than 1, the loop is to be split. ``lines``: number of
    consecutive lines to fetch. ``distance``: number of elements from the panel to the first line,
    to which the ``terms`` are added. ``within``: the loops that walk within the panel or repeat it.
    The panel begins where these are at 0. ``is_of_tiles``: whether the product reads whole matrix
    tiles.
    """

    loop: int
    inner: int
    lines: int
    distance: int
    terms: tuple[Term, ...]
    within: frozenset[int]
    is_of_tiles: bool


def place_prefetch(loops: Sequence[Loop], vector: int, itemsize: int) -> Place | None:
    """Find the place where a loop nest is to fetch weights.

    Parameters
    ----------
    loops : Sequence[Loop]
        The loops around the product, from the outermost.
    vector : int
        Number of consecutive elements that the product reads inside all loops.
    itemsize : int
        Number of bytes in an element.

    Returns
    -------
    place : Place or None
        None if the loops walk through the weights too few times or in an unsupported way.
    """
    is_of_tiles = vector * itemsize >= TILE
    sums = [number for number, loop in enumerate(loops) if loop.is_sum and loop.extent > 1]
    if not sums:
        return None
    walked, repeated, step = _panel(loops, sums[-1])
    if not walked or not step:
        return _place_in_stream(loops, vector, itemsize) if is_of_tiles else None
    moving = [*walked, *(n for n in range(sums[-1] + 1, len(loops)) if loops[n].step)]
    panel = vector + sum((loops[n].extent - 1) * loops[n].step for n in moving)
    if panel != vector * prod(loops[n].extent for n in moving):
        return None  # The panel is not contiguous: its weights are not packed.
    walks = prod(loops[number].repeats for number in repeated)
    if walks < FEWEST_WALKS and not is_of_tiles:
        return None
    lines = ceil(panel * itemsize / LINE / walks)
    entered = _entered(loops, walked, lines)
    times = prod(term.modulus for term in entered)
    lines = ceil(lines / times)
    if lines > MOST_LINES:
        return None
    stride = ceil(panel / (walks * times)) if lines == 1 else lines * LINE // itemsize
    terms = []
    # The terms are the digits of a number, from the last: the innermost place advances first.
    digits = [*(Term(n, 1, loops[n].repeats, 0) for n in repeated), *entered]
    for term in reversed(digits):
        terms.append(term._replace(factor=stride))
        stride *= term.modulus
    return Place(
        loop=entered[-1].loop if entered else repeated[-1],
        inner=entered[-1].divisor if entered else 1,
        lines=lines,
        distance=step * ceil(AHEAD / (panel * itemsize)),
        terms=tuple(terms),
        within=frozenset((*walked, *(n for n in repeated if loops[n].step == 0))),
        is_of_tiles=is_of_tiles,
    )


def _place_in_stream(loops: Sequence[Loop], vector: int, itemsize: int) -> Place | None:
    """Return the place to fetch tiles that are read in order; None if most are not read later.

    The loops inside the innermost sum may read several streams in turn. Vectors need no such place:
    CPUs fetch what they read in order.
    """
    moving = [number for number, loop in enumerate(loops) if loop.extent > 1 and loop.step]
    lines = ceil(vector * itemsize / LINE)
    if lines > MOST_LINES or not all(loops[n].is_regular and loops[n].step > 0 for n in moving):
        return None
    last_sum = max(number for number, loop in enumerate(loops) if loop.is_sum and loop.extent > 1)
    steps = [loops[number].step for number in moving if number <= last_sum]
    if steps != sorted(steps, reverse=True):
        return None
    distance, contiguous = STREAM_AHEAD // itemsize, vector
    for number in sorted(moving, key=lambda number: loops[number].step):
        if loops[number].step != contiguous:
            break
        contiguous *= loops[number].extent // loops[number].repeats
    if contiguous <= distance:
        return None
    return Place(max(moving), 1, lines, distance, (), frozenset(), True)


def _entered(loops: Sequence[Loop], walked: Sequence[int], lines: int) -> list[Term]:
    """Return the loops to enter until few lines are left per fetch; the last loop may be split.

    The factors of the terms are 0. ``lines``: number of lines to fetch per walk through the panel.
    """
    entered: list[Term] = []
    times = 1
    for number in walked:
        if lines <= times * MOST_LINES or (entered and entered[-1].divisor > 1):
            break
        extent = loops[number].extent
        least = ceil(lines / (times * MOST_LINES))
        pieces = next((n for n in range(least, extent) if extent % n == 0), extent)
        entered.append(Term(number, extent // pieces, pieces, 0))
        times *= pieces
    return entered


def _panel(loops: Sequence[Loop], innermost: int) -> tuple[list[int], list[int], int]:
    """Return the loops that walk through a panel, the loops that repeat it, and the panel step.

    Loops are in order from the outermost. The step leads to the next panel. It is 0 if nothing
    repeats the walk, or if there is no next panel.
    """
    number = innermost
    walked: list[int] = []
    while number >= 0 and (loops[number].extent == 1 or loops[number].repeats == 1):
        if loops[number].extent > 1:
            if not loops[number].is_regular or loops[number].step < 0:
                return [], [], 0
            walked.insert(0, number)
        number -= 1
    repeated: list[int] = []
    while number >= 0:
        loop = loops[number]
        if loop.extent > 1:
            if loop.repeats == 1:
                return walked, repeated, loop.step
            repeated.insert(0, number)
            if loop.repeats < loop.extent:
                return walked, repeated, loop.step
        number -= 1
    return walked, repeated, 0
