# SPDX-License-Identifier: Apache-2.0
"""Perturb the weights of an ONNX model by a rounding error."""

from copy import deepcopy

import numpy as np
import onnx
from onnx import ModelProto, TensorProto

from ...measure.deviation import moved_by_rounding
from .order import all_graphs

ROUNDING = 2.0**-22
"""Four units of rounding. In another order, the rounding of a sum of a thousand products changes by
about thirty units. The check allows sixteen times (``NOISE``) the observed movement."""

_WEIGHTS = {
    "Conv": (1,),
    "ConvTranspose": (1,),
    "Gemm": (1,),
    "MatMul": (0, 1),
    "LSTM": (1, 2),
    "GRU": (1, 2),
    "RNN": (1, 2),
    "DynamicQuantizeLSTM": (8, 10),
    "DynamicQuantizeMatMul": (2,),
    "MatMulIntegerToFloat": (3,),
    "DequantizeLinear": (1,),
}
"""The operator inputs that are weights, or scales of byte weights. Other constants may be masks,
tables, or extents."""


def move_weights(model: ModelProto, generator: np.random.Generator) -> ModelProto:
    """Copy a model, and move its weights that are factors in sums of products.

    Each number moves by the relative error ``ROUNDING``, up or down at random. ``model`` is not
    changed. Weights are float32 constants that an operator of ``_WEIGHTS`` reads. Scales that a
    ``QuantizeLinear`` reads too are scales of activations, and stay. Constants of other types, and
    constants with numbers that are not finite, stay too.
    """
    copy = deepcopy(model)
    for graph in all_graphs(copy.graph):
        names = {
            node.input[place]
            for node in graph.node
            for place in _WEIGHTS.get(node.op_type, ())
            if place < len(node.input)
        } - {node.input[1] for node in graph.node if node.op_type == "QuantizeLinear"}
        tensors = [tensor for tensor in graph.initializer if tensor.name in names]
        for node in graph.node:
            if node.op_type == "Constant" and node.output[0] in names:
                tensors += [each.t for each in node.attribute if each.name == "value"]
        for tensor in tensors:
            _move_tensor(tensor, generator)
    return copy


def _move_tensor(tensor: TensorProto, generator: np.random.Generator) -> None:
    if tensor.data_type != onnx.TensorProto.FLOAT:
        return
    array = onnx.numpy_helper.to_array(tensor)
    if np.isfinite(array).all():
        moved = moved_by_rounding(array, generator, ROUNDING)
        tensor.CopyFrom(onnx.numpy_helper.from_array(moved, tensor.name))
