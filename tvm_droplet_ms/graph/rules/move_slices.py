# SPDX-License-Identifier: Apache-2.0
"""Move: slices and concatenations meet and vanish. Imports no TVM."""

from collections.abc import Iterator
from functools import partial

from ..cases import Case, CaseMaker
from ..equality.egraph import EGraph
from .draws import random_slice
from .rule import Conditions, Equality, Rule, declare
from .terms import Part, concat, pieces_of, sliced

_rule = partial(declare, "move")


def _slices_of_concat(graph: EGraph, when: Conditions) -> Iterator[Equality]:
    """A slice of [x y] is one of x, of y, or [slice(x) slice(y)]."""
    for number, node in graph.named("strided_slice"):
        for inner in graph.named_in(node.children[0], "concat"):
            axis = inner.operator.get("axis")
            pieces = pieces_of(node.operator)
            along = [piece for piece in pieces if piece[0] == axis]
            if not along:
                parts: list[Part] = [sliced(child, pieces) for child in inner.children]
                yield Equality(number, concat(parts, axis))
                continue
            ((_, begin, end, stride),) = along
            start = 0
            for child in inner.children:
                extent = graph.shape(child)[axis]
                if when("within one part", start <= begin and end <= start + extent):
                    rest = [piece for piece in pieces if piece[0] != axis]
                    moved = (axis, max(begin - start, 0), min(end - start, extent), stride)
                    if moved[1] < moved[2]:
                        yield Equality(number, sliced(child, [*rest, moved]))
                start += extent


def _slice_of_concat_case(make: CaseMaker) -> Case:
    axis = make.integer(0, 1)
    parts: list[Part] = []
    total = 0
    for _ in range(make.integer(2, 3)):
        extent = make.integer(1, 3)
        total += extent
        parts.append(make.input(*[extent if each == axis else 3 for each in range(2)]))
    shape = tuple(total if each == axis else 3 for each in range(2))
    return make.case(random_slice(make, concat(parts, axis), shape))


def _whole_slices(graph: EGraph, when: Conditions) -> Iterator[Equality]:
    """A slice of everything is what it is taken of."""
    for number, node in graph.named("strided_slice"):
        shape = graph.shape(node.children[0])
        whole = all(
            (begin, stride) == (0, 1) and end == shape[axis]
            for axis, begin, end, stride in pieces_of(node.operator)
        )
        if when("of everything", whole):
            yield Equality(number, node.children[0])


def _whole_slice_case(make: CaseMaker) -> Case:
    piece = (make.integer(0, 1), make.pick([0, 0, 0, 1]), make.pick([2, 3, 3]), 1)
    return make.case(sliced(make.input(3, 3), [piece]))


def _nested_slices(graph: EGraph, when: Conditions) -> Iterator[Equality]:
    """A slice of a slice is a slice."""
    for number, node in graph.named("strided_slice"):
        for inner in graph.named_in(node.children[0], "strided_slice"):
            taken = {
                axis: (begin, end, stride) for axis, begin, end, stride in pieces_of(inner.operator)
            }
            for axis, begin, end, stride in pieces_of(node.operator):
                first, last, step = taken.get(axis, (0, graph.shape(inner.children[0])[axis], 1))
                stop = first + (end - 1) * step + 1
                taken[axis] = (first + begin * step, min(stop, last), step * stride)
            pieces = [(axis, *bounds) for axis, bounds in sorted(taken.items())]
            yield Equality(number, sliced(inner.children[0], pieces))


def _nested_slice_case(make: CaseMaker) -> Case:
    first = make.integer(0, 2)
    step = make.pick([1, 1, 2])
    inner = sliced(make.input(8, 4), [(0, first, make.integer(first + 3, 8), step)])
    return make.case(random_slice(make, inner, (2, 4)))


def _concat_of_slices(graph: EGraph, when: Conditions) -> Iterator[Equality]:
    """[x[:a] x[a:b] ...] = x[:b]."""
    for number, node in graph.named("concat"):
        axis = node.operator.get("axis")
        for first in graph.named_in(node.children[0], "strided_slice"):
            pieces = pieces_of(first.operator)
            if len(pieces) != 1 or pieces[0][0] != axis or pieces[0][3] != 1:
                continue
            end = pieces[0][2]
            for child in node.children[1:]:
                found = _next_piece(graph, when, child, first.children[0], axis, end)
                if found is None:
                    break
                end = found
            else:
                yield Equality(number, sliced(first.children[0], [(axis, pieces[0][1], end, 1)]))


def _next_piece(
    graph: EGraph, when: Conditions, number: int, source: int, axis: int, begin: int
) -> int | None:
    """The end of a slice of a source that begins at some place."""
    for node in graph.named_in(number, "strided_slice"):
        pieces = pieces_of(node.operator)
        if len(pieces) != 1 or pieces[0][0] != axis or pieces[0][3] != 1:
            continue
        if not when("of one source", graph.find(node.children[0]) == graph.find(source)):
            continue
        if when("adjacent", pieces[0][1] == begin):
            return pieces[0][2]
    return None


def _concat_of_slices_case(make: CaseMaker) -> Case:
    data, other = make.input(6, 2), make.input(6, 2)
    parts: list[Part] = []
    place = make.integer(0, 1)
    for _ in range(make.integer(2, 3)):
        begin = place if make.chance(0.8) else make.integer(0, 3)
        end = begin + make.integer(1, 2)
        source = data if make.chance(0.85) else other
        parts.append(sliced(source, [(0, begin, min(end, 6), 1)]))
        place = min(end, 5)
    return make.case(concat(parts, 0))


MOVE_SLICES: tuple[Rule, ...] = (
    _rule(
        "slice of concat", _slices_of_concat, _slice_of_concat_case, "within one part", exact=True
    ),
    _rule("slice of everything", _whole_slices, _whole_slice_case, "of everything", exact=True),
    _rule("slice of slice", _nested_slices, _nested_slice_case, exact=True),
    _rule(
        "concat of slices",
        _concat_of_slices,
        _concat_of_slices_case,
        "of one source",
        "adjacent",
        exact=True,
    ),
)
"""Rules by which slices and concatenations meet and vanish."""
