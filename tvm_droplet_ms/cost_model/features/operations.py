# SPDX-License-Identifier: Apache-2.0
"""Arithmetic operations of a block, counted by kind."""

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np

from tvm import tirx
from tvm.ir import Call

KINDS: dict[str, tuple[type, ...]] = {
    "additions": (tirx.Add, tirx.Sub),
    "multiplications": (tirx.Mul,),
    "divisions": (tirx.Div, tirx.Mod, tirx.FloorDiv, tirx.FloorMod),
    "choices": (tirx.Min, tirx.Max, tirx.Select),
    "calls": (Call,),
}
"""TVM's expressions by kind of operation; counts are in this order."""

_PARTS = (
    *("a", "b", "value", "condition", "true_value", "false_value"),
    *("body", "block", "then_case", "else_case"),
)


def operations(stmt: Any) -> np.ndarray:
    """Count the operations of each kind in one execution of a statement.

    Operations within buffer indices are left out. The body of a loop counts once. ``stmt``: the
    body of a block. Returns additions, multiplications, divisions, choices (minimum, maximum,
    select) and calls, of shape ``(len(KINDS),)``, float64.
    """
    counts = np.zeros(len(KINDS))
    for node in _nodes(stmt):
        place = _kind(node.__class__)
        if place is not None:
            counts[place] += 1
    return counts


def _nodes(node: Any) -> Iterator[Any]:
    """A node and all nodes within it, except those in buffer indices."""
    yield node
    if isinstance(node, tirx.SeqStmt | Call):
        parts = list(node.seq if isinstance(node, tirx.SeqStmt) else node.args)
    else:
        parts = [getattr(node, name) for name in _parts(node.__class__)]
    for part in parts:
        yield from _nodes(part)


@cache
def _kind(node_type: type) -> int | None:
    """The place in ``KINDS`` of a type of node; None for one that is no operation."""
    for place, types in enumerate(KINDS.values()):
        if issubclass(node_type, types):
            return place
    return None


@cache
def _parts(node_type: type) -> tuple[str, ...]:
    """The fields of a type of node that hold statements and expressions."""
    return tuple(name for name in _PARTS if hasattr(node_type, name))
