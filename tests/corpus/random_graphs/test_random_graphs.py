# SPDX-License-Identifier: Apache-2.0
"""A handful of random graphs with random schedules; the command does thousands."""

import multiprocessing

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

pytest.importorskip("onnxruntime", reason="random graphs are compared with ONNX Runtime")
hypothesis = pytest.importorskip("hypothesis", reason="random graphs are drawn by hypothesis")

from .forked import run_forked  # noqa: E402
from .graphs import MOST, model_of_seed, models  # noqa: E402
from .judging import is_right  # noqa: E402
from .shrinking import shrink  # noqa: E402
from .trial import run_model  # noqa: E402

GRAPHS = 5


@hypothesis.settings(
    max_examples=GRAPHS,
    derandomize=True,
    database=None,
    deadline=None,
    phases=[hypothesis.Phase.generate],
    suppress_health_check=list(hypothesis.HealthCheck),
)
@hypothesis.given(models())
def test_random_graphs_are_right_by_random_schedules(model):
    row = run_model(model, seed=0, diagnose=True)
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


def test_a_process_that_ends_or_hangs_costs_one_row():
    def crash():
        import os

        os._exit(7)

    def hang():
        multiprocessing.Event().wait(60)

    jobs = [("crash", crash), ("hang", hang), ("fine", lambda: {"status": "right"})]
    rows = dict(run_forked(jobs, 3, 1.0))
    assert rows["crash"] == {"status": "crash", "why": "exit status 7"}
    assert rows["hang"]["status"] == "timeout"
    assert rows["fine"] == {"status": "right"}
