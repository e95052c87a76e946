# SPDX-License-Identifier: Apache-2.0
"""Move rules: slices, concats, transposes and reshapes combine and cancel. Imports no TVM."""

from collections.abc import Collection, Iterator
from functools import partial

from ..equality.egraph import EGraph
from ..equality.language import BINARY, ELEMENTWISE, UNARY, Node, Operator, Term, broadcast
from .rule import Conditions, Equality, Rule, declare
from .terms import Part, call, concat, permute, pieces_of, reshape, sliced, with_weight, within

_rule = partial(declare, "move")


def _slices_of_concat(graph: EGraph, when: Conditions) -> Iterator[Equality]:
    """A slice of [x y] = a slice of x, a slice of y, or [slice(x) slice(y)]."""
    for number, node, inner in within(graph, graph.named("strided_slice"), "concat"):
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


def _whole_slices(graph: EGraph, when: Conditions) -> Iterator[Equality]:
    """A slice of the whole tensor is the tensor."""
    for number, node in graph.named("strided_slice"):
        shape = graph.shape(node.children[0])
        whole = all(
            (begin, stride) == (0, 1) and end == shape[axis]
            for axis, begin, end, stride in pieces_of(node.operator)
        )
        if when("of everything", whole):
            yield Equality(number, node.children[0])


def _nested_slices(graph: EGraph, when: Conditions) -> Iterator[Equality]:
    """A slice of a slice is a slice."""
    for number, node, inner in within(graph, graph.named("strided_slice"), "strided_slice"):
        taken = {
            axis: (begin, end, stride) for axis, begin, end, stride in pieces_of(inner.operator)
        }
        for axis, begin, end, stride in pieces_of(node.operator):
            first, last, step = taken.get(axis, (0, graph.shape(inner.children[0])[axis], 1))
            stop = first + (end - 1) * step + 1
            taken[axis] = (first + begin * step, min(stop, last), step * stride)
        pieces = [(axis, *bounds) for axis, bounds in sorted(taken.items())]
        yield Equality(number, sliced(inner.children[0], pieces))


def _concat_of_slices(graph: EGraph, when: Conditions) -> Iterator[Equality]:
    """[x[:a] x[a:b] ...] = x[:b]."""
    for number, node in graph.named("concat"):
        axis = node.operator.get("axis")
        for first in graph.named_in(node.children[0], "strided_slice"):
            piece = _whole_piece(first, axis)
            if piece is None:
                continue
            begin, end = piece
            for child in node.children[1:]:
                found = _next_piece(graph, when, child, first.children[0], axis, end)
                if found is None:
                    break
                end = found
            else:
                yield Equality(number, sliced(first.children[0], [(axis, begin, end, 1)]))


def _next_piece(
    graph: EGraph, when: Conditions, number: int, source: int, axis: int, begin: int
) -> int | None:
    """The end of a class's slice of ``source`` that begins at ``begin``; None if there is none."""
    for node in graph.named_in(number, "strided_slice"):
        piece = _whole_piece(node, axis)
        if piece is None:
            continue
        if not when("of one source", graph.find(node.children[0]) == graph.find(source)):
            continue
        if when("adjacent", piece[0] == begin):
            return piece[1]
    return None


def _whole_piece(node: Node, axis: int) -> tuple[int, int] | None:
    """Begin and end of a slice along ``axis`` alone with stride 1; None for any other slice."""
    (first, begin, end, stride), *rest = pieces_of(node.operator)
    return None if rest or first != axis or stride != 1 else (begin, end)


_RESHAPES = ("reshape", "expand_dims", "squeeze")
_MOVES = (*_RESHAPES, "permute_dims", "strided_slice")


def _slices_of_elementwise(graph: EGraph, when: Conditions) -> Iterator[Equality]:
    """slice(f(x, y)) = f(slice(x), slice(y)). Operands are not sliced along broadcast axes."""
    for number, node, inner in within(graph, graph.named("strided_slice"), *ELEMENTWISE):
        rank = graph.type(node.children[0]).rank
        operands: list[Part] = []
        for child in inner.children:
            shape = graph.shape(child)
            shift = rank - len(shape)
            pieces = [
                (axis - shift, begin, end, stride)
                for axis, begin, end, stride in pieces_of(node.operator)
                if axis >= shift and shape[axis - shift] != 1
            ]
            operands.append(sliced(child, pieces) if pieces else child)
        if any(not isinstance(operand, int) for operand in operands):
            yield Equality(number, Term(inner.operator, tuple(operands)))


def _swapped(
    outer: Collection[str], inner: Collection[str], graph: EGraph, when: Conditions
) -> Iterator[Equality]:
    """f(reshape(x)) = reshape(f(x)), for all operators that only move data, in both directions."""
    for number, node, first in within(graph, graph.named(*outer), *inner):
        yield Equality(number, Term(first.operator, (Term(node.operator, first.children),)))


def _scalars_of_moves(graph: EGraph, when: Conditions) -> Iterator[Equality]:
    """reshape(x) * c = reshape(x * c) for a scalar, which may then be folded into a weight."""
    for number, node in graph.named("multiply"):
        for value, scale in with_weight(graph, node):
            for inner in graph.named_in(value, *_MOVES):
                if not when("one value", graph.type(scale).size == 1):
                    continue
                if graph.shape(value) != graph.shape(number):
                    continue
                scalar = reshape(scale) if graph.type(scale).size == 1 else scale
                product = call("multiply", inner.children[0], scalar)
                yield Equality(number, Term(inner.operator, (product,)))


def _unary_of_concat(graph: EGraph, when: Conditions) -> Iterator[Equality]:
    """f([x y]) = [f(x) f(y)]."""
    for number, node, inner in within(graph, graph.named(*UNARY), "concat"):
        parts = tuple(Term(node.operator, (child,)) for child in inner.children)
        yield Equality(number, Term(inner.operator, parts))


def _concat_of_unary(graph: EGraph, when: Conditions) -> Iterator[Equality]:
    """[f(x) f(y)] = f([x y])."""
    for number, node, first in within(graph, graph.named("concat"), *UNARY):
        found = [_same(graph, when, first.operator, child) for child in node.children]
        sources: list[Part] = [each for each in found if each is not None]
        if len(sources) == len(found):
            yield Equality(number, Term(first.operator, (Term(node.operator, tuple(sources)),)))


def _same(graph: EGraph, when: Conditions, op: Operator, number: int) -> int | None:
    """The operand of a class's e-node with operator ``op``; None if there is no such e-node."""
    for node in graph.named_in(number, *UNARY):
        if when("one function", node.operator == op):
            return node.children[0]
    return None


def _nested_permutes(graph: EGraph, when: Conditions) -> Iterator[Equality]:
    """A transpose of a transpose is one transpose or the identity."""
    for number, node in graph.named("permute_dims"):
        axes = node.operator.get("axes")
        plain = tuple(range(len(axes)))
        if axes == plain:
            yield Equality(number, node.children[0])
        for inner in graph.named_in(node.children[0], "permute_dims"):
            both = tuple(inner.operator.get("axes")[axis] for axis in axes)
            source = inner.children[0]
            yield Equality(number, source if both == plain else permute(source, both))


def _nested_reshapes(graph: EGraph, when: Conditions) -> Iterator[Equality]:
    """A reshape of a reshape is one reshape or the identity; also for expand_dims and squeeze."""
    for number, node in graph.named(*_RESHAPES):
        shape = graph.shape(number)
        within_it = graph.named_in(node.children[0], *_RESHAPES)
        for source in (node.children[0], *(inner.children[0] for inner in within_it)):
            same = graph.shape(source) == shape
            yield Equality(number, source if same else reshape(source, *shape))


def _useless_broadcasts(graph: EGraph, when: Conditions) -> Iterator[Equality]:
    """A broadcast_to is redundant if the shape is equal or if arithmetic broadcasts anyway."""
    for number, node in graph.named("broadcast_to"):
        if graph.shape(number) == graph.shape(node.children[0]):
            yield Equality(number, node.children[0])
    for number, node in graph.named(*BINARY):
        for place, child in enumerate(node.children):
            for inner in graph.named_in(child, "broadcast_to"):
                shapes = [graph.shape(each) for each in node.children]
                shapes[place] = graph.shape(inner.children[0])
                if when("broadcast anyway", broadcast(*shapes) == graph.shape(number)):
                    children = list(node.children)
                    children[place] = inner.children[0]
                    yield Equality(number, Term(node.operator, tuple(children)))


MOVE: tuple[Rule, ...] = (
    _rule("slice of elementwise", _slices_of_elementwise, exact=True),
    _rule("move of unary", partial(_swapped, _MOVES, UNARY), exact=True),
    _rule("unary of move", partial(_swapped, UNARY, _MOVES), exact=True),
    _rule("scalar of move", _scalars_of_moves, "one value", exact=True),
    _rule("unary of concat", _unary_of_concat, exact=True),
    _rule("concat of unary", _concat_of_unary, "one function", exact=True),
    _rule("useless broadcast", _useless_broadcasts, "broadcast anyway", exact=True),
    _rule("transpose of transpose", _nested_permutes, exact=True),
    _rule("reshape of reshape", _nested_reshapes, exact=True),
    _rule("slice of concat", _slices_of_concat, "within one part", exact=True),
    _rule("slice of everything", _whole_slices, "of everything", exact=True),
    _rule("slice of slice", _nested_slices, exact=True),
    _rule("concat of slices", _concat_of_slices, "of one source", "adjacent", exact=True),
)
"""Rules by which operators that only move data combine and cancel."""
