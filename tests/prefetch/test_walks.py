# SPDX-License-Identifier: Apache-2.0
"""Tests of where weights are fetched, against nests of loops that are run one by one."""

from collections.abc import Iterator
from itertools import product
from math import prod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tvm_droplet_ms.measure.prefetch.walks import (
    AHEAD,
    FEWEST_WALKS,
    LINE,
    MOST_LINES,
    STREAM_AHEAD,
    TILE,
    Loop,
    Place,
    place_prefetch,
)


def walking(extent: int, step: int, *, is_sum: bool = False) -> Loop:
    return Loop(extent, 1, step, True, is_sum)


def repeating(extent: int) -> Loop:
    return Loop(extent, extent, 0, True, False)


def nest(panels: int, walks: int, sums: list[int], pixels: int, vector: int) -> list[Loop]:
    """A tiled product whose packed weights are read in order, with `walks` walks of each panel."""
    steps = [vector * prod(sums[number + 1 :]) for number in range(len(sums))]
    return [
        walking(panels, vector * prod(sums)),
        repeating(walks),
        *(walking(extent, step, is_sum=True) for extent, step in zip(sums, steps, strict=True)),
        repeating(pixels),
        walking(vector, 1),
    ]


def offset(loops: list[Loop], at: tuple[int, ...]) -> int:
    return sum(i // loop.repeats * loop.step for i, loop in zip(at, loops, strict=True))


def run(
    loops: list[Loop], place: Place, itemsize: int, vector: int = 1
) -> Iterator[tuple[str, int]]:
    """What the nest does, one after the other: ("fetch", line) and ("read", line)."""
    for at in product(*(range(loop.extent) for loop in loops)):
        if not any(at[place.loop + 1 :]) and at[place.loop] % place.inner == 0:
            begin = tuple(0 if n in place.within or n > place.loop else i for n, i in enumerate(at))
            start = offset(loops, begin) + place.distance
            for term in place.terms:
                start += at[term.loop] // term.divisor % term.modulus * term.factor
            for number in range(place.lines):
                yield "fetch", start * itemsize // LINE + number
        first = offset(loops, at) * itemsize
        for line in range(first // LINE, (first + vector * itemsize - 1) // LINE + 1):
            yield "read", line


def check(loops: list[Loop], place: Place, panel: int, itemsize: int, vector: int = 1) -> None:
    """Every panel but the first ones is fetched before it is read, and little more than once."""
    first = place.distance * itemsize // LINE
    fetched: set[int] = set()
    read: set[int] = set()
    fetches = 0
    for what, line in run(loops, place, itemsize, vector):
        if what == "fetch":
            fetches += 1
            fetched.add(line)
        elif line not in read:
            read.add(line)
            assert line < first or line in fetched
    assert place.distance * itemsize >= AHEAD
    assert place.lines <= MOST_LINES
    # Each walk rounds its share up to lines, at each of the places in it.
    walks = loops[1].extent
    times = prod(term.modulus for term in place.terms) // walks
    assert fetches * LINE <= loops[0].extent * (panel * itemsize + walks * times * LINE)


@given(
    st.integers(2, 5),
    st.integers(4, 9),
    st.lists(st.integers(1, 12), min_size=1, max_size=3),
    st.sampled_from([(8, 4), (16, 4), (64, 1), (32, 4)]),
)
@settings(max_examples=60, deadline=None, derandomize=True)
def test_panels_are_fetched_before_they_are_read(
    panels: int, walks: int, sums: list[int], vectors: tuple[int, int]
) -> None:
    vector, itemsize = vectors
    loops = nest(panels, walks, sums, 2, vector)
    place = place_prefetch(loops, 1, itemsize)
    if prod(sums) == 1:
        assert place is None  # Nothing is summed.
    else:
        assert place is not None
        check(loops, place, vector * prod(sums), itemsize)


def test_long_walks_are_split() -> None:
    """A walk of 48 kB, repeated 4 times: 192 lines a walk are fetched 16 at a time."""
    loops = nest(3, 4, [192], 2, 64)
    place = place_prefetch(loops, 1, 4)
    assert place is not None
    assert (place.loop, place.inner, place.lines) == (2, 16, 16)
    check(loops, place, 192 * 64, 4)


def test_short_walks_are_fetched_before_they_begin() -> None:
    """A panel of 3 kB, repeated 7 times: 7 lines a walk, and three panels ahead."""
    loops = nest(4, 7, [3, 8], 2, 32)
    place = place_prefetch(loops, 1, 4)
    assert place is not None
    assert (place.loop, place.inner, place.lines) == (1, 1, 7)
    assert place.distance == 3 * 3 * 8 * 32
    check(loops, place, 3 * 8 * 32, 4)


def test_a_fused_loop_repeats_a_panel_some_times() -> None:
    """The first of a parallel loop's iterations: 5 walks through each of 3 panels."""
    apart = nest(3, 5, [64], 2, 32)
    fused = [Loop(15, 5, 64 * 32, True, False), *apart[2:]]
    place, other = place_prefetch(fused, 1, 4), place_prefetch(apart, 1, 4)
    assert place is not None
    assert other is not None
    numbers = [number for what, number in run(fused, place, 4) if what == "fetch"]
    assert numbers == [number for what, number in run(apart, other, 4) if what == "fetch"]


def tiles(panels: int, walks: int, sums: list[int], itemsize: int) -> list[Loop]:
    """A product in matrix tiles, whose innermost loop computes one tile."""
    return nest(panels, walks, sums, 1, TILE // itemsize)[:-1]


@given(
    st.integers(2, 4),
    st.integers(2, 5),
    st.lists(st.integers(1, 6), min_size=1, max_size=3).filter(lambda sums: prod(sums) > 1),
    st.sampled_from([1, 2]),
)
@settings(max_examples=40, deadline=None, derandomize=True)
def test_two_walks_through_a_panel_of_tiles_are_enough(
    panels: int, walks: int, sums: list[int], itemsize: int
) -> None:
    loops, vector = tiles(panels, walks, sums, itemsize), TILE // itemsize
    place = place_prefetch(loops, vector, itemsize)
    assert place is not None and place.is_of_tiles and place.terms
    check(loops, place, vector * prod(sums), itemsize, vector)
    if walks < FEWEST_WALKS:
        assert (
            place_prefetch(tiles(panels, walks, sums, 2 * itemsize), vector // 2, itemsize) is None
        )


def stream_of(loops: list[Loop], itemsize: int) -> list[tuple[str, int]]:
    place = place_prefetch(loops, TILE // itemsize, itemsize)
    assert place is not None and place.is_of_tiles and not place.terms
    assert place.distance * itemsize == STREAM_AHEAD
    return list(run(loops, place, itemsize, TILE // itemsize))


@pytest.mark.parametrize("itemsize", [1, 2])
@pytest.mark.parametrize(
    ("panels", "sums"), [pytest.param(5, [3, 7], id="panels"), pytest.param(1, [24], id="one")]
)
def test_tiles_that_are_read_in_order_are_fetched_once(
    panels: int, sums: list[int], itemsize: int
) -> None:
    """The lines of each tile after the first 16 kB, long before they are read."""
    steps = stream_of(tiles(panels, 1, sums, itemsize), itemsize)
    fetched = [line for what, line in steps if what == "fetch"]
    first = STREAM_AHEAD // LINE
    assert fetched == list(range(first, first + panels * prod(sums) * TILE // LINE))
    when = {step: number for number, step in enumerate(steps)}
    reads = [line for what, line in steps if what == "read" and line >= first]
    assert reads and all(
        when["read", line] - when["fetch", line] > 15 * 2 * TILE // LINE for line in reads
    )


def test_a_tile_that_is_used_twice_is_fetched_once() -> None:
    """Each is read for two tiles of rows: the fetch is outside of their loop."""
    loops = [*tiles(5, 1, [3, 7], 2), repeating(2)]
    fetched = [line for what, line in stream_of(loops, 2) if what == "fetch"]
    assert len(fetched) == len(set(fetched)) == 5 * 3 * 7 * TILE // LINE


def test_panels_that_are_read_in_turn_are_streams() -> None:
    """Two panels of 32 kB: each is fetched 16 kB ahead of where it is read."""
    loops = [walking(3, 64 * 512), walking(32, 512, is_sum=True), walking(2, 32 * 512)]
    fetched: set[int] = set()
    panel, first = 32 * TILE // LINE, STREAM_AHEAD // LINE
    for what, line in stream_of(loops, 2):
        if what == "fetch":
            fetched.add(line)
        elif line % panel >= first:
            assert line in fetched


@pytest.mark.parametrize(
    ("loops", "vector"),
    [
        pytest.param(nest(5, 1, [32], 1, 256)[:-1], 256, id="vectors"),
        pytest.param(tiles(1, 1, [16], 2), 512, id="no more than the distance"),
        pytest.param([walking(64, 1024, is_sum=True)], 512, id="not packed"),
        pytest.param([Loop(64, 1, 512, False, True)], 512, id="irregular"),
        pytest.param([walking(64, -512, is_sum=True)], 512, id="backward"),
        pytest.param([walking(8, 512), walking(64, 4096, is_sum=True)], 512, id="across"),
        pytest.param([repeating(64)._replace(is_sum=True)], 512, id="one tile"),
        pytest.param(nest(5, 1, [32], 1, 1024)[:-1], 1024, id="many lines at once"),
    ],
)
def test_other_nests_have_no_stream(loops: list[Loop], vector: int) -> None:
    assert place_prefetch(loops, vector, 2) is None


@pytest.mark.parametrize(
    "loops",
    [
        pytest.param(nest(3, 3, [64], 2, 32), id="few walks"),
        pytest.param(nest(3, 7, [64], 2, 32)[1:], id="no next panel"),
        pytest.param(nest(3, 7, [64], 2, 32)[:1] + nest(3, 7, [64], 2, 32)[2:], id="one walk"),
        pytest.param(
            [walking(3, 32), repeating(7), walking(64, 96, is_sum=True), walking(32, 1)],
            id="not packed",
        ),
        pytest.param(
            [*nest(3, 7, [64], 2, 32)[:2], Loop(64, 1, 32, False, True), walking(32, 1)],
            id="irregular",
        ),
        pytest.param([walking(3, 32), repeating(7), walking(32, 1)], id="no sum"),
        pytest.param(nest(4, 4, [2], 1, 4096), id="many lines at once"),
    ],
)
def test_other_nests_fetch_nothing(loops: list[Loop]) -> None:
    assert place_prefetch(loops, 1, 4) is None
