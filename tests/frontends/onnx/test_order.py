# SPDX-License-Identifier: Apache-2.0
"""The order of nodes."""

import numpy as np
import pytest

pytest.importorskip("onnx")

from onnx import TensorProto
from onnx_models import branch, copy, kinds, model, node, run, value

from tvm_droplet_ms.frontends.onnx.order import reads, sort_nodes

X = value("x", [2, 3])


def test_nodes_are_put_behind_those_that_they_read():
    backwards = [node("Add", "b a"), node("Exp", "a", "b"), node("Relu", "x", "a")]
    made = model(backwards, [X], ["y"])
    sort_nodes(made)
    assert kinds(made) == ["Relu", "Exp", "Add"]
    x = np.array([[-1, 0, 1], [2, 3, 4]], "float32")
    relu = np.maximum(x, 0)
    np.testing.assert_allclose(run(made, x=x)[0], relu + np.exp(relu), rtol=1e-6)


def test_an_order_that_is_right_is_kept():
    nodes = [node("Exp", "x", "b"), node("Relu", "x", "a"), node("Add", "b a")]
    made = model(nodes, [X], ["y"])
    before = made.SerializeToString()
    sort_nodes(made)
    assert made.SerializeToString() == before


def test_what_a_branch_captures_comes_before_and_branches_are_sorted_too():
    then = branch("then", [node("Exp", "t", "u"), node("Neg", "a", "t")], "u")
    other = branch("other", [node("Identity", "a", "v")], "v")
    chosen = node("If", "c", "y", then_branch=then, else_branch=other)
    made = model([chosen, node("Relu", "x", "a")], [X, value("c", [], TensorProto.BOOL)], ["y"])
    assert reads(made.graph.node[0]) == {"c", "a"}
    sort_nodes(made)
    assert kinds(made) == ["Relu", "If"]
    (sorted_then,) = [a.g for a in made.graph.node[1].attribute if a.name == "then_branch"]
    assert [each.op_type for each in sorted_then.node] == ["Neg", "Exp"]


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([node("Add", "x z", name="sum")], "'sum' \\(Add\\) reads the value 'z', which nothing"),
        ([node("Add", "x b", "a"), node("Neg", "a", "b"), node("Exp", "b")], "'a' .*makes itself"),
    ],
)
def test_a_graph_without_an_order_is_refused(nodes, message):
    made = model(nodes, [X], ["y"])
    before = copy(made)
    with pytest.raises(ValueError, match=message):
        sort_nodes(made)
    assert made == before
