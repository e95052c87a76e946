# SPDX-License-Identifier: Apache-2.0
"""Fold rules: scales and shifts become part of the weights of layers. Imports no TVM."""

from collections.abc import Iterator
from functools import partial

from ..equality.egraph import EGraph
from ..equality.language import Node, Term
from .rule import Conditions, Equality, Rule, declare
from .terms import (
    along,
    axes_of,
    call,
    changed_data,
    layers,
    per_axis,
    reshape,
    varies_along,
    with_weight,
)

_rule = partial(declare, "fold")


def _scaled(graph: EGraph, when: Conditions, name: str) -> Iterator[tuple[int, Node, int]]:
    """Convolutions or matrix products that are scaled by a weight.

    Yields the class of the scaled result, the layer and the class of the factor.
    """
    for number, node in graph.named("multiply"):
        for value, scale in with_weight(graph, node):
            if when("of its shape", graph.shape(value) == graph.shape(number)):
                for layer in graph.named_in(value, name):
                    yield number, layer, scale


def _scaled_convolutions(graph: EGraph, when: Conditions) -> Iterator[Equality]:
    """conv(x, w) * s = conv(x, w * s)."""
    for number, conv, scale in _scaled(graph, when, "conv2d"):
        data, weight = conv.children
        axes, shape = axes_of(conv.operator), graph.shape(scale)
        if not graph.is_weight(weight):
            continue
        if when("one for each channel", varies_along(shape, 4) <= {axes.channel}):
            outputs = graph.shape(weight)[axes.outputs]
            factor = per_axis(scale, shape, along(axes.outputs, outputs, 4))
            yield Equality(number, Term(conv.operator, (data, call("multiply", weight, factor))))


def _convolutions_of_scaled(graph: EGraph, when: Conditions) -> Iterator[Equality]:
    """conv(x * s, w) = conv(x, w * s)."""
    found = changed_data(graph, layers(graph, "conv2d"), "multiply")
    for number, conv, source, scale in found:
        data, weight = conv.children
        axes, shape = axes_of(conv.operator), graph.shape(scale)
        if when("one for each channel", varies_along(shape, 4) <= {axes.channel}):
            # With several groups, the weight is smaller and type inference rejects the product.
            channels = graph.shape(data)[axes.channel]
            factor = per_axis(scale, shape, along(axes.inputs, channels, 4))
            yield Equality(number, Term(conv.operator, (source, call("multiply", weight, factor))))


def _convolutions_of_shifted(graph: EGraph, when: Conditions) -> Iterator[Equality]:
    """conv(x + t, w) = conv(x, w) + sum(w) t."""
    for number, conv, source, shift in changed_data(graph, layers(graph, "conv2d"), "add"):
        data, weight = conv.children
        op, axes, shape = conv.operator, axes_of(conv.operator), graph.shape(shift)
        if not (
            when("one for each channel", varies_along(shape, 4) <= {axes.channel})
            and when("one group", op.get("groups") == 1)
            and when("no padding", not any(op.get("padding")))
        ):
            continue
        channels = graph.shape(data)[axes.channel]
        values = per_axis(shift, shape, along(axes.inputs, channels, 4))
        product = call("multiply", weight, values)
        others = tuple(axis for axis in range(4) if axis != axes.outputs)
        bias = call("sum", product, axis=others, keepdims=False)
        wide = along(axes.channel, graph.shape(weight)[axes.outputs], 4)
        yield Equality(number, call("add", Term(op, (source, weight)), reshape(bias, *wide)))


def _scaled_matmuls(graph: EGraph, when: Conditions) -> Iterator[Equality]:
    """(x @ w) * s = x @ (w * s)."""
    for number, product, scale in _scaled(graph, when, "matmul"):
        data, weight = product.children
        rank, shape = graph.type(number).rank, graph.shape(scale)
        if not graph.is_weight(weight) or graph.type(weight).rank != 2:
            continue
        if when("one for each column", varies_along(shape, rank) <= {rank - 1}):
            factor = per_axis(scale, shape, (graph.shape(weight)[1],))
            yield Equality(number, call("matmul", data, call("multiply", weight, factor)))


def _scaled_data(graph: EGraph, when: Conditions) -> Iterator[Equality]:
    """(x * s) @ w = x @ (s w)."""
    found = changed_data(graph, layers(graph, "matmul"), "multiply")
    for number, product, source, scale in found:
        weight = product.children[1]
        rank, shape = graph.type(source).rank, graph.shape(scale)
        if graph.type(weight).rank != 2:
            continue
        if when("one for each column", varies_along(shape, rank) <= {rank - 1}):
            factor = per_axis(scale, shape, (graph.shape(weight)[0], 1))
            yield Equality(number, call("matmul", source, call("multiply", weight, factor)))


def _matmuls_of_shifted(graph: EGraph, when: Conditions) -> Iterator[Equality]:
    """(x + t) @ w = x @ w + t @ w."""
    for number, product, source, shift in changed_data(graph, layers(graph, "matmul"), "add"):
        weight, shape = product.children[1], graph.shape(shift)
        if not shape or shape[-1] != graph.shape(source)[-1]:
            continue
        # With a stack of matrices, the shift's rows would align with the batch axes.
        if when("matrix", graph.type(weight).rank == 2):
            moved = call("matmul", source, weight)
            yield Equality(number, call("add", moved, call("matmul", shift, weight)))


def _scalars_of_products(graph: EGraph, when: Conditions) -> Iterator[Equality]:
    """(x @ y) * c = (x * c) @ y for a scalar, as in attention: a weight may then absorb it."""
    for number, product, scale in _scaled(graph, when, "matmul"):
        left, right = product.children
        type_ = graph.type(scale)
        if graph.is_weight(right) or graph.is_weight(left):
            continue
        if when("one value", type_.size == 1) and type_.rank <= graph.type(left).rank:
            yield Equality(number, call("matmul", call("multiply", left, scale), right))


FOLD_LAYERS: tuple[Rule, ...] = (
    _rule("scale after convolution", _scaled_convolutions, "of its shape", "one for each channel"),
    _rule("scale before convolution", _convolutions_of_scaled, "one for each channel"),
    _rule(
        "shift before convolution",
        _convolutions_of_shifted,
        "one for each channel",
        "one group",
        "no padding",
    ),
    _rule("scale after product", _scaled_matmuls, "of its shape", "one for each column"),
    _rule("scale before product", _scaled_data, "one for each column"),
    _rule("shift before product", _matmuls_of_shifted, "matrix"),
    _rule("scalar of a product", _scalars_of_products, "of its shape", "one value"),
)
"""Rules that fold arithmetic with weights into the weight of a layer."""
