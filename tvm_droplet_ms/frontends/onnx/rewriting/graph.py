# SPDX-License-Identifier: Apache-2.0
"""The main graph of an ONNX model during rewriting."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, NodeProto

from ..opset import opset_of
from ..order import all_graphs, is_standard, names_in
from ..weights import without_weights

Array = np.ndarray[Any, Any]

FLOAT32_ALONE = {"float32", "int64", "int32", "bool"}


def attributes_of(node: NodeProto) -> dict[str, Any]:
    """Return the attributes of a node by name."""
    return {each.name: onnx.helper.get_attribute_value(each) for each in node.attribute}


class OnnxGraph:
    """The nodes and the constants of the main graph of a model.

    ``opset``: version of the standard operators. ``producers``: the node that makes each value.
    """

    def __init__(self, model: ModelProto) -> None:
        self._model = model
        self._inferred: dict[str, tuple[int, ...]] | None = None
        graph = model.graph
        self.opset = opset_of(model)
        self.producers = {name: node for node in graph.node for name in node.output if name}
        self._initializers = {tensor.name: tensor for tensor in graph.initializer}
        self._nodes = [node for each in all_graphs(graph) for node in each.node]
        self._uses = Counter(name for node in self._nodes for name in node.input)
        self._uses.update(output.name for output in graph.output)
        self._names = names_in(graph)

    def is_used(self, name: str) -> bool:
        """True if a node or an output of the graph uses a value."""
        return self._uses[name] > 0

    def replace_input(self, node: NodeProto, index: int, name: str) -> None:
        """Replace an input of a node, and update the use counts."""
        self._uses[node.input[index]] -= 1
        self._uses[name] += 1
        node.input[index] = name

    def make_node(self, kind: str, inputs: Sequence[str], output: str) -> NodeProto:
        """Make a node with one output and without attributes."""
        node: NodeProto = onnx.helper.make_node(kind, inputs, [output])
        return node

    def make_constant(self, values: Array, output: str) -> NodeProto:
        """Make a ``Constant`` node."""
        tensor = onnx.numpy_helper.from_array(values)
        node: NodeProto = onnx.helper.make_node("Constant", [], [output], value=tensor)
        return node

    def set_attributes(self, node: NodeProto, **values: Any) -> None:
        """Set attributes of a node, and replace attributes of the same names."""
        kept = [each for each in node.attribute if each.name not in values]
        new = [onnx.helper.make_attribute(name, value) for name, value in values.items()]
        del node.attribute[:]
        node.attribute.extend([*kept, *new])

    def new_name(self, hint: str) -> str:
        """Make a name that is unused in the graph."""
        count = 0
        while (name := f"{hint}_{count}") in self._names:
            count += 1
        self._names.add(name)
        return name

    def constant(self, name: str) -> Array | None:
        """Return the values of an initializer or a constant. None if `name` is neither."""
        producer = self.producers.get(name)
        if name in self._initializers:
            values: Array = onnx.numpy_helper.to_array(self._initializers[name])
            return values
        if producer is not None and is_standard(producer, "Constant"):
            value = attributes_of(producer).get("value")
            if value is not None:
                values = onnx.numpy_helper.to_array(value)
                return values
        return None

    def is_float32(self) -> bool:
        """True if float32 is the only floating-point type in the model.

        Only inputs, initializers, constants and casts are checked: all other types follow.
        """
        of_kind = {
            kind: [attributes_of(node) for node in self._nodes if node.op_type == kind]
            for kind in ("Cast", "Constant")
        }
        casts = [each["to"] for each in of_kind["Cast"]]
        tensors = [each.get("value") for each in of_kind["Constant"]]
        types = [tensor.data_type for tensor in tensors if tensor is not None]
        types += [tensor.data_type for tensor in self._initializers.values()]
        types += [value.type.tensor_type.elem_type for value in self._model.graph.input]
        names = {str(onnx.helper.tensor_dtype_to_np_dtype(kind)) for kind in types + casts if kind}
        return names <= FLOAT32_ALONE

    def shape(self, name: str) -> tuple[int, ...] | None:
        """Return the shape of a value, if ONNX's shape inference finds a static one."""
        if self._inferred is None:
            self._inferred = self._infer_shapes()
        return self._inferred.get(name)

    def _infer_shapes(self) -> dict[str, tuple[int, ...]]:
        graph = onnx.shape_inference.infer_shapes(without_weights(self._model)[0]).graph
        shapes = {}
        for value in [*graph.input, *graph.value_info, *graph.output]:
            dimensions = value.type.tensor_type.shape.dim
            if dimensions and all(each.HasField("dim_value") for each in dimensions):
                shapes[value.name] = tuple(each.dim_value for each in dimensions)
        return shapes
