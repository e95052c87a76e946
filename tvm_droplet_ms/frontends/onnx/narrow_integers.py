# SPDX-License-Identifier: Apache-2.0
"""Weights of two and four bits in ONNX, as bytes: TVM has no tensors of them.

``pack_weights`` packs them again where that is faster.
"""

import numpy as np
import onnx
from onnx import ModelProto, TensorProto

_NAMES = {"INT4": np.int8, "UINT4": np.uint8, "INT2": np.int8, "UINT2": np.uint8}
_KINDS = {
    getattr(TensorProto, name): kind for name, kind in _NAMES.items() if hasattr(TensorProto, name)
}
"""By the numbers of ONNX's types, those that this version of ONNX has: what holds them."""

_PLACES = {("", "DequantizeLinear"): (0, 2), ("com.microsoft", "GatherBlockQuantized"): (0, 3)}
"""The inputs of an operator that have such a type: numbers and zero points."""


def widen_integers(model: ModelProto) -> ModelProto:
    """Give operators bytes where their constants have fewer bits. Changes ``model``.

    Signed ones for ``GatherBlockQuantized``, whose unsigned bytes hold several numbers each.
    """
    constants = {each.name: each for each in model.graph.initializer if each.data_type in _KINDS}
    widened: dict[tuple[str, bool], str] = {}
    taken = {each.name for each in model.graph.initializer}
    for node in model.graph.node if constants else ():
        is_table = node.op_type == "GatherBlockQuantized"
        for place in _PLACES.get((node.domain.replace("ai.onnx", ""), node.op_type), ()):
            name = node.input[place] if len(node.input) > place else ""
            if name not in constants:
                continue
            if (name, is_table) not in widened:
                new = f"{name}_bytes"
                while new in taken:
                    new += "_"
                taken.add(new)
                tensor = constants[name]
                kind = np.int8 if is_table else _KINDS[tensor.data_type]
                values = onnx.numpy_helper.to_array(tensor).astype(kind)
                model.graph.initializer.append(onnx.numpy_helper.from_array(values, new))
                widened[name, is_table] = new
            node.input[place] = widened[name, is_table]
    return model
