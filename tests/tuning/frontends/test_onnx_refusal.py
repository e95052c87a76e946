# SPDX-License-Identifier: Apache-2.0
"""The remedy for a model that cannot be imported: what is bound, by name, or left out."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from tvm.target import Target
from tvm_droplet_ms.session.errors import ModelError
from tvm_droplet_ms.tuning.check.output_check import make_check
from tvm_droplet_ms.tuning.compile.lowering import lower
from tvm_droplet_ms.tuning.frontends import import_model

FLOAT, INT = TensorProto.FLOAT, TensorProto.INT64


def model(nodes, inputs, **weights):
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info(*each) for each in inputs],
        [helper.make_tensor_value_info("y", FLOAT, None)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def node(operator, inputs, output="y", **attributes):
    return helper.make_node(operator, inputs.split(), [output], **attributes)


def masked_by_lengths():
    """A model of speech: what lies beyond the length of an utterance is masked."""
    nodes = [
        node("ReduceMax", "x_lens", "most", keepdims=0),
        node("Range", "zero most one", "frames"),
        node("Unsqueeze", "x_lens one_axis", "lengths"),
        node("Less", "frames lengths", "mask"),
        node("Cast", "mask", "weights", to=FLOAT),
        node("Unsqueeze", "weights last", "column"),
        node("Mul", "x column", "masked"),
        node("MatMul", "masked w"),
    ]
    inputs = [("x", FLOAT, ["N", "T", 8]), ("x_lens", INT, ["N"])]
    return model(
        nodes,
        inputs,
        zero=np.int64(0),
        one=np.int64(1),
        one_axis=np.array([1]),
        last=np.array([2]),
        w=np.ones((8, 4), np.float32),
    )


def test_the_input_of_lengths_is_named_and_bound():
    dims = {"N": 1, "T": 20}
    with pytest.raises(ModelError) as refusal:
        import_model(masked_by_lengths(), dims=dims)
    text = str(refusal.value)
    assert "the input 'x_lens' decides it: bind it with constants={'x_lens': value}" in text
    assert "(--constant x_lens=VALUE)" in text
    assert "without it" not in text
    imported = import_model(masked_by_lengths(), dims=dims, constants={"x_lens": [20]})
    assert [spec.name for spec in imported.inputs] == ["x"]


def test_a_length_that_does_not_fit_asks_for_other_extents():
    with pytest.raises(ModelError) as refusal:
        import_model(masked_by_lengths(), dims={"N": 1, "T": 20}, constants={"x_lens": [10]})
    text = str(refusal.value)
    assert "relax.multiply" in text and "ArgumentInfo" not in text
    assert "pass other extents with dims= or shapes= (--dim, --shape)" in text


def test_a_shape_that_is_an_input_is_named():
    made = model([node("Expand", "x shape")], [("x", FLOAT, [1, 8]), ("shape", INT, [2])])
    with pytest.raises(ModelError, match=r"input 'shape' decides it: .* \(--constant shape=VALUE"):
        import_model(made)


def test_a_shape_that_depends_on_data_is_said_to_do_so():
    nodes = [node("Cast", "x", "shape", to=INT), node("Expand", "data shape")]
    made = model(nodes, [("x", FLOAT, [2]), ("data", FLOAT, [1, 8])])
    with pytest.raises(ModelError, match="its extents depend on data: export the model with fixed"):
        import_model(made)


def test_a_kernel_of_unknown_extents_is_refused_where_nothing_can_be_bound():
    nodes = [
        node("NonZero", "x", "places"),
        node("Cast", "places", "numbers", to=FLOAT),
        node("Tile", "numbers repeats", "tiled"),
        node("Mul", "tiled row", "product"),
        node("MatMul", "product w"),
    ]
    weights = {"repeats": np.array([1, 2]), "row": np.ones((2, 3), np.float32)}
    made = model(nodes, [("x", FLOAT, [8])], w=np.ones((3, 4), np.float32), **weights)
    with pytest.raises(ModelError, match="extents depend on data, and TVM makes no"):
        lower(import_model(made).mod, Target({"kind": "llvm", "num-cores": 1}))


def test_an_output_that_is_a_shape_is_refused():
    made = model([node("NonZero", "x", "n"), node("Shape", "n")], [("x", FLOAT, [4, 8])])
    made.graph.output[0].type.tensor_type.elem_type = INT
    with pytest.raises(ModelError, match="an output of the model is the shape of a tensor"):
        import_model(made)


def test_inputs_that_the_reference_refuses_are_asked_for():
    pytest.importorskip("onnxruntime")
    nodes = [node("Add", "index far", "place"), node("Gather", "table place")]
    table = np.ones((16, 4), np.float32)
    made = model(nodes, [("index", INT, [3])], table=table, far=np.int64(100))
    with pytest.raises(ModelError, match=r"ONNX Runtime cannot run .* inputs=\{name: array\}"):
        make_check(import_model(made), Target({"kind": "llvm", "num-cores": 1}), 1e-4, 0)
