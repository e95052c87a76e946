# SPDX-License-Identifier: Apache-2.0
"""Bind the inputs of an ONNX model to shapes and values, and find inputs that decide extents."""

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from typing import Any

import numpy as np
import onnx
from onnx import GraphProto, ModelProto, SparseTensorProto, TensorProto, ValueInfoProto

from .order import all_graphs, reads

Array = np.ndarray[Any, Any]


_NO_SOURCE = {
    *("Shape", "Size"),
    *("Compress", "NonMaxSuppression", "NonZero", "Unique"),
}
"""Operators whose result depends on no input value, or whose extents depend on data."""

_INTEGERS = (6, 7)
"""INT32 and INT64 of ``TensorProto``."""


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


def bind_inputs(
    model: ModelProto, shapes: Mapping[str, Sequence[int]], constants: Mapping[str, Array]
) -> ModelProto:
    """Return a copy of a model with bound input shapes and constant inputs.

    ``model`` is not changed. ``shapes``: the shapes of inputs by name. ``constants``: the values of
    inputs by name, in the inputs' types; these inputs become initializers. Returns the copy. It
    states shapes only for its inputs: shapes stated for open extents may be wrong.
    """
    copy = deepcopy(model)
    graph = copy.graph
    kept = [value for value in true_inputs(copy) if value.name not in constants]
    for value in kept:
        if value.name in shapes:
            shape = value.type.tensor_type.shape
            del shape.dim[:]
            # Set the shape even without extents: a scalar has an empty shape.
            value.type.tensor_type.shape.SetInParent()
            for extent in shapes[value.name]:
                shape.dim.add().dim_value = int(extent)
    del graph.input[:]
    graph.input.extend(kept)
    for each in all_graphs(graph):
        each.initializer.extend(map(_dense, each.sparse_initializer))
        del each.sparse_initializer[:]
    graph.initializer.extend(
        onnx.numpy_helper.from_array(value, name) for name, value in constants.items()
    )
    for value in graph.output:
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.ClearField("shape")
    keep = [value for value in graph.value_info if not value.type.HasField("tensor_type")]
    del graph.value_info[:]
    graph.value_info.extend(keep)
    return copy


def _dense(tensor: SparseTensorProto) -> TensorProto:
    """A sparse initializer as a dense one."""
    values, places = map(onnx.numpy_helper.to_array, (tensor.values, tensor.indices))
    whole = np.zeros(tuple(tensor.dims), values.dtype)
    # Indices are positions in the flat tensor, or one index per axis.
    flat = places if places.ndim == 1 else np.ravel_multi_index(tuple(places.T), whole.shape)
    whole.reshape(-1)[flat] = values
    return onnx.numpy_helper.from_array(whole, tensor.values.name)


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
