# SPDX-License-Identifier: Apache-2.0
"""A number that tells e-graphs apart. Imports no TVM."""

from .egraph import EGraph
from .language import COMMUTATIVE, Node, Operator


def fingerprint(graph: EGraph, origin: int) -> int:
    """A number that two e-graphs grown from copies of one share if they are equal.

    ``graph``: the e-graph, rebuilt. ``origin``: how many classes the common ancestor had:
    ``EGraph.count``. Their numbers are names. A younger class is named after its e-nodes, because
    its number depends on the order in which rules were applied.
    """
    classes = dict(graph.classes())
    names = {number: number for number in classes if number < origin}
    waiting = [number for number in classes if number >= origin]
    while waiting:
        found: dict[int, int] = {}
        for number in waiting:
            named = [
                hash(_named_key(node, names))
                for node in classes[number]
                if all(child in names for child in node.children)
            ]
            if named:
                found[number] = min(named)
        names |= found
        waiting = [number for number in waiting if number not in found]
    return hash(
        frozenset(
            (_named_key(node, names), names[number])
            for number, nodes in classes.items()
            for node in nodes
        )
    )


def _named_key(node: Node, names: dict[int, int]) -> tuple[Operator, tuple[int, ...]]:
    children = [names[child] for child in node.children]
    commutes = node.operator.name in COMMUTATIVE
    return node.operator, tuple(sorted(children) if commutes else children)
