# SPDX-License-Identifier: Apache-2.0
"""Move: slices, concatenations, transposes and reshapes meet and vanish. Imports no TVM."""

from collections.abc import Iterator
from functools import partial

from ..cases import Case, CaseMaker
from ..equality.egraph import EGraph
from ..equality.language import BINARY, ELEMENTWISE, UNARY, Operator, Term, broadcast
from .draws import random_slice
from .matching import with_weight
from .rule import Conditions, Equality, Rule, declare
from .terms import Part, call, concat, permute, pieces_of, reshape, sliced

_rule = partial(declare, "move")

_MOVES = ("reshape", "permute_dims", "strided_slice", "expand_dims", "squeeze")


def _slices_of_elementwise(graph: EGraph, when: Conditions) -> Iterator[Equality]:
    """slice(f(x, y)) = f(slice(x), slice(y)); what broadcasts along an axis is not cut there."""
    for number, node in graph.named("strided_slice"):
        for inner in graph.named_in(node.children[0], *ELEMENTWISE):
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


def _slice_of_elementwise_case(make: CaseMaker) -> Case:
    data = make.input(3, 4, 5)
    if make.chance(0.3):
        value = call(make.pick(["relu", "tanh"]), data)
    else:
        shape = make.pick([(3, 4, 5), (5,), (4, 1), (1, 4, 5), ()])
        value = call(make.pick(["add", "subtract", "multiply"]), data, make.input(*shape))
    return make.case(random_slice(make, value, (3, 4, 5)))


def _moves_of_unary(graph: EGraph, when: Conditions) -> Iterator[Equality]:
    """reshape(f(x)) = f(reshape(x)), and of all that only moves."""
    for number, node in graph.named(*_MOVES):
        for inner in graph.named_in(node.children[0], *UNARY):
            moved = Term(node.operator, inner.children)
            yield Equality(number, Term(inner.operator, (moved,)))


def _unary_of_moves(graph: EGraph, when: Conditions) -> Iterator[Equality]:
    """f(reshape(x)) = reshape(f(x)), and of all that only moves."""
    for number, node in graph.named(*UNARY):
        for inner in graph.named_in(node.children[0], *_MOVES):
            value = Term(node.operator, inner.children)
            yield Equality(number, Term(inner.operator, (value,)))


def random_move(make: CaseMaker, part: Part) -> Term:
    """A random move of what has the shape (2, 3, 4)."""
    kind = make.integer(0, 3)
    if kind == 0:
        return reshape(part, *make.pick([(6, 4), (2, 12), (4, 6)]))
    if kind == 1:
        return permute(part, make.pick([(0, 2, 1), (2, 1, 0), (1, 2, 0)]))
    if kind == 2:
        return call("expand_dims", part, axis=(make.integer(0, 3),))
    return random_slice(make, part, (2, 3, 4))


def _unary_case(inside: bool, make: CaseMaker) -> Case:
    name, data = make.pick(["relu", "tanh", "sigmoid"]), make.input(2, 3, 4)
    if inside:
        return make.case(random_move(make, call(name, data)))
    return make.case(call(name, random_move(make, data)))


def _scalars_of_moves(graph: EGraph, when: Conditions) -> Iterator[Equality]:
    """reshape(x) * c = reshape(x * c) for a scalar, which may then find a weight."""
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


def _scalar_of_move_case(make: CaseMaker) -> Case:
    moved = permute(make.input(3, 3), (1, 0)) if make.chance(0.5) else None
    moved = moved or reshape(make.input(3, 6), 6, 3)
    return make.case(call("multiply", moved, make.weight(*make.pick([(), (1,), (1, 1), (3,)]))))


def _unary_of_concat(graph: EGraph, when: Conditions) -> Iterator[Equality]:
    """f([x y]) = [f(x) f(y)]."""
    for number, node in graph.named(*UNARY):
        for inner in graph.named_in(node.children[0], "concat"):
            parts: list[Part] = [Term(node.operator, (child,)) for child in inner.children]
            yield Equality(number, Term(inner.operator, tuple(parts)))


def _concat_of_unary(graph: EGraph, when: Conditions) -> Iterator[Equality]:
    """[f(x) f(y)] = f([x y])."""
    for number, node in graph.named("concat"):
        for first in graph.named_in(node.children[0], *UNARY):
            found = [_same(graph, when, first.operator, child) for child in node.children]
            sources: list[Part] = [each for each in found if each is not None]
            if len(sources) == len(found):
                yield Equality(number, Term(first.operator, (Term(node.operator, tuple(sources)),)))


def _same(graph: EGraph, when: Conditions, op: Operator, number: int) -> int | None:
    """The operand that an operator is applied to in a class; None for no such e-node."""
    for node in graph.named_in(number, *UNARY):
        if when("one function", node.operator == op):
            return node.children[0]
    return None


def _unary_of_concat_case(make: CaseMaker) -> Case:
    axis = make.integer(0, 1)
    shapes = [tuple(make.integer(1, 3) if each == axis else 3 for each in range(2)) for _ in "123"]
    parts: list[Part] = [make.input(*shape) for shape in shapes]
    return make.case(call(make.pick(["relu", "tanh"]), concat(parts, axis)))


def _concat_of_unary_case(make: CaseMaker) -> Case:
    names = ["relu", "tanh"]
    first = make.pick(names)
    parts: list[Part] = []
    for _ in range(make.integer(2, 3)):
        name = first if make.chance(0.8) else make.pick(names)
        parts.append(call(name, make.input(3, make.integer(1, 3))))
    return make.case(concat(parts, 1))


def _nested_permutes(graph: EGraph, when: Conditions) -> Iterator[Equality]:
    """A transpose of a transpose is a transpose, or nothing."""
    for number, node in graph.named("permute_dims"):
        axes = node.operator.get("axes")
        if axes == tuple(range(len(axes))):
            yield Equality(number, node.children[0])
        for inner in graph.named_in(node.children[0], "permute_dims"):
            both = tuple(inner.operator.get("axes")[axis] for axis in axes)
            plain = both == tuple(range(len(both)))
            source = inner.children[0]
            yield Equality(number, source if plain else permute(source, both))


def _nested_permute_case(make: CaseMaker) -> Case:
    orders = [(0, 1, 2), (0, 2, 1), (2, 1, 0), (1, 2, 0), (2, 0, 1)]
    inner = permute(make.input(2, 3, 4), make.pick(orders))
    return make.case(permute(inner, make.pick(orders)))


_RESHAPES = ("reshape", "expand_dims", "squeeze")


def _nested_reshapes(graph: EGraph, when: Conditions) -> Iterator[Equality]:
    """A reshape of a reshape is a reshape, or nothing. Axes of extent 1 are a reshape too."""
    for number, node in graph.named(*_RESHAPES):
        shape = graph.shape(number)
        sources = [node.children[0]]
        for inner in graph.named_in(node.children[0], *_RESHAPES):
            sources.append(inner.children[0])
        for source in sources:
            same = graph.shape(source) == shape
            yield Equality(number, source if same else reshape(source, *shape))


def _nested_reshape_case(make: CaseMaker) -> Case:
    shapes = [(6, 4), (2, 12), (2, 3, 4), (24,)]
    value: Term = make.input(*make.pick(shapes))
    for _ in range(make.integer(1, 2)):
        value = reshape(value, *make.pick(shapes))
    if make.chance(0.3):
        value = call("squeeze", call("expand_dims", value, axis=(0,)), axis=(0,))
    return make.case(value)


def _useless_broadcasts(graph: EGraph, when: Conditions) -> Iterator[Equality]:
    """A broadcast to the shape that is there, or that arithmetic broadcasts to, is nothing."""
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


def _useless_broadcast_case(make: CaseMaker) -> Case:
    source = make.input(*make.pick([(2, 3), (1, 3), (3,)]))
    wide = call("broadcast_to", source, shape=(2, 3))
    if make.chance(0.3):
        return make.case(wide)
    other = make.input(*make.pick([(2, 3), (2, 3), (2, 1), (1, 3), (3,)]))
    return make.case(call(make.pick(["add", "divide"]), other, wide))


MOVE: tuple[Rule, ...] = (
    _rule("slice of elementwise", _slices_of_elementwise, _slice_of_elementwise_case, exact=True),
    _rule("move of unary", _moves_of_unary, partial(_unary_case, True), exact=True),
    _rule("unary of move", _unary_of_moves, partial(_unary_case, False), exact=True),
    _rule("scalar of move", _scalars_of_moves, _scalar_of_move_case, "one value", exact=True),
    _rule("unary of concat", _unary_of_concat, _unary_of_concat_case, exact=True),
    _rule("concat of unary", _concat_of_unary, _concat_of_unary_case, "one function", exact=True),
    _rule(
        "useless broadcast",
        _useless_broadcasts,
        _useless_broadcast_case,
        "broadcast anyway",
        exact=True,
    ),
    _rule("transpose of transpose", _nested_permutes, _nested_permute_case, exact=True),
    _rule("reshape of reshape", _nested_reshapes, _nested_reshape_case, exact=True),
)
"""Rules by which what only moves data meets and vanishes."""
