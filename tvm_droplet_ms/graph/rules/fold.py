# SPDX-License-Identifier: Apache-2.0
"""Fold: arithmetic by weights becomes one operation, or none. Imports no TVM."""

from collections.abc import Iterator
from functools import partial

from ..cases import Case, CaseMaker
from ..equality.egraph import EGraph
from ..equality.language import Tensor, Term, broadcast
from .matching import with_weight
from .rule import Conditions, Equality, Rule, declare
from .terms import call, cut, full, reshape, total

_rule = partial(declare, "fold")


def _batch_norms(graph: EGraph, when: Conditions) -> Iterator[Equality]:
    for number, node in graph.named("get"):
        if node.operator.get("index") != 0:
            continue
        for norm in graph.named_in(node.children[0], "batch_norm"):
            op = norm.operator
            data, gamma, beta, mean, variance = norm.children
            if not all(map(graph.is_weight, (gamma, beta, mean, variance))):
                continue
            if not when("statistics are given", not op.get("training")):
                continue
            type_ = graph.type(mean)
            epsilon = full(op.get("epsilon"), type_)
            scale = call("divide", full(1.0, type_), call("sqrt", call("add", variance, epsilon)))
            if op.get("scale"):
                scale = call("multiply", scale, gamma)
            shift = call("negative", call("multiply", mean, scale))
            if op.get("center"):
                shift = call("add", shift, beta)
            rank = graph.type(data).rank
            shape = [1] * rank
            shape[op.get("axis")] = type_.size
            scaled = call("multiply", data, reshape(scale, *shape))
            yield Equality(number, call("add", scaled, reshape(shift, *shape)))


def _batch_norm_case(make: CaseMaker) -> Case:
    channels = make.integer(1, 3)
    shape = [make.integer(1, 3), channels, 2, make.integer(1, 3)]
    axis = make.pick([1, 3])
    shape[1], shape[axis] = shape[axis], shape[1]
    statistics = [make.weight(channels) for _ in range(3)]
    variance = call("multiply", *[make.weight(channels)] * 2)
    norm = call(
        "batch_norm",
        make.input(*shape),
        *statistics,
        variance,
        axis=axis,
        epsilon=1e-3,
        center=make.chance(0.7),
        scale=make.chance(0.7),
        momentum=0.1,
        training=make.chance(0.2),
    )
    return make.case(call("get", norm, index=0))


def _dropouts(graph: EGraph, when: Conditions) -> Iterator[Equality]:
    for number, node in graph.named("get"):
        if when("the values", node.operator.get("index") == 0):
            for dropout in graph.named_in(node.children[0], "dropout"):
                yield Equality(number, dropout.children[0])


def _dropout_case(make: CaseMaker) -> Case:
    dropout = call("dropout", make.input(2, 3), rate=0.5)
    return make.case(call("get", dropout, index=make.pick([0, 0, 1])))


def _splits(graph: EGraph, when: Conditions) -> Iterator[Equality]:
    for number, node in graph.named("get"):
        for split in graph.named_in(node.children[0], "split"):
            axis, index = split.operator.get("axis"), node.operator.get("index")
            extent = graph.shape(split.children[0])[axis]
            bounds = (0, *split.operator.get("sections"), extent)
            yield Equality(number, cut(split.children[0], axis, bounds[index], bounds[index + 1]))


def _split_case(make: CaseMaker) -> Case:
    sections = make.pick([(1,), (2, 3), (1, 4)])
    axis = make.integer(0, 1)
    split = call("split", make.input(5, 6), axis=axis, sections=sections)
    return make.case(*[call("get", split, index=i) for i in range(len(sections) + 1)])


def _stacked_sums(graph: EGraph, when: Conditions) -> Iterator[Equality]:
    for number, node in graph.named("sum"):
        for stack in graph.named_in(node.children[0], "stack"):
            axis = stack.operator.get("axis")
            if not when("of the stacked axis", node.operator.get("axis") == (axis,)):
                continue
            result = total(list(stack.children))
            shape = graph.shape(number)
            yield Equality(
                number, reshape(result, *shape) if node.operator.get("keepdims") else result
            )


def _stacked_sum_case(make: CaseMaker) -> Case:
    parts = [make.input(3, 3) for _ in range(make.integer(1, 3))]
    stack = call("stack", *parts, axis=make.pick([0, 1]))
    axes = make.pick([(0,), (1,), (1,), (0, 1)])
    return make.case(call("sum", stack, axis=axes, keepdims=make.chance(0.3)))


def _subtractions(graph: EGraph, when: Conditions) -> Iterator[Equality]:
    for number, node in graph.named("subtract"):
        for value, weight in with_weight(graph, node, commutes=False):
            yield Equality(number, call("add", value, call("negative", weight)))


def _subtraction_case(make: CaseMaker) -> Case:
    operands = [make.input(2, 3), make.weight(3)]
    return make.case(call("subtract", *(operands if make.chance(0.8) else operands[::-1])))


def _divisions(graph: EGraph, when: Conditions) -> Iterator[Equality]:
    for number, node in graph.named("divide"):
        for value, weight in with_weight(graph, node, commutes=False):
            one = full(1.0, graph.type(weight))
            yield Equality(number, call("multiply", value, call("divide", one, weight)))


def _division_case(make: CaseMaker) -> Case:
    operands = [make.input(2, 3), make.weight(3)]
    return make.case(call("divide", *(operands if make.chance(0.8) else operands[::-1])))


def _nested(graph: EGraph, when: Conditions) -> Iterator[Equality]:
    """(x + s) + t = x + (s + t), and the same of products."""
    for number, node in graph.named("add", "multiply"):
        name = node.operator.name
        for value, outer in with_weight(graph, node):
            for inner in graph.named_in(value, "add", "multiply"):
                if not when("of one kind", inner.operator.name == name):
                    continue
                for source, weight in with_weight(graph, inner):
                    # A sum of a row and a column would be larger than both.
                    shape = broadcast(graph.shape(weight), graph.shape(outer)) or ()
                    size = Tensor(shape, "").size
                    if size <= max(graph.type(weight).size, graph.type(outer).size):
                        yield Equality(number, call(name, source, call(name, weight, outer)))


def _nested_case(make: CaseMaker) -> Case:
    shapes = [(3,), (2, 1), (1,), (2, 3)]
    first, second = (make.pick(["add", "multiply"]) for _ in range(2))
    inner = call(first, make.input(2, 3), make.weight(*make.pick(shapes)))
    return make.case(call(second, make.weight(*make.pick(shapes)), inner))


def _distributed(graph: EGraph, when: Conditions) -> Iterator[Equality]:
    """(x + t) * s = x * s + t * s."""
    for number, node in graph.named("multiply"):
        for value, scale in with_weight(graph, node):
            for inner in graph.named_in(value, "add"):
                for source, shift in with_weight(graph, inner):
                    product = call("multiply", shift, scale)
                    yield Equality(number, call("add", call("multiply", source, scale), product))


def _distributed_case(make: CaseMaker) -> Case:
    shapes = [(3,), (2, 1), (1,), (2, 3)]
    inner = call("add", make.input(2, 3), make.weight(*make.pick(shapes)))
    return make.case(call("multiply", inner, make.weight(*make.pick(shapes))))


def _outer_shifts(graph: EGraph, when: Conditions) -> Iterator[Equality]:
    """(x + t) + y = (x + y) + t: shifts by weights go outwards, where they meet."""
    for number, node in graph.named("add"):
        left, right = node.children
        for value, other in ((left, right), (right, left)):
            if graph.is_weight(other) or graph.is_weight(value):
                continue
            for inner in graph.named_in(value, "add"):
                for source, shift in with_weight(graph, inner):
                    yield Equality(number, call("add", call("add", source, other), shift))


def _outer_shift_case(make: CaseMaker) -> Case:
    inner = call("add", make.input(2, 3), make.weight(*make.pick([(3,), (2, 1), (2, 3)])))
    return make.case(call("add", inner, make.input(*make.pick([(2, 3), (1, 3)]))))


def _layer_norms(graph: EGraph, when: Conditions) -> Iterator[Equality]:
    """The affine part of a layer norm becomes arithmetic of its own."""
    for number, node in graph.named("layer_norm"):
        data, gamma, beta = node.children
        op, rank = node.operator, graph.type(data).rank
        if not (graph.is_weight(gamma) and graph.is_weight(beta)):
            continue
        trailing = tuple(range(rank - len(op.get("axes")), rank))
        if not when("trailing axes", tuple(op.get("axes")) == trailing):
            continue
        if _is_full(graph, gamma, 1.0) and _is_full(graph, beta, 0.0):
            continue
        ones, zeros = full(1.0, graph.type(gamma)), full(0.0, graph.type(beta))
        plain = Term(op, (data, ones, zeros))
        yield Equality(number, call("add", call("multiply", plain, gamma), beta))


def _is_full(graph: EGraph, number: int, value: float) -> bool:
    """True if a class is a constant that has one value everywhere."""
    leaves = graph.named_in(number, "full")
    return any(leaf.operator.get("value") == value for leaf in leaves)


def _layer_norm_case(make: CaseMaker) -> Case:
    axes = make.pick([(1,), (1,), (0,), (0, 1)])
    shape = tuple(3 for _ in axes)
    norm = call(
        "layer_norm",
        make.input(3, 3),
        make.weight(*shape),
        make.weight(*shape),
        axes=axes,
        epsilon=1e-3,
    )
    return make.case(norm)


FOLD: tuple[Rule, ...] = (
    _rule("batch norm is affine", _batch_norms, _batch_norm_case, "statistics are given"),
    _rule("dropout is nothing", _dropouts, _dropout_case, "the values", exact=True),
    _rule("split is slices", _splits, _split_case, exact=True),
    _rule("sum of a stack", _stacked_sums, _stacked_sum_case, "of the stacked axis"),
    _rule("subtraction of a weight", _subtractions, _subtraction_case, exact=True),
    _rule("division by a weight", _divisions, _division_case),
    _rule("nested weights", _nested, _nested_case, "of one kind"),
    _rule("scale of a shifted value", _distributed, _distributed_case),
    _rule("shifts go outwards", _outer_shifts, _outer_shift_case),
    _rule("affine of a layer norm", _layer_norms, _layer_norm_case, "trailing axes"),
)
"""Rules by which arithmetic by weights becomes part of other weights."""
