# SPDX-License-Identifier: Apache-2.0
"""The branches of an ``If`` whose condition is an input."""

import numpy as np
import pytest

pytest.importorskip("onnxruntime")

from onnx import helper
from onnx_models import branch, node
from operator_runs import assert_same, assert_same_of, model_of

X = np.random.default_rng(0).standard_normal((2, 3, 8)).astype("float32")
CONTRIB = "com.microsoft"


def branches(then, other, outputs="y"):
    return node("If", "c", outputs, then_branch=then, else_branch=other)


@pytest.mark.parametrize("condition", [True, False])
def test_a_branch_has_operators_of_onnx_runtime_and_functions(condition):
    fused = helper.make_node("QuickGelu", ["x"], ["t"], domain=CONTRIB)
    then = branch("then", [fused, node("Mish", "t", "u")], "u")
    other = branch("else", [node("Celu", "x", "v")], "v")
    fed = {"x": X, "c": np.array(condition)}
    made = model_of([branches(then, other)], fed, opset=18)
    made.opset_import.append(helper.make_opsetid(CONTRIB, 1))
    assert_same(made, fed)


@pytest.mark.parametrize("condition", [True, False])
def test_branches_of_two_outputs_and_inside_each_other(condition):
    inner = node(
        "If",
        "c",
        "p q",
        then_branch=branch("a", [node("Exp", "x", "e"), node("Neg", "x", "f")], "e", "f"),
        else_branch=branch("b", [node("Abs", "x", "g"), node("Relu", "x", "h")], "g", "h"),
    )
    then = branch("then", [inner, node("Add", "p q", "s")], "s", "p")
    other = branch("else", [node("Sigmoid", "x", "t"), node("Add", "x k", "u")], "t", "u", k=X)
    assert_same_of([branches(then, other, "y z")], {"x": X, "c": np.array(condition)}, "y z")
