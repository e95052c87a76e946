# SPDX-License-Identifier: Apache-2.0
"""Fold rules: arithmetic with weights becomes one operation or none. Imports no TVM."""

from collections.abc import Iterator
from functools import partial
from math import prod

from ..equality.egraph import EGraph
from ..equality.language import Term, broadcast
from .rule import Conditions, Equality, Rule, declare
from .terms import along, call, cut, full, nested_weights, reshape, total, with_weight, within

_rule = partial(declare, "fold")


def _batch_norms(graph: EGraph, when: Conditions) -> Iterator[Equality]:
    for number, get, norm in within(graph, graph.named("get"), "batch_norm"):
        op = norm.operator
        data, gamma, beta, mean, variance = norm.children
        if get.operator.get("index") or not all(map(graph.is_weight, norm.children[1:])):
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
        shape = along(op.get("axis"), type_.size, graph.type(data).rank)
        scaled = call("multiply", data, reshape(scale, *shape))
        yield Equality(number, call("add", scaled, reshape(shift, *shape)))


def _dropouts(graph: EGraph, when: Conditions) -> Iterator[Equality]:
    for number, node, dropout in within(graph, graph.named("get"), "dropout"):
        if when("the values", node.operator.get("index") == 0):
            yield Equality(number, dropout.children[0])


def _splits(graph: EGraph, when: Conditions) -> Iterator[Equality]:
    for number, node, split in within(graph, graph.named("get"), "split"):
        axis, index = split.operator.get("axis"), node.operator.get("index")
        extent = graph.shape(split.children[0])[axis]
        bounds = (0, *split.operator.get("sections"), extent)
        yield Equality(number, cut(split.children[0], axis, bounds[index], bounds[index + 1]))


def _stacked_sums(graph: EGraph, when: Conditions) -> Iterator[Equality]:
    for number, node, stack in within(graph, graph.named("sum"), "stack"):
        axis = stack.operator.get("axis")
        if when("of the stacked axis", node.operator.get("axis") == (axis,)):
            result, keeps = total(list(stack.children)), node.operator.get("keepdims")
            yield Equality(number, reshape(result, *graph.shape(number)) if keeps else result)


def _subtractions(graph: EGraph, when: Conditions) -> Iterator[Equality]:
    for number, node in graph.named("subtract"):
        for value, weight in with_weight(graph, node, commutes=False):
            yield Equality(number, call("add", value, call("negative", weight)))


def _divisions(graph: EGraph, when: Conditions) -> Iterator[Equality]:
    for number, node in graph.named("divide"):
        for value, weight in with_weight(graph, node, commutes=False):
            one = full(1.0, graph.type(weight))
            yield Equality(number, call("multiply", value, call("divide", one, weight)))


def _nested(graph: EGraph, when: Conditions) -> Iterator[Equality]:
    """(x + s) + t = x + (s + t), and likewise for products."""
    for name in ("add", "multiply"):
        found = nested_weights(graph, graph.named(name), "add", "multiply")
        for inner, number, source, weight, outer in found:
            if when("of one kind", inner.operator.name == name):
                # The sum of a row and a column would be larger than both.
                shape = broadcast(graph.shape(weight), graph.shape(outer)) or ()
                if prod(shape) <= max(graph.type(weight).size, graph.type(outer).size):
                    yield Equality(number, call(name, source, call(name, weight, outer)))


def _distributed(graph: EGraph, when: Conditions) -> Iterator[Equality]:
    """(x + t) * s = x * s + t * s."""
    for _, number, source, shift, scale in nested_weights(graph, graph.named("multiply"), "add"):
        product = call("multiply", shift, scale)
        yield Equality(number, call("add", call("multiply", source, scale), product))


def _outer_shifts(graph: EGraph, when: Conditions) -> Iterator[Equality]:
    """(x + t) + y = (x + y) + t: shifts by weights move outward, where they combine."""
    for number, node in graph.named("add"):
        left, right = node.children
        for value, other in ((left, right), (right, left)):
            if graph.is_weight(other) or graph.is_weight(value):
                continue
            for inner in graph.named_in(value, "add"):
                for source, shift in with_weight(graph, inner):
                    yield Equality(number, call("add", call("add", source, other), shift))


def _layer_norms(graph: EGraph, when: Conditions) -> Iterator[Equality]:
    """The affine part of a layer norm becomes separate arithmetic."""
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
    """True if a class is a constant whose elements all have the given value."""
    leaves = graph.named_in(number, "full")
    return any(leaf.operator.get("value") == value for leaf in leaves)


FOLD: tuple[Rule, ...] = (
    _rule("batch norm is affine", _batch_norms, "statistics are given"),
    _rule("dropout is nothing", _dropouts, "the values", exact=True),
    _rule("split is slices", _splits, exact=True),
    _rule("sum of a stack", _stacked_sums, "of the stacked axis"),
    _rule("subtraction of a weight", _subtractions, exact=True),
    _rule("division by a weight", _divisions),
    _rule("nested weights", _nested, "of one kind"),
    _rule("scale of a shifted value", _distributed),
    _rule("shifts go outwards", _outer_shifts),
    _rule("affine of a layer norm", _layer_norms, "trailing axes"),
)
"""Rules that fold arithmetic with weights into other weights."""
