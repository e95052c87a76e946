# SPDX-License-Identifier: Apache-2.0
"""The main graph of an ONNX model, while its nodes are rewritten."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..weights import without_weights

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto

Array = np.ndarray[Any, Any]

FLOAT32_ALONE = {"float32", "int64", "int32", "bool"}


def _all_nodes(graph: GraphProto) -> Iterator[NodeProto]:
    """List the nodes of a graph and of the graphs in their attributes."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _all_nodes(attribute.g)
            for inner in attribute.graphs:
                yield from _all_nodes(inner)


def attributes_of(node: NodeProto) -> dict[str, Any]:
    """Return the attributes of a node by name."""
    import onnx

    return {each.name: onnx.helper.get_attribute_value(each) for each in node.attribute}


def is_standard(node: NodeProto, *kinds: str) -> bool:
    """True if a node is of one of some kinds, and ONNX's own: other domains reuse the names."""
    return node.op_type in kinds and node.domain in ("", "ai.onnx")


class OnnxGraph:
    """The nodes and the constants of the main graph of a model.

    ``shapes``: shapes of inputs, which replace those that the model says. ``opset``: version of the
    standard operators. ``producers``: the node that makes each value.
    """

    def __init__(self, model: ModelProto, shapes: Mapping[str, Sequence[int]]) -> None:
        import onnx

        self._onnx = onnx
        self._model = model
        self._shapes = shapes
        self._inferred: dict[str, tuple[int, ...]] | None = None
        graph = model.graph
        versions = [each.version for each in model.opset_import if each.domain in ("", "ai.onnx")]
        self.opset = max(versions, default=1)
        self.producers = {name: node for node in graph.node for name in node.output if name}
        self._initializers = {tensor.name: tensor for tensor in graph.initializer}
        nodes = list(_all_nodes(graph))
        self._uses = Counter(name for node in nodes for name in node.input)
        self._uses.update(output.name for output in graph.output)
        self._names = {name for node in nodes for name in [*node.input, *node.output]}
        self._names.update(value.name for value in [*graph.input, *graph.initializer])

    def is_used(self, name: str) -> bool:
        """True if a node or the result mentions a value."""
        return self._uses[name] > 0

    def replace_input(self, node: NodeProto, index: int, name: str) -> None:
        """Give a node another input, and count the uses anew."""
        self._uses[node.input[index]] -= 1
        self._uses[name] += 1
        node.input[index] = name

    def make_node(self, kind: str, inputs: Sequence[str], output: str) -> NodeProto:
        """Make a node of one output, without attributes."""
        node: NodeProto = self._onnx.helper.make_node(kind, inputs, [output])
        return node

    def make_constant(self, values: Array, output: str) -> NodeProto:
        """Make a node that gives some values."""
        tensor = self._onnx.numpy_helper.from_array(values)
        node: NodeProto = self._onnx.helper.make_node("Constant", [], [output], value=tensor)
        return node

    def set_attributes(self, node: NodeProto, **values: Any) -> None:
        """Give a node attributes, in place of those of the same names."""
        kept = [each for each in node.attribute if each.name not in values]
        new = [self._onnx.helper.make_attribute(name, value) for name, value in values.items()]
        del node.attribute[:]
        node.attribute.extend([*kept, *new])

    def new_name(self, hint: str) -> str:
        """Make a name that nothing in the graph has."""
        count = 0
        while (name := f"{hint}_{count}") in self._names:
            count += 1
        self._names.add(name)
        return name

    def constant(self, name: str) -> Array | None:
        """Return the values of an initializer or a constant. None if `name` is neither."""
        producer = self.producers.get(name)
        if name in self._initializers:
            values: Array = self._onnx.numpy_helper.to_array(self._initializers[name])
            return values
        if producer is not None and is_standard(producer, "Constant"):
            value = attributes_of(producer).get("value")
            if value is not None:
                values = self._onnx.numpy_helper.to_array(value)
                return values
        return None

    def is_float32(self) -> bool:
        """True if no floating-point type but float32 occurs in the model.

        Only inputs, initializers, constants and casts are looked at: all other types follow.
        """
        nodes = list(_all_nodes(self._model.graph))
        casts = [attributes_of(node)["to"] for node in nodes if node.op_type == "Cast"]
        tensors = [attributes_of(node).get("value") for node in nodes if node.op_type == "Constant"]
        types = [tensor.data_type for tensor in tensors if tensor is not None]
        types += [tensor.data_type for tensor in self._initializers.values()]
        types += [value.type.tensor_type.elem_type for value in self._model.graph.input]
        names = {
            str(self._onnx.helper.tensor_dtype_to_np_dtype(kind)) for kind in types + casts if kind
        }
        return names <= FLOAT32_ALONE

    def shape(self, name: str) -> tuple[int, ...] | None:
        """Return the shape of a value, if ONNX's shape inference finds a static one."""
        if self._inferred is None:
            self._inferred = self._infer_shapes()
        return self._inferred.get(name)

    def _infer_shapes(self) -> dict[str, tuple[int, ...]]:
        copy, _ = without_weights(self._model)
        for value in copy.graph.input:
            for dimension, extent in zip(
                value.type.tensor_type.shape.dim, self._shapes.get(value.name, ())
            ):
                dimension.dim_value = extent
        graph = self._onnx.shape_inference.infer_shapes(copy).graph
        shapes = {}
        for value in [*graph.input, *graph.value_info, *graph.output]:
            dimensions = value.type.tensor_type.shape.dim
            if dimensions and all(each.HasField("dim_value") for each in dimensions):
                shapes[value.name] = tuple(each.dim_value for each in dimensions)
        return shapes
