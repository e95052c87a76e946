# SPDX-License-Identifier: Apache-2.0
"""An ONNX model without its weights, for tools that take a serialized model.

Protocol buffers end at 2 GB, and such a tool copies all weights twice to look at shapes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnx import ModelProto, TensorProto

WEIGHT_BYTES = 1 << 12
"""A larger initializer is a weight, whose values nothing but the computation depends on."""


def without_weights(model: ModelProto) -> tuple[ModelProto, list[TensorProto]]:
    """Return a copy of a model whose large initializers are inputs, and those initializers.

    Parameters
    ----------
    model : ModelProto
        The model. It is not changed.

    Returns
    -------
    light : ModelProto
        The copy. The inputs that stand for weights come last.
    weights : list[TensorProto]
        The weights; they belong to `model`.
    """
    import onnx

    light = type(model)()
    for field in model.DESCRIPTOR.fields:
        if field.name != "graph":
            _copy_field(model, light, field)
    for field in model.graph.DESCRIPTOR.fields:
        if field.name != "initializer":
            _copy_field(model.graph, light.graph, field)
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
    """Make the inputs that stand for weights initializers again.

    ``light``: what became of the first result of ``without_weights``. It is changed. ``weights``:
    the second one.
    """
    names = {tensor.name for tensor in weights}
    inputs = [value for value in light.graph.input if value.name not in names]
    del light.graph.input[:]
    light.graph.input.extend(inputs)
    light.graph.initializer.extend(weights)


def _copy_field(source: object, target: object, field: object) -> None:
    name = field.name  # type: ignore[attr-defined]
    value = getattr(source, name)
    if hasattr(value, "extend"):
        getattr(target, name).extend(value)
    elif source.HasField(name):  # type: ignore[attr-defined]
        if hasattr(value, "CopyFrom"):
            getattr(target, name).CopyFrom(value)
        else:
            setattr(target, name, value)
