# SPDX-License-Identifier: Apache-2.0
"""A handful of random graphs with random schedules; the command does thousands."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

pytest.importorskip("onnxruntime", reason="random graphs are compared with ONNX Runtime")

from .graphs import MOST, model_of_seed
from .judging import is_right
from .shrinking import shrink
from .trial import run_model


@pytest.mark.parametrize("seed", range(5))
def test_random_graphs_are_right_by_random_schedules(seed):
    row = run_model(model_of_seed(seed), seed, diagnose=True)
    assert row.status in ("right", "naive"), row


def test_a_seed_is_a_graph():
    first, again = (model_of_seed(3).SerializeToString() for _ in range(2))
    assert first == again
    counts = [len(model_of_seed(seed).graph.node) for seed in range(50)]
    assert 2 < min(counts) and max(counts) <= MOST + 3 and len(set(counts)) > 5


def two_nodes():
    """y = relu(x @ w) with an output for each."""
    info = helper.make_tensor_value_info
    weight = onnx.numpy_helper.from_array(np.eye(4, dtype="float32") * 3, "w")
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["y"]),
        helper.make_node("Relu", ["y"], ["z"]),
        helper.make_node("Neg", ["z"], ["u"]),
    ]
    graph = helper.make_graph(
        nodes,
        "two",
        [info("x", TensorProto.FLOAT, (2, 4))],
        [info("u", TensorProto.FLOAT, (2, 4))],
        [weight],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    return onnx.shape_inference.infer_shapes(model)


def test_what_is_off_by_more_than_rounding_is_wrong():
    model = two_nodes()
    x = np.arange(8, dtype="float32").reshape(2, 4) + 1
    expected = [-np.maximum(3 * x, 0)]
    assert is_right([expected[0] * np.float32(1 + 2e-7)], expected, model, [x])
    assert not is_right([expected[0] * np.float32(1 + 1e-3)], expected, model, [x])
    assert not is_right([expected[0][:1]], expected, model, [x])
    assert not is_right([np.full_like(expected[0], np.nan)], expected, model, [x])


def test_shrinking_keeps_the_node_that_fails():
    smallest = shrink(two_nodes(), lambda model: any(n.op_type == "Relu" for n in model.graph.node))
    assert [node.op_type for node in smallest.graph.node] == ["Relu"]
    onnx.checker.check_model(smallest)
