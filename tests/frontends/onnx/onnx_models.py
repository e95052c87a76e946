# SPDX-License-Identifier: Apache-2.0
"""Small ONNX models, made and run."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FLOAT = TensorProto.FLOAT


def node(kind, inputs, outputs="y", **attributes):
    return helper.make_node(kind, inputs.split(" "), outputs.split(" "), **attributes)


def value(name, extents, kind=FLOAT):
    return helper.make_tensor_value_info(name, kind, extents)


def model(nodes, inputs, outputs, *, opset=17, **constants):
    """Make a model; inputs and outputs are names, or value infos."""
    graph = helper.make_graph(
        nodes,
        "model",
        inputs,
        [value(each, None) if isinstance(each, str) else each for each in outputs],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )
    return helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", opset)])


def branch(name, nodes, *outputs, **constants):
    """Make a branch of an ``If``."""
    initializers = [numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()]
    return helper.make_graph(nodes, name, [], [value(o, None) for o in outputs], initializers)


def run(made, **inputs):
    """Run a model with ONNX's reference implementation."""
    from onnx.reference import ReferenceEvaluator

    return ReferenceEvaluator(made).run(None, inputs)


def kinds(made):
    return [each.op_type for each in made.graph.node]


def copy(made):
    other = onnx.ModelProto()
    other.CopyFrom(made)
    return other


def run_imported(made, *arrays):
    """Run what TVM's importer makes of a model, compiled."""
    import tvm
    from tvm import relax
    from tvm.relax.frontend.onnx import from_onnx

    machine = relax.VirtualMachine(tvm.compile(from_onnx(made), "llvm"), tvm.cpu())
    outputs = machine["main"](*map(tvm.runtime.tensor, arrays))
    return [each.numpy() for each in (outputs if len(made.graph.output) > 1 else [outputs])]
