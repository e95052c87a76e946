# SPDX-License-Identifier: Apache-2.0
"""Infer the types of an ONNX graph's values, node by node, while the graph is folded."""

from collections.abc import Mapping
from math import prod

import onnx
from onnx import ModelProto, NodeProto, TensorProto

DATA_ELEMENTS = 4096
"""Larger constants are not shapes: ONNX's inference does not get their values."""


class StaticTypes:
    """Types of values by name.

    ONNX's inference over a whole model does not see constants that are still to be folded. This
    class runs the inference of each operator in turn, once its inputs are known. ``model``: the
    model. The types of its inputs are known from the start.
    """

    def __init__(self, model: ModelProto) -> None:
        self._opsets = list(model.opset_import)
        versions = {each.domain: each.version for each in self._opsets}
        self._versions = {"": versions.get("ai.onnx", 1), **versions}
        self._ir_version = model.ir_version or 8
        self._types = {value.name: value.type for value in model.graph.input}
        self._stated = {
            value.name: value.type for value in [*model.graph.value_info, *model.graph.output]
        }

    def shape(self, name: str) -> tuple[int, ...] | None:
        """Return the shape of a value. None if it is not a tensor of known extents."""
        kind = self._types.get(name)
        if kind is None or not kind.tensor_type.HasField("shape"):
            return None
        extents = kind.tensor_type.shape.dim
        if not all(extent.HasField("dim_value") for extent in extents):
            return None
        return tuple(int(extent.dim_value) for extent in extents)

    def element_type(self, name: str) -> int:
        """Return ONNX's number of a value's element type. 0 if it is not known."""
        kind = self._types.get(name)
        return 0 if kind is None else int(kind.tensor_type.elem_type)

    def add_constant(self, tensor: TensorProto) -> None:
        """Record the type of a constant."""
        self._types[tensor.name] = onnx.helper.make_tensor_type_proto(
            tensor.data_type, list(tensor.dims)
        )

    def infer(self, node: NodeProto, data: Mapping[str, TensorProto]) -> None:
        """Infer the types of a node's outputs. ``data``: the constants among its inputs."""
        domain = "" if node.domain == "ai.onnx" else node.domain
        small = {
            name: data[name]
            for name in node.input
            if name in data and prod(data[name].dims) <= DATA_ELEMENTS
        }
        outer = any(attribute.HasField("g") for attribute in node.attribute)
        names = self._types if outer else [name for name in node.input if name]
        try:
            schema = onnx.defs.get_schema(node.op_type, self._versions[domain], domain)
            found = onnx.shape_inference.infer_node_outputs(
                schema,
                node,
                {name: self._types[name] for name in names},
                small,
                opset_imports=self._opsets,
                ir_version=self._ir_version,
            )
        # The operator has no schema, an input has no known type, or ONNX's inference rejects the
        # node. The types that the model itself states are used then.
        except Exception:
            found = {}
        for name in node.output:
            kind = found.get(name) or self._stated.get(name)
            if name and kind is not None:
                self._types[name] = kind
