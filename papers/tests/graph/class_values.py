# SPDX-License-Identifier: Apache-2.0
"""Checks that the e-nodes of each class have one value."""

from typing import Any

import numpy as np

from tvm_droplet_papers.graph.equality.egraph import EGraph
from tvm_droplet_papers.graph.equality.language import LEAVES, Node, Operator
from tvm_droplet_papers.graph.interpreter import Array, Value, evaluate


class Unequal(Exception):
    """An e-node does not have the value of its class."""


def check_values(graph: EGraph, arrays: dict[Operator, Array], tolerance: float) -> int:
    """Check that all e-nodes of each class have one value, given the values of the leaves.

    Returns how many e-nodes were compared with others. ``tolerance`` is relative to the largest
    value of the class.
    """
    values: dict[int, Value] = {}
    waiting = [(number, node) for number, nodes in graph.classes() for node in nodes]
    compared = 0
    while waiting:
        left = []
        for number, node in waiting:
            children = [values.get(graph.find(child)) for child in node.children]
            known = [child for child in children if child is not None]
            if len(known) < len(children):
                left.append((number, node))
                continue
            value = _value(node, known, arrays)
            if number in values:
                _compare(number, node, values[number], value, tolerance)
                compared += 1
            else:
                values[number] = value
        if len(left) == len(waiting):
            break
        waiting = left
    return compared


def _value(node: Node, operands: list[Value], arrays: dict[Operator, Array]) -> Value:
    if node.operator.name in LEAVES and node.operator in arrays:
        return arrays[node.operator]
    return evaluate(node.operator, operands)


def _compare(number: int, node: Node, expected: Any, actual: Any, tolerance: float) -> None:
    if isinstance(expected, tuple):
        for one, other in zip(expected, actual, strict=True):
            _compare(number, node, one, other, tolerance)
        return
    if expected.shape != actual.shape:
        raise Unequal(f"class {number} has the shape {expected.shape}, {node} {actual.shape}")
    largest = max(float(np.abs(expected).max(initial=0)), 1e-30)
    if not np.abs(expected - actual).max(initial=0) <= tolerance * largest:
        raise Unequal(f"{node} differs from class {number} by more than {tolerance} of {largest}")
