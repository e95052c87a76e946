# SPDX-License-Identifier: Apache-2.0
"""Replace outputs that are lists of maps from classes to scores (scikit-learn's exporter)."""

from copy import deepcopy

import onnx
from onnx import ModelProto, NodeProto

from .opset import OLDEST
from .order import reads

_DOMAIN = "ai.onnx.ml"


def without_zip_maps(model: ModelProto) -> tuple[ModelProto, tuple[str, ...]]:
    """Replace each ``ZipMap`` that makes an output by its input: a row of scores for each map.

    ``model`` is not changed. Returns the changed copy, or `model` itself if it has no ``ZipMap``,
    and notes for the user.
    """
    outputs = {value.name for value in model.graph.output}
    read = {name for node in model.graph.node for name in reads(node)}
    notes = []
    changed = deepcopy(model) if any(map(_is_zip_map, model.graph.node)) else model
    for node in changed.graph.node:
        if not _is_zip_map(node) or node.output[0] not in outputs - read:
            continue
        for value in changed.graph.output:
            if value.name == node.output[0]:
                kind = onnx.helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, None)
                value.type.CopyFrom(kind)
        labels = [onnx.helper.get_attribute_value(each) for each in node.attribute]
        shown = [each.decode() if isinstance(each, bytes) else each for each in labels[0]]
        notes.append(
            f"output {node.output[0]!r} is a tensor with a column for each class, in the order "
            f"{shown}, and not a list of maps"
        )
        node.CopyFrom(onnx.helper.make_node("Identity", node.input, node.output, node.name))
    if notes and not any(each.domain in ("", "ai.onnx") for each in changed.opset_import):
        changed.opset_import.append(onnx.helper.make_opsetid("", OLDEST))
    return changed, tuple(notes)


def _is_zip_map(node: NodeProto) -> bool:
    return bool(node.domain == _DOMAIN and node.op_type == "ZipMap")
