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

_WEIGHTS, _ZERO = 0, 2
"""The inputs of ``DequantizeLinear`` that have such a type."""


def widen_integers(model: ModelProto) -> ModelProto:
    """Give ``DequantizeLinear`` bytes where its constants have fewer bits. Changes ``model``."""
    constants = {each.name: each for each in model.graph.initializer if each.data_type in _KINDS}
    widened: dict[str, str] = {}
    taken = {each.name for each in model.graph.initializer}
    for node in model.graph.node if constants else ():
        if node.op_type != "DequantizeLinear" or node.domain not in ("", "ai.onnx"):
            continue
        for place in (_WEIGHTS, _ZERO):
            name = node.input[place] if len(node.input) > place else ""
            if name not in constants:
                continue
            if name not in widened:
                new = f"{name}_bytes"
                while new in taken:
                    new += "_"
                taken.add(new)
                tensor = constants[name]
                values = onnx.numpy_helper.to_array(tensor).astype(_KINDS[tensor.data_type])
                model.graph.initializer.append(onnx.numpy_helper.from_array(values, new))
                widened[name] = new
            node.input[place] = widened[name]
    return model
