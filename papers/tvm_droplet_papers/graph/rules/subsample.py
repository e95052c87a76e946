# SPDX-License-Identifier: Apache-2.0
"""Subsample rules: strides move up through a network to save computation. Imports no TVM."""

from collections.abc import Iterator
from functools import partial

from ..equality.egraph import EGraph
from ..equality.language import Node, Operator, Term
from .rule import Conditions, Equality, Rule, declare
from .terms import axes_of, kernel_extents, layers, pieces_of, sliced, within

_rule = partial(declare, "subsample")

_WHOLE = "of the whole image"


def _strided(graph: EGraph, when: Conditions, op: Operator, piece: Node) -> Operator | None:
    """Add a slice's strides to a layer; None if the slice does more than subsample the image."""
    shape = graph.shape(piece.children[0])
    pieces = pieces_of(piece.operator)
    axes = axes_of(op).image
    if all(stride == 1 for *_, stride in pieces) or any(axis not in axes for axis, *_ in pieces):
        return None
    if not when(_WHOLE, all(begin == 0 and end == shape[axis] for axis, begin, end, _ in pieces)):
        return None
    taken = {axis: stride for axis, *_, stride in pieces}
    strides = zip(op.get("strides"), axes, strict=True)
    return op.replaced(strides=tuple(stride * taken.get(axis, 1) for stride, axis in strides))


def _is_pointwise(graph: EGraph, when: Conditions, conv: Node) -> bool:
    extents = kernel_extents(graph, conv.operator, conv.children[1])
    unpadded = not any(conv.operator.get("padding"))
    return when("one weight", extents == (1, 1)) and when("no padding", unpadded)


def _strides_up(graph: EGraph, when: Conditions) -> Iterator[Equality]:
    """conv1x1 with stride s = conv1x1 of every s-th row and column."""
    for number, conv in layers(graph, "conv2d"):
        op, data = conv.operator, conv.children[0]
        if max(op.get("strides")) > 1 and _is_pointwise(graph, when, conv):
            pairs = zip(axes_of(op).image, op.get("strides"), strict=True)
            pieces = [(axis, 0, graph.shape(data)[axis], stride) for axis, stride in pairs]
            every = sliced(data, pieces)
            yield Equality(number, Term(op.replaced(strides=(1, 1)), (every, conv.children[1])))


def _strides_back(graph: EGraph, when: Conditions) -> Iterator[Equality]:
    """conv1x1 of every s-th row and column = conv1x1 with stride s."""
    for number, conv, piece in within(graph, layers(graph, "conv2d"), "strided_slice"):
        if _is_pointwise(graph, when, conv):
            strided = _strided(graph, when, conv.operator, piece)
            if strided is not None:
                yield Equality(number, Term(strided, (piece.children[0], conv.children[1])))


def _into_layers(name: str, graph: EGraph, when: Conditions) -> Iterator[Equality]:
    """Every s-th row and column of a layer with stride t = the layer with stride s * t."""
    for number, piece, layer in within(graph, graph.named("strided_slice"), name):
        op = layer.operator
        strided = _strided(graph, when, op, piece)
        if strided is None:
            continue
        if name == "conv2d" or when("not rounded up", not op.get("ceil_mode")):
            yield Equality(number, Term(strided, layer.children))


SUBSAMPLE: tuple[Rule, ...] = (
    _rule("stride up", _strides_up, "one weight", "no padding", exact=True),
    _rule("stride back", _strides_back, "one weight", "no padding", _WHOLE, exact=True),
    _rule("stride into convolution", partial(_into_layers, "conv2d"), _WHOLE, exact=True),
    _rule(
        "stride into average",
        partial(_into_layers, "avg_pool2d"),
        _WHOLE,
        "not rounded up",
        exact=True,
    ),
    _rule(
        "stride into maximum",
        partial(_into_layers, "max_pool2d"),
        _WHOLE,
        "not rounded up",
        exact=True,
    ),
)
"""Rules that move strides."""
