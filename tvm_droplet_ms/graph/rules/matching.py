# SPDX-License-Identifier: Apache-2.0
"""Patterns of several rules. Imports no TVM."""

from collections.abc import Iterator

from ..equality.egraph import EGraph
from ..equality.language import Node


def with_weight(graph: EGraph, node: Node, commutes: bool = True) -> Iterator[tuple[int, int]]:
    """The operands of a binary e-node as (value, weight), where one of them is a weight."""
    left, right = node.children
    if graph.is_weight(right) and not graph.is_weight(left):
        yield left, right
    elif commutes and graph.is_weight(left) and not graph.is_weight(right):
        yield right, left


def layers(graph: EGraph, name: str) -> Iterator[tuple[int, Node]]:
    """Convolutions or matrix products of a value by a weight."""
    for number, node in graph.named(name):
        if graph.is_weight(node.children[1]) and not graph.is_weight(node.children[0]):
            yield number, node


def weighted_in(graph: EGraph, number: int, name: str) -> list[Node]:
    """The layers in a class: convolutions or matrix products of a value by a weight."""
    return [
        node
        for node in graph.named_in(number, name)
        if graph.is_weight(node.children[1]) and not graph.is_weight(node.children[0])
    ]
