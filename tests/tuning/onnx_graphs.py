# SPDX-License-Identifier: Apache-2.0
"""Small ONNX models, written in few words."""

import numpy as np
from onnx import TensorProto, helper, numpy_helper

FLOAT, INT = TensorProto.FLOAT, TensorProto.INT64


def node(kind, inputs, outputs="y", **attributes):
    """A node; its inputs and outputs are names between spaces."""
    return helper.make_node(kind, inputs.split(" "), outputs.split(" "), **attributes)


def model(nodes, inputs, *outputs, opset=17, **constants):
    """A model of one graph; an input is a name, a type and a shape, and so is an output."""
    outputs = outputs or (("y", FLOAT, None),)
    graph = helper.make_graph(
        nodes,
        "model",
        [helper.make_tensor_value_info(*each) for each in inputs],
        [helper.make_tensor_value_info(*each) for each in outputs],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )
    return helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", opset)])
