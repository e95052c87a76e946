# SPDX-License-Identifier: Apache-2.0
"""Remove the weights from an ONNX model for tools that take a serialized model.

Protocol buffers are limited to 2 GB, and such a tool copies all weights twice to look at shapes.
"""

import onnx
from onnx import GraphProto, ModelProto, TensorProto

WEIGHT_BYTES = 1 << 12
"""A larger initializer is a weight: only the computation depends on its values, and no shape."""


def without_weights(model: ModelProto) -> tuple[ModelProto, list[TensorProto]]:
    """Return a copy of a model with inputs in place of large initializers, and the initializers.

    ``model`` is not changed, and the initializers belong to it. The inputs that replace weights
    come last.
    """
    rest = {field.name: value for field, value in model.ListFields() if field.name != "graph"}
    parts = model.graph.ListFields()
    graph = GraphProto(**{f.name: value for f, value in parts if f.name != "initializer"})
    light = ModelProto(graph=graph, **rest)
    named = {value.name for value in model.graph.input}
    weights = []
    for tensor in model.graph.initializer:
        if tensor.ByteSize() <= WEIGHT_BYTES:
            light.graph.initializer.append(tensor)
            continue
        weights.append(tensor)
        if tensor.name not in named:
            light.graph.input.append(
                onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims))
            )
    return light, weights


def put_weights_back(light: ModelProto, weights: list[TensorProto]) -> None:
    """Turn the inputs that replace weights into initializers again.

    ``light``: the model that ``without_weights`` returned, possibly transformed. It is changed.
    ``weights``: the initializers that ``without_weights`` returned.
    """
    names = {tensor.name for tensor in weights}
    inputs = [value for value in light.graph.input if value.name not in names]
    del light.graph.input[:]
    light.graph.input.extend(inputs)
    light.graph.initializer.extend(weights)
