# SPDX-License-Identifier: Apache-2.0
"""Widen 2-bit and 4-bit ONNX weights to bytes, because TVM has no tensors of these types.

``pack_weights`` packs them again where that is faster.
"""

import numpy as np
import onnx
from onnx import ModelProto, TensorProto

_NAMES = {"INT4": np.int8, "UINT4": np.uint8, "INT2": np.int8, "UINT2": np.uint8}
_KINDS = {
    getattr(TensorProto, name): kind for name, kind in _NAMES.items() if hasattr(TensorProto, name)
}
"""Map from the narrow ONNX types that this ONNX version has to NumPy types that hold them."""

_PLACES = {("", "DequantizeLinear"): (0, 2), ("com.microsoft", "GatherBlockQuantized"): (0, 3)}
"""The inputs of each operator that may have such a type: numbers and zero points."""


def widen_integers(model: ModelProto) -> ModelProto:
    """Widen 2-bit and 4-bit constants of operators to bytes. Changes ``model``.

    They become int8 for ``GatherBlockQuantized``, whose uint8 values hold several numbers each.
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
