# SPDX-License-Identifier: Apache-2.0
"""Old versions of ONNX's operators, of which TVM's importer reads the new forms only.

Up to version 10 ``Slice`` has its limits as attributes, and TVM 0.27 has a converter for version 13
alone, which it calls for all versions; ``Reshape``, ``Upsample``, ``TopK`` and others have such
gaps too.
"""

import onnx
from onnx import GraphProto, ModelProto

from .order import all_graphs, is_standard
from .weights import put_weights_back, without_weights

OLDEST = 13
"""The version from which on TVM's importer knows all forms of its operators."""

OLDEST_SCAN = 9
"""The version from which on a ``Scan`` has no batch of its own."""

OLDEST_PRELU = 7
"""The version from which on slopes broadcast as NumPy has it."""

LAST_PLAIN_RESIZE = 10
"""The version up to which coordinates are asymmetric, and the nearest element is the lower one: in
version 10 the upper one along an axis that shrinks, to ONNX Runtime."""

FORMAT = 8
"""The version of the file format: from 4 on, initializers need not be inputs too."""


def opset_of(model: ModelProto) -> int:
    """Return the version of the standard operators of a model."""
    versions = [each.version for each in model.opset_import if each.domain in ("", "ai.onnx")]
    return max(versions, default=1)


def with_new_opset(model: ModelProto) -> ModelProto:
    """Convert a model of old operators with ONNX's version converter.

    ``model`` is not changed. Returns a model of version 13, or `model` itself where its version is
    that or a later one. Raises ``RuntimeError`` if ONNX cannot convert it.
    """
    standard = [each for each in model.opset_import if each.domain in ("", "ai.onnx")]
    if not standard or opset_of(model) >= OLDEST:
        return model
    # ONNX has no adapters for them, and leaves them as they are: a Scan with a batch of its own,
    # and slopes by channel.
    for kind, oldest in (("Scan", OLDEST_SCAN), ("PRelu", OLDEST_PRELU)):
        if opset_of(model) < oldest and any(node.op_type == kind for node in model.graph.node):
            raise RuntimeError(f"a {kind} of before version {oldest} is another operator")
    light, weights = without_weights(model)
    light.ir_version = max(light.ir_version, FORMAT)
    try:
        converted: ModelProto = onnx.version_converter.convert_version(light, OLDEST)
    # Its errors have no common class.
    except Exception as error:
        raise RuntimeError(f"{error}") from error
    put_weights_back(converted, weights)
    if opset_of(model) <= LAST_PLAIN_RESIZE:
        _place_as_before(converted.graph, "floor" if opset_of(model) < 10 else "simple")
    return converted


def _place_as_before(graph: GraphProto, nearest: str) -> None:
    """Say how old nodes place and round coordinates, which ONNX's converter leaves to the defaults.

    "simple" is no mode of ONNX, but the converter of ``Resize`` here knows it.
    """
    modes = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": nearest}
    for inner in all_graphs(graph):
        for node in inner.node:
            if is_standard(node, "Resize"):
                node.attribute.extend(onnx.helper.make_attribute(*each) for each in modes.items())
