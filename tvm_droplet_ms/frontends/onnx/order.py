# SPDX-License-Identifier: Apache-2.0
"""The order of the nodes of ONNX graphs, and the inputs that values depend on.

ONNX requires a topological order. Some tools write files without it, and ONNX Runtime loads them.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto, ValueInfoProto


_NO_SOURCE = {
    *("Shape", "Size"),
    *("Compress", "NonMaxSuppression", "NonZero", "Unique"),
}
"""Operators whose result depends on no input value, or whose extents depend on data."""

_INTEGERS = (6, 7)
"""INT32 and INT64 of ``TensorProto``."""


def subgraphs(node: NodeProto) -> Iterator[GraphProto]:
    """List the graphs in the attributes of a node: branches and loop bodies.

    Graphs nested inside these are not listed.
    """
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def all_graphs(graph: GraphProto) -> Iterator[GraphProto]:
    """List a graph and all graphs nested inside it, outer graphs first."""
    yield graph
    for node in graph.node:
        for inner in subgraphs(node):
            yield from all_graphs(inner)


def names_in(graph: GraphProto) -> set[str]:
    """Return the names of all values in a graph and in its nested graphs."""
    names: set[str] = set()
    for each in all_graphs(graph):
        names.update(value.name for value in [*each.input, *each.initializer])
        names.update(name for node in each.node for name in [*node.input, *node.output])
    return names


def is_standard(node: NodeProto, *kinds: str) -> bool:
    """True if a node is a standard ONNX operator, and one of ``kinds`` if any are given.

    Other domains reuse operator names.
    """
    return node.domain in ("", "ai.onnx") and (not kinds or node.op_type in kinds)


def reads(node: NodeProto) -> set[str]:
    """Return the values that a node reads, including values captured by its subgraphs."""
    names = {name for name in node.input if name}
    for graph in subgraphs(node):
        own = {value.name for value in [*graph.input, *graph.initializer]}
        own.update(name for inner in graph.node for name in inner.output)
        for inner in graph.node:
            names |= reads(inner) - own
        names |= {value.name for value in graph.output} - own
    return names


def sort_nodes(model: ModelProto) -> None:
    """Sort the nodes of a model and of all subgraphs in place. A valid order is kept.

    ``model`` is changed. Raises ``ValueError`` if a node reads a value that nothing makes, or a
    value that depends on the node's own outputs.
    """
    _sort(model.graph, set())


def _sort(graph: GraphProto, outer: set[str]) -> None:
    known = outer | {value.name for value in [*graph.input, *graph.initializer]}
    known |= {tensor.values.name for tensor in graph.sparse_initializer}
    nodes = list(graph.node)
    ordered = _in_order(nodes, known)
    if any(first is not second for first, second in zip(nodes, ordered, strict=True)):
        del graph.node[:]
        graph.node.extend(ordered)
    for node in graph.node:
        for inner in subgraphs(node):
            _sort(inner, known)
        known.update(node.output)


def _in_order(nodes: list[NodeProto], known: Iterable[str]) -> list[NodeProto]:
    """Sort by Kahn's algorithm. Among ready nodes, the original order decides."""
    known = set(known)
    makers = {name: index for index, node in enumerate(nodes) for name in node.output if name}
    waits: list[set[int]] = []
    readers: defaultdict[int, list[int]] = defaultdict(list)
    for index, node in enumerate(nodes):
        needed = reads(node) - known
        if missing := sorted(needed - set(makers)):
            raise ValueError(
                f"{named(node)} reads the value {missing[0]!r}, which nothing in the model makes"
            )
        waits.append({makers[name] for name in needed})
        for maker in waits[-1]:
            readers[maker].append(index)
    if all(not wait or max(wait) < index for index, wait in enumerate(waits)):
        return nodes
    ready = [index for index, wait in enumerate(waits) if not wait]
    ordered = []
    while ready:
        index = heapq.heappop(ready)
        ordered.append(nodes[index])
        for reader in readers[index]:
            waits[reader].discard(index)
            if not waits[reader]:
                heapq.heappush(ready, reader)
    if len(ordered) < len(nodes):
        stuck = next(node for node, wait in zip(nodes, waits, strict=True) if wait)
        raise ValueError(f"{named(stuck)} reads, through other nodes, what it makes itself")
    return ordered


def named(node: NodeProto) -> str:
    """Describe a node for a message.

    The text has its name and its operator. Without a name, its first output stands in.
    """
    domain = "" if is_standard(node) else f"{node.domain}."
    name = node.name or next(iter(node.output), "")
    return f"the node {name!r} ({domain}{node.op_type})"


def true_inputs(model: ModelProto) -> list[ValueInfoProto]:
    """List the inputs of a model that are not weights.

    Before format version 4, a model lists its weights among its inputs. Returns the inputs without
    an initializer of the same name.
    """
    return _no_weights(model.graph)


def _no_weights(graph: GraphProto) -> list[ValueInfoProto]:
    weights = {tensor.name for tensor in graph.initializer}
    weights |= {tensor.values.name for tensor in graph.sparse_initializer}
    return [value for value in graph.input if value.name not in weights]


def deciding_inputs(graph: GraphProto, values: Iterable[str]) -> list[str]:
    """List the inputs that may be lengths or shapes, and that some values depend on.

    ``graph``: a graph whose nodes are in order. ``values``: names of values. Returns the names of
    integer inputs with at most one axis, in the graph's order.
    """
    wanted = set(values)
    for node in reversed(graph.node):
        if wanted.intersection(node.output) and node.op_type not in _NO_SOURCE:
            wanted |= reads(node)
    return [
        value.name for value in _no_weights(graph) if value.name in wanted and _may_be_length(value)
    ]


def _may_be_length(value: ValueInfoProto) -> bool:
    kind = value.type.tensor_type
    return kind.elem_type in _INTEGERS and len(kind.shape.dim) <= 1
