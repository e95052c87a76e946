# SPDX-License-Identifier: Apache-2.0
"""Convert old versions of ONNX operators to the versions that TVM's importer reads.

Before version 10, the limits of ``Slice`` are attributes. TVM 0.27 has a converter only for version
13, and calls it for all versions. ``Reshape``, ``Upsample``, ``TopK`` and others have such gaps
too.
"""

import onnx
from onnx import GraphProto, ModelProto, TensorProto

from .mapped import is_mapped
from .order import all_graphs, is_standard

WEIGHT_BYTES = 1 << 12
"""A larger initializer is a weight: only the computation depends on its values, and no shape."""


def without_weights(model: ModelProto) -> tuple[ModelProto, list[TensorProto]]:
    """Return a copy of a model with inputs in place of large initializers, and the initializers.

    This is for tools that take a serialized model: protocol buffers are limited to 2 GB, and such a
    tool copies all weights twice to look at shapes. ``model`` is not changed, and the initializers
    belong to it. The inputs that replace weights come last.
    """
    rest = {field.name: value for field, value in model.ListFields() if field.name != "graph"}
    parts = model.graph.ListFields()
    graph = GraphProto(**{f.name: value for f, value in parts if f.name != "initializer"})
    light = ModelProto(graph=graph, **rest)
    named = {value.name for value in model.graph.input}
    weights = []
    for tensor in model.graph.initializer:
        if tensor.ByteSize() <= WEIGHT_BYTES and not is_mapped(tensor):
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


OLDEST = 13
"""From this version on, TVM's importer knows all forms of its operators."""

OLDEST_SCAN = 9
"""From this version on, a ``Scan`` has no batch axis of its own."""

OLDEST_PRELU = 7
"""From this version on, the slopes of ``PRelu`` broadcast as in NumPy."""

LAST_PLAIN_RESIZE = 10
"""Up to this version, coordinates are asymmetric, and the nearest element is the lower one. In
version 10, ONNX Runtime takes the upper one along an axis that shrinks."""

FORMAT = 8
"""The version of the file format. From version 4 on, initializers need not be inputs too."""


def opset_of(model: ModelProto) -> int:
    """Return the version of the standard operators of a model."""
    versions = [each.version for each in model.opset_import if each.domain in ("", "ai.onnx")]
    return max(versions, default=1)


def with_new_opset(model: ModelProto) -> ModelProto:
    """Convert a model of old operators with ONNX's version converter.

    ``model`` is not changed. Returns a model of version 13, or `model` itself if it has version 13
    or later. Raises ``RuntimeError`` if ONNX cannot convert it.
    """
    standard = [each for each in model.opset_import if each.domain in ("", "ai.onnx")]
    if not standard or opset_of(model) >= OLDEST:
        return model
    # ONNX has no adapters for a Scan with its own batch axis and for slopes by channel, and leaves
    # both unchanged.
    for kind, oldest in (("Scan", OLDEST_SCAN), ("PRelu", OLDEST_PRELU)):
        if opset_of(model) < oldest and any(node.op_type == kind for node in model.graph.node):
            raise RuntimeError(f"a {kind} of before version {oldest} is another operator")
    light, weights = without_weights(model)
    light.ir_version = max(light.ir_version, FORMAT)
    try:
        converted: ModelProto = onnx.version_converter.convert_version(light, OLDEST)
    # The converter's errors have no common class.
    except Exception as error:
        raise RuntimeError(f"{error}") from error
    put_weights_back(converted, weights)
    if opset_of(model) <= LAST_PLAIN_RESIZE:
        _place_as_before(converted.graph, "floor" if opset_of(model) < 10 else "simple")
    return converted


def _place_as_before(graph: GraphProto, nearest: str) -> None:
    """Set how old ``Resize`` nodes place and round coordinates: ONNX's converter leaves defaults.

    "simple" is not a mode of ONNX, but this package's converter of ``Resize`` knows it.
    """
    modes = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": nearest}
    for inner in all_graphs(graph):
        for node in inner.node:
            if is_standard(node, "Resize"):
                node.attribute.extend(onnx.helper.make_attribute(*each) for each in modes.items())
