# SPDX-License-Identifier: Apache-2.0
"""The inputs of an ONNX graph whose values decide an extent, such as lengths and shapes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from .order import reads

if TYPE_CHECKING:
    from onnx import GraphProto, ValueInfoProto

_NO_SOURCE = {
    *("Shape", "Size"),
    *("Compress", "NonMaxSuppression", "NonZero", "Unique"),
}
"""Operators whose result depends on no value, or whose extents depend on data."""

_INTEGERS = (6, 7)
"""INT32 and INT64 of ``TensorProto``."""


def deciding_inputs(graph: GraphProto, values: Iterable[str]) -> list[str]:
    """List the inputs that may be lengths or shapes, and that some values are computed from.

    Parameters
    ----------
    graph : GraphProto
        The graph, its nodes in order.
    values : Iterable[str]
        The names of the values.

    Returns
    -------
    names : list[str]
        Integer inputs of one axis at most, in the graph's order.
    """
    wanted = set(values)
    for node in reversed(graph.node):
        if wanted.intersection(node.output) and node.op_type not in _NO_SOURCE:
            wanted |= reads(node)
    weights = {tensor.name for tensor in graph.initializer}
    return [
        value.name
        for value in graph.input
        if value.name in wanted - weights and _may_be_length(value)
    ]


def _may_be_length(value: ValueInfoProto) -> bool:
    kind = value.type.tensor_type
    return kind.elem_type in _INTEGERS and len(kind.shape.dim) <= 1
