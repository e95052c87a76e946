# SPDX-License-Identifier: Apache-2.0
"""Folding of shapes and constants, against ONNX's reference implementation."""

import numpy as np
import pytest

pytest.importorskip("onnx")

from onnx import TensorProto, helper, numpy_helper
from onnx_models import branch, copy, kinds, model, node, run, value

from tvm_droplet_ms.frontends.onnx import folding
from tvm_droplet_ms.frontends.onnx.folding import fold_constants

X = value("x", [2, 6])
INPUT = np.arange(12, dtype="float32").reshape(2, 6) - 5


def folded(made):
    """Fold a copy, and compare the outputs."""
    small = copy(made)
    fold_constants(small)
    inputs = {each.name: INPUT for each in made.graph.input}
    for actual, expected in zip(run(small, **inputs), run(made, **inputs), strict=True):
        np.testing.assert_array_equal(actual, expected)
        assert actual.dtype == expected.dtype
    return small


def test_arithmetic_on_shapes_is_folded():
    nodes = [
        node("Relu", "x", "r"),
        node("Shape", "r", "s"),
        node("Identity", "s", "s2"),
        node("Cast", "s2", "s3", to=TensorProto.FLOAT),
        node("Gather", "s3 zero", "rows"),
        node("Cast", "rows", "n", to=TensorProto.INT64),
        node("Size", "r", "all"),
        node("Div", "all n", "rest"),
        node("Concat", "rest n", "new", axis=0),
        node("Reshape", "r new"),
    ]
    small = folded(model(nodes, [X], ["y"], zero=np.array([0])))
    assert kinds(small) == ["Relu", "Reshape"]
    (new,) = small.graph.initializer
    assert numpy_helper.to_array(new).tolist() == [6, 2]


def test_a_range_of_an_extent_is_folded_in_its_type():
    nodes = [
        node("Shape", "x", "s", start=-1),
        node("Squeeze", "s", "n"),
        node("Cast", "n", "limit", to=TensorProto.FLOAT),
        node("Range", "first limit step", "r"),
        node("Add", "x r"),
    ]
    small = folded(model(nodes, [X], ["y"], first=np.float32(0), step=np.float32(1)))
    assert kinds(small) == ["Add"]
    assert small.graph.initializer[0].data_type == TensorProto.FLOAT


@pytest.mark.parametrize(("limits", "expected"), [({"start": 1}, [6]), ({"end": -1}, [2])])
def test_a_part_of_a_shape_is_folded(limits, expected):
    small = folded(model([node("Shape", "x", **limits)], [X], ["y"]))
    assert not small.graph.node
    assert numpy_helper.to_array(small.graph.initializer[0]).tolist() == expected


def test_the_branch_that_is_taken_remains():
    then = branch(
        "then", [node("Mul", "a two", "t"), node("Exp", "t", "u")], "u", two=np.float32(2)
    )
    other = branch("other", [node("Neg", "a", "t")], "t")
    nodes = [
        node("Relu", "x", "a"),
        node("Shape", "a", "s"),
        node("Gather", "s at", "n"),
        node("Equal", "n six", "c"),
        node("If", "c", "b", then_branch=then, else_branch=other),
        node("If", "c", "d", then_branch=then, else_branch=other),
        node("Add", "b d"),
    ]
    made = model(nodes, [X], ["y"], at=np.int64(1), six=np.int64(6))
    assert kinds(folded(made)) == ["Relu", "Mul", "Exp", "Mul", "Exp", "Add"]
    made.graph.initializer[1].CopyFrom(numpy_helper.from_array(np.int64(7), "six"))
    assert kinds(folded(made)) == ["Relu", "Neg", "Neg", "Add"]


def test_a_branch_that_hands_on_an_outer_value_is_taken():
    then = branch("then", [node("Shape", "x", "t")], "x2", x2=np.float32(3))
    other = helper.make_graph([], "other", [], [value("x", None)])
    nodes = [node("If", "no", "c", then_branch=then, else_branch=other), node("Relu", "c")]
    assert kinds(folded(model(nodes, [X], ["y"], no=np.array(False)))) == ["Relu"]


def test_an_if_that_an_input_decides_stays_and_its_branches_see_what_was_renamed():
    then = branch("then", [node("Exp", "b", "t")], "t")
    other = branch("other", [node("Neg", "b", "t")], "t")
    nodes = [
        node("Identity", "x", "b"),
        node("ReduceMax", "x", "m", keepdims=0),
        node("Cast", "m", "c", to=TensorProto.BOOL),
        node("If", "c", then_branch=then, else_branch=other),
    ]
    small = folded(model(nodes, [X], ["y"]))
    assert kinds(small) == ["ReduceMax", "Cast", "If"]


def test_identities_and_dropouts_go_and_outputs_keep_their_names():
    nodes = [
        node("Dropout", "x", "d"),
        node("Identity", "d", "e"),
        node("Relu", "e", "r"),
        node("Identity", "r", "y"),
        node("Identity", "x", "z"),
    ]
    assert kinds(folded(model(nodes, [X], ["y", "z"]))) == ["Relu", "Identity", "Identity"]


def test_a_dropout_whose_mask_is_used_stays():
    made = model([node("Dropout", "x", "d m"), node("Cast", "m", "y", to=1)], [X], ["y"])
    assert kinds(folded(made)) == ["Dropout", "Cast"]


def test_what_nothing_reads_goes_with_its_weights():
    nodes = [node("MatMul", "x w", "unused"), node("Relu", "x")]
    small = folded(model(nodes, [X], ["y"], w=np.ones((6, 2), "float32")))
    assert kinds(small) == ["Relu"] and not small.graph.initializer


def test_random_numbers_are_not_folded():
    nodes = [node("RandomNormalLike", "c", "r"), node("Add", "x r")]
    made = model(nodes, [X], ["y"], c=np.zeros(6, "float32"))
    fold_constants(made)
    assert kinds(made) == ["RandomNormalLike", "Add"]


def test_a_constant_that_grows_stays_computed(monkeypatch):
    nodes = [node("Expand", "c to", "e"), node("Add", "x e")]
    made = model(nodes, [X], ["y"], c=np.float32(3), to=np.array([2, 6]))
    assert kinds(folded(made)) == ["Add"]
    monkeypatch.setattr(folding, "GROWTH_BYTES", 16)
    assert kinds(folded(made)) == ["Expand", "Add"]


def test_nodes_of_other_domains_are_not_folded():
    made = model([helper.make_node("Shape", ["x"], ["y"], domain="mine")], [X], ["y"])
    made.opset_import.append(helper.make_opsetid("mine", 1))
    fold_constants(made)
    assert kinds(made) == ["Shape"]


def test_a_shape_that_depends_on_data_stays():
    nodes = [node("NonZero", "x", "n"), node("Shape", "n")]
    assert kinds(folded(model(nodes, [X], ["y"]))) == ["NonZero", "Shape"]


def test_outputs_that_nobody_asks_for_are_left_out():
    """Of the two outputs of MaxPool or GRU the first may have no name."""
    nodes = [node("TopK", "c two", " i"), node("Cast", "i", "f", to=1), node("Add", "x f")]
    made = model(nodes, [X], ["y"], c=np.array([3, 9, 5, 7], "float32"), two=np.array([2]))
    made.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 2
    fold_constants(made)
    assert kinds(made) == ["Add"]
    (constant,) = made.graph.initializer
    assert numpy_helper.to_array(constant).tolist() == [1, 3]


def test_a_training_dropout_is_random_and_stays():
    nodes = [node("Dropout", "c half yes", "d"), node("Add", "x d")]
    constants = {"c": np.ones(6, "float32"), "half": np.float32(0.5), "yes": np.array(True)}
    made = model(nodes, [X], ["y"], **constants)
    fold_constants(made)
    assert kinds(made) == ["Dropout", "Add"]


def test_an_output_that_is_two_outputs_of_a_branch_is_copied():
    then = branch("then", [node("Exp", "x", "t")], "t", "t", "x")
    other = branch("other", [node("Neg", "x", "t")], "t", "t", "t")
    nodes = [node("If", "yes", "y z w", then_branch=then, else_branch=other)]
    small = folded(model(nodes, [X], ["y", "z", "w"], yes=np.array(True)))
    assert kinds(small) == ["Exp", "Identity", "Identity"]
