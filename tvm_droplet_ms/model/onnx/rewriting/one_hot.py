# SPDX-License-Identifier: Apache-2.0
"""``OneHot`` by comparisons: TVM's importer makes Python numbers, and so float64, of its values."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .graph import OnnxGraph, attributes_of

if TYPE_CHECKING:
    from onnx import NodeProto


def explicit_one_hot(graph: OnnxGraph, node: NodeProto) -> list[NodeProto] | None:
    """Rewrite a ``OneHot`` of constant depth as comparisons with the positions.

    An index below zero counts from the end, and one that is out of bounds selects nothing (ONNX,
    operator ``OneHot``). Returns the nodes that take its place. None where the depth, the values or
    the shape of the indices is not known.
    """
    indices, depth, values = node.input
    shape, count, pair = graph.shape(indices), graph.constant(depth), graph.constant(values)
    if shape is None or count is None or pair is None or pair.size != 2:
        return None
    axis = int(attributes_of(node).get("axis", -1)) % (len(shape) + 1)
    extent = int(count.reshape(-1)[0])
    column_shape = [extent, *[1] * (len(shape) - axis)]
    positions = np.arange(extent, dtype=np.int64).reshape(column_shape)
    output = node.output[0]
    names = {
        kind: graph.new_name(f"{output}_{kind}")
        for kind in ("shape", "integers", "column", "first", "last", "is_first", "is_last", "is_on")
    }
    names |= {kind: graph.new_name(f"{output}_{kind}") for kind in ("off", "on")}
    cast = graph.make_node("Cast", [indices], names["integers"])
    graph.set_attributes(cast, to=7)  # TensorProto.INT64
    column = np.array([*shape[:axis], 1, *shape[axis:]], np.int64)
    return [
        cast,
        graph.make_constant(column, names["shape"]),
        graph.make_constant(positions, names["first"]),
        graph.make_constant(positions - extent, names["last"]),
        graph.make_constant(pair.reshape(-1)[0], names["off"]),
        graph.make_constant(pair.reshape(-1)[1], names["on"]),
        graph.make_node("Reshape", [names["integers"], names["shape"]], names["column"]),
        graph.make_node("Equal", [names["column"], names["first"]], names["is_first"]),
        graph.make_node("Equal", [names["column"], names["last"]], names["is_last"]),
        graph.make_node("Or", [names["is_first"], names["is_last"]], names["is_on"]),
        graph.make_node("Where", [names["is_on"], names["on"], names["off"]], output),
    ]
