# SPDX-License-Identifier: Apache-2.0
"""Where to prefetch weights that loops walk through several times. Imports no TVM.

The loops of a tiled product read a panel of the weights once for each tile of the outputs. The
first time it comes from the memory, which the arithmetic then waits for; from the second time on
it comes from a cache, and the memory has nothing to do. So each walk through a panel fetches its
share of the next one.
"""

from collections.abc import Sequence
from math import ceil, prod
from typing import NamedTuple

LINE = 64
"""The bytes of a line of the caches."""

MOST_LINES = 16
"""The most lines that are fetched at once. More wait for each other: a core has a few dozen
requests in flight. Fewer need a place closer to the arithmetic, where they disturb LLVM's
registers."""

FEWEST_WALKS = 4
"""The fewest walks through a panel. With two, the memory is busy half of the time as it is: three
kernels of ResNet-50 became 2% slower."""

AHEAD = 8192
"""The bytes from a panel to the one that is fetched, at least: what is read while the memory
answers."""


class Loop(NamedTuple):
    """A loop around a product, and how it moves through the weights.

    ``extent``: its iterations. ``repeats``: iterations at one place of the weights, before the
    first that moves: 1 where each moves, ``extent`` where none does. ``step``: the elements that
    it then moves by, 0 where none does. ``is_regular``: it moves by as much each time. ``is_sum``:
    it is one of the loops that add up.
    """

    extent: int
    repeats: int
    step: int
    is_regular: bool
    is_sum: bool


class Term(NamedTuple):
    """``iteration // divisor % modulus * factor``, in elements, of a loop's iteration."""

    loop: int
    divisor: int
    modulus: int
    factor: int


class Place(NamedTuple):
    """Where to fetch, and what.

    ``loop``: the number of the loop at the beginning of whose body it is. ``inner``: the
    iterations of that loop after which it is done again; 1 in each. The loop is to be split where
    there are more. ``lines``: lines to fetch, one after the other. ``distance``: elements from the
    panel to the first of them, to which the ``terms`` are added.
    ``within``: the loops that walk within the panel or repeat it: the panel begins where these are
    at 0.
    """

    loop: int
    inner: int
    lines: int
    distance: int
    terms: tuple[Term, ...]
    within: frozenset[int]


def place_prefetch(loops: Sequence[Loop], vector: int, itemsize: int) -> Place | None:
    """Find the place where a nest of loops is to fetch weights.

    Parameters
    ----------
    loops : Sequence[Loop]
        The loops around the product, from the outermost.
    vector : int
        The consecutive elements that the product reads inside all loops.
    itemsize : int
        The bytes of an element.

    Returns
    -------
    place : Place or None
        None where the weights are walked through once, or in a way that is not understood.
    """
    sums = [number for number, loop in enumerate(loops) if loop.is_sum and loop.extent > 1]
    if not sums:
        return None
    walked, repeated, step = _panel(loops, sums[-1])
    if not walked or not step:
        return None
    moving = [*walked, *(n for n in range(sums[-1] + 1, len(loops)) if loops[n].step)]
    panel = vector + sum((loops[n].extent - 1) * loops[n].step for n in moving)
    if panel != vector * prod(loops[n].extent for n in moving):
        return None  # The panel is not in one piece: its weights are not packed.
    walks = prod(loops[number].repeats for number in repeated)
    if walks < FEWEST_WALKS:
        return None
    lines = ceil(panel * itemsize / LINE / walks)
    entered = _entered(loops, walked, lines)
    times = prod(term.modulus for term in entered)
    lines = ceil(lines / times)
    if lines > MOST_LINES:
        return None
    stride = ceil(panel / (walks * times)) if lines == 1 else lines * LINE // itemsize
    terms = []
    # The innermost place comes next in the weights: as the digits of a number, from the last.
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
    )


def _entered(loops: Sequence[Loop], walked: Sequence[int], lines: int) -> list[Term]:
    """The loops to go into until few lines are left for each time; the last one may be split.

    With the factors 0. ``lines``: those of a walk through the panel.
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
    """The loops that walk through a panel, those that repeat the walk, and the step to the next.

    All from the outermost. The step is 0 where nothing repeats the walk, or there is no next panel.
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
