# SPDX-License-Identifier: Apache-2.0
"""Helpers for rules: terms, attributes and patterns. Imports no TVM."""

from collections.abc import Iterable, Iterator
from itertools import product
from math import prod
from typing import NamedTuple

from ..equality.egraph import EGraph
from ..equality.language import Node, Operator, Tensor, Term, full_leaf, operator

Matched = tuple[int, Node]
"""A class and one of its e-nodes."""


def with_weight(graph: EGraph, node: Node, commutes: bool = True) -> Iterator[tuple[int, int]]:
    """The operands of a binary e-node as (value, weight), if exactly one of them is a weight."""
    left, right = node.children
    if graph.is_weight(right) and not graph.is_weight(left):
        yield left, right
    elif commutes and graph.is_weight(left) and not graph.is_weight(right):
        yield right, left


def _is_layer(graph: EGraph, node: Node) -> bool:
    return graph.is_weight(node.children[1]) and not graph.is_weight(node.children[0])


def layers(graph: EGraph, name: str) -> Iterator[Matched]:
    """Convolutions or matrix products of a value with a weight."""
    return ((number, node) for number, node in graph.named(name) if _is_layer(graph, node))


def weighted_in(graph: EGraph, number: int, name: str) -> list[Node]:
    """The layers in a class: convolutions or matrix products of a value with a weight."""
    return [node for node in graph.named_in(number, name) if _is_layer(graph, node)]


def within(
    graph: EGraph, outer: Iterable[Matched], *names: str
) -> Iterator[tuple[int, Node, Node]]:
    """E-nodes whose first operand has one of the named operators.

    Yields the class, the e-node and the operand's e-node.
    """
    for number, node in outer:
        for inner in graph.named_in(node.children[0], *names):
            yield number, node, inner


def changed_data(
    graph: EGraph, outer: Iterable[Matched], name: str
) -> Iterator[tuple[int, Node, int, int]]:
    """E-nodes whose data are the sum or product of a weight and a value with the shape of the data.

    Yields the class, the e-node, the value and the weight.
    """
    for number, node, inner in within(graph, outer, name):
        for value, weight in with_weight(graph, inner):
            if graph.shape(value) == graph.shape(node.children[0]):
                yield number, node, value, weight


def nested_weights(
    graph: EGraph, outer: Iterable[Matched], *names: str
) -> Iterator[tuple[Node, int, int, int, int]]:
    """Arithmetic with a weight whose operand is arithmetic with another weight.

    Yields the inner e-node, the outer class, the value, the inner weight and the outer weight.
    """
    for number, node in outer:
        for value, outer_weight in with_weight(graph, node):
            for inner in graph.named_in(value, *names):
                for source, weight in with_weight(graph, inner):
                    yield inner, number, source, weight, outer_weight


def sums(graph: EGraph, name: str, shared: int | None = None) -> Iterator[tuple[int, Node, Node]]:
    """Sums of two layers. ``shared``: the operand that both must share, 0 for the data."""
    for number, node in graph.named("add"):
        for left, right in product(*(weighted_in(graph, each, name) for each in node.children)):
            is_shared = shared is None or left.children[shared] == right.children[shared]
            if left != right and is_shared:
                yield number, left, right


Part = Term | int


def call(name: str, *children: Part, **attributes: object) -> Term:
    """A term that applies an operator."""
    return Term(operator(name, **attributes), children)


def full(value: float, type_: Tensor) -> Term:
    """A constant whose elements all have the same value."""
    return Term(full_leaf(value, type_))


def reshape(part: Part, *shape: int) -> Term:
    """A reshape."""
    return call("reshape", part, shape=shape)


def permute(part: Part, axes: tuple[int, ...]) -> Term:
    """A transpose."""
    return call("permute_dims", part, axes=axes)


def concat(parts: list[Part], axis: int) -> Term:
    """A concatenation."""
    return call("concat", *parts, axis=axis)


def cut(part: Part, axis: int, begin: int, end: int) -> Term:
    """A slice along an axis."""
    return call("strided_slice", part, axes=(axis,), begin=(begin,), end=(end,), strides=(1,))


def cut_all(parts_of: Part, axis: int, extents: list[int]) -> list[Term]:
    """Consecutive slices along an axis, with the given extents."""
    slices, begin = [], 0
    for extent in extents:
        slices.append(cut(parts_of, axis, begin, begin + extent))
        begin += extent
    return slices


def total(parts: list[Part]) -> Part:
    """The sum of some parts, as a balanced tree because terms are traversed recursively."""
    if not parts:
        raise ValueError("parts is empty: expected at least one")
    if len(parts) == 1:
        return parts[0]
    half = (len(parts) + 1) // 2
    return call("add", total(parts[:half]), total(parts[half:]))


class Axes(NamedTuple):
    """The axes of a convolution's data and weight, or of a pool's data."""

    batch: int
    channel: int
    image: tuple[int, int]
    outputs: int
    inputs: int
    kernel: tuple[int, int]


def axes_of(op: Operator) -> Axes:
    """The axes of a convolution or pool. A pool gets the weight axes of "OIHW"."""
    data = op.get("layout")
    weight = op.get("kernel_layout") if op.name == "conv2d" else "OIHW"
    return Axes(
        data.index("N"),
        data.index("C"),
        (data.index("H"), data.index("W")),
        weight.index("O"),
        weight.index("I"),
        (weight.index("H"), weight.index("W")),
    )


def kernel_extents(graph: EGraph, op: Operator, weight: int) -> tuple[int, int]:
    """The height and width of a convolution's kernel."""
    shape = graph.shape(weight)
    height, width = axes_of(op).kernel
    return shape[height], shape[width]


def along(axis: int, extent: int, rank: int) -> tuple[int, ...]:
    """A shape with the given extent along one axis and ones elsewhere."""
    return tuple(extent if each == axis else 1 for each in range(rank))


def varies_along(shape: tuple[int, ...], rank: int) -> set[int]:
    """The axes of a rank-``rank`` result along which an operand of shape ``shape`` varies."""
    return {axis for axis, extent in enumerate(shape, rank - len(shape)) if extent != 1}


def per_axis(part: Part, shape: tuple[int, ...], wanted: tuple[int, ...]) -> Term:
    """Reshape per-channel values to ``wanted``, or a single value to a shape of ones."""
    return reshape(part, *([1] * len(wanted) if prod(shape) == 1 else wanted))


def pieces_of(op: Operator) -> list[tuple[int, int, int, int]]:
    """The (axis, begin, end, stride) tuples of a strided slice."""
    values = (op.get(name) for name in ("axes", "begin", "end", "strides"))
    return list(zip(*values, strict=True))


def sliced(part: Part, pieces: list[tuple[int, int, int, int]]) -> Term:
    """A strided slice from (axis, begin, end, stride) tuples."""
    axes, begin, end, strides = zip(*pieces, strict=True)
    return call("strided_slice", part, axes=axes, begin=begin, end=end, strides=strides)
