# SPDX-License-Identifier: Apache-2.0
"""Move rules: pads, concats and transposes are absorbed by the next layer. Imports no TVM."""

from collections.abc import Iterator
from functools import partial

from ..equality.egraph import EGraph
from ..equality.language import Term
from .rule import Conditions, Equality, Rule, declare
from .terms import axes_of, call, cut_all, layers, total, within

_rule = partial(declare, "move")


def _pads_into_convolution(graph: EGraph, when: Conditions) -> Iterator[Equality]:
    """conv(pad(x), w) = conv(x, w) with more padding."""
    for number, conv, pad in within(graph, layers(graph, "conv2d"), "pad"):
        op, axes, widths = conv.operator, axes_of(conv.operator), pad.operator.get("widths")
        others = [pair for axis, pair in enumerate(widths) if axis not in axes.image]
        if not when("of zeros", pad.operator.get("value") == 0):
            continue
        if when("of the image", not any(map(any, others))):
            (top, bottom), (left, right) = (widths[axis] for axis in axes.image)
            more = zip(op.get("padding"), (top, left, bottom, right), strict=True)
            padded = op.replaced(padding=tuple(old + new for old, new in more))
            yield Equality(number, Term(padded, (pad.children[0], conv.children[1])))


def _convolutions_of_concat(graph: EGraph, when: Conditions) -> Iterator[Equality]:
    """conv([x y], [w_x w_y]) = conv(x, w_x) + conv(y, w_y)."""
    for number, conv, inner in within(graph, layers(graph, "conv2d"), "concat"):
        op, axes = conv.operator, axes_of(conv.operator)
        # For another axis or for several groups, the pieces of the weight would not fit.
        if inner.operator.get("axis") == axes.channel and op.get("groups") == 1:
            extents = [graph.shape(child)[axes.channel] for child in inner.children]
            pieces = zip(inner.children, cut_all(conv.children[1], axes.inputs, extents))
            yield Equality(number, total([Term(op, pair) for pair in pieces]))


_LETTERS = "abcdefgh"


def _products_of_permuted(graph: EGraph, when: Conditions) -> Iterator[Equality]:
    """permute(x) @ permute(y) = one einsum, which reads x and y in their original layouts."""
    for number, product in graph.named("matmul"):
        left, right = product.children
        rank = graph.type(number).rank
        shapes = graph.shape(left), graph.shape(right)
        if rank < 3 or {len(shape) for shape in shapes} != {rank}:
            continue
        # NumPy's einsum broadcasts, but Relax's may not.
        if shapes[0][:-2] != shapes[1][:-2]:
            continue
        batch = _LETTERS[: rank - 2]
        names = [batch + "xk", batch + "ky"]
        for first, one in _as_they_lie(graph, left, names[0]):
            for second, other in _as_they_lie(graph, right, names[1]):
                if (first, second) == (left, right):
                    continue
                subscripts = f"{one},{other}->{batch}xy"
                yield Equality(number, call("einsum", first, second, subscripts=subscripts))


def _as_they_lie(graph: EGraph, number: int, names: str) -> list[tuple[int, str]]:
    """A class and the sources that it is a transpose of, each with its axis names."""
    found = [(number, names)]
    for node in graph.named_in(number, "permute_dims"):
        axes = node.operator.get("axes")
        source = [""] * len(axes)
        for axis, name in zip(axes, names, strict=True):
            source[axis] = name
        found.append((node.children[0], "".join(source)))
    return found


def _permuted_einsums(graph: EGraph, when: Conditions) -> Iterator[Equality]:
    """permute(einsum(x, y)) = an einsum with permuted result axes."""
    for number, node, inner in within(graph, graph.named("permute_dims"), "einsum"):
        axes = node.operator.get("axes")
        operands, _, result = inner.operator.get("subscripts").partition("->")
        if len(result) == len(axes):
            order = "".join(result[axis] for axis in axes)
            changed = inner.operator.replaced(subscripts=f"{operands}->{order}")
            yield Equality(number, Term(changed, inner.children))


MOVE_LAYERS: tuple[Rule, ...] = (
    _rule("pad into convolution", _pads_into_convolution, "of zeros", "of the image", exact=True),
    _rule("convolution of concat", _convolutions_of_concat),
    _rule("transposes into product", _products_of_permuted),
    _rule("transpose into einsum", _permuted_einsums, exact=True),
)
"""Rules by which layers absorb the operators before them."""
