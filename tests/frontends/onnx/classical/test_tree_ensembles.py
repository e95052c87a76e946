# SPDX-License-Identifier: Apache-2.0
"""Ensembles of trees give what ONNX Runtime gives: every question, NaN, sums and labels."""

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from classical_models import (
    assert_same_each,
    assert_same_of,
    ensemble,
    ml,
    ml_model,
    special_rows,
    tensor,
)
from operator_runs import run_here

from tvm_droplet_ms.frontends.onnx.importing import import_onnx
from tvm_droplet_ms.session.errors import ModelError

MODES = ("LEQ", "LT", "GTE", "GT", "EQ", "NEQ")
EDGES = np.array([-np.inf, -1, -0.5, -0.0, 0.0, 0.5, 1, np.inf, np.nan, 1e-45, -1e-45])


def only_first(tree):
    return [0]


def one_by_tree(tree):
    return [tree % 3]


def stump(mode, threshold, tracks, dtype):
    """One question: 1 where it is true, and 2."""
    as_tensors = {
        "nodes_values_as_tensor": tensor(np.array([threshold, 0, 0], dtype)),
        "target_weights_as_tensor": tensor(np.array([1, 2], dtype)),
    }
    return {
        "n_targets": 1,
        "nodes_treeids": [0, 0, 0],
        "nodes_nodeids": [0, 1, 2],
        "nodes_featureids": [0, 0, 0],
        "nodes_truenodeids": [1, 0, 0],
        "nodes_falsenodeids": [2, 0, 0],
        "nodes_modes": [f"BRANCH_{mode}", "LEAF", "LEAF"],
        "nodes_missing_value_tracks_true": [tracks, 0, 0],
        "target_treeids": [0, 0],
        "target_nodeids": [1, 2],
        "target_ids": [0, 0],
        **as_tensors,
    }


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("tracks", [0, 1])
def test_every_question_at_every_edge(dtype, tracks):
    nodes = [
        ml("TreeEnsembleRegressor", outputs=f"y{number}_{place}", **attributes)
        for number, mode in enumerate(MODES)
        for place, threshold in enumerate((-0.5, 0.0, 0.5, np.inf, -np.inf, np.nan))
        for attributes in [stump(mode, threshold, tracks, dtype)]
    ]
    assert_same_each(nodes, {"x": EDGES[:, None].astype(dtype)}, tolerance=0)


@pytest.mark.parametrize("rows", [1, 63, 130])
def test_random_trees_of_mixed_questions(rows):
    generator = np.random.default_rng(rows)
    nodes = [
        ml(
            "TreeEnsembleRegressor",
            outputs=f"y{number}",
            n_targets=1,
            **ensemble(
                generator, "target", only_first, depth=number + 1, modes=MODES, tracks=tracks
            ),
        )
        for number, tracks in enumerate((True, False, True, True))
    ]
    assert_same_each(nodes, {"x": special_rows(generator, rows, 4)}, tolerance=1e-6)


@pytest.mark.parametrize("base", [False, True])
@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
def test_aggregates_of_targets_that_some_rows_do_not_reach(aggregate, base):
    generator = np.random.default_rng(1)

    def some(tree):
        return sorted(set(generator.integers(3, size=2).tolist()))

    nodes = []
    for number, targets in enumerate((only_first, lambda tree: range(3), one_by_tree, some)):
        count = 1 if targets is only_first else 3
        values = {"base_values": generator.standard_normal(count).tolist()} if base else {}
        nodes.append(
            ml(
                "TreeEnsembleRegressor",
                outputs=f"y{number}",
                n_targets=count,
                aggregate_function=aggregate,
                **values,
                **ensemble(generator, "target", targets, modes=MODES),
            )
        )
    assert_same_each(nodes, {"x": special_rows(generator, 40, 4)})


@pytest.mark.parametrize("transform", ["SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"])
def test_transforms_of_regressors(transform):
    generator = np.random.default_rng(2)
    nodes = [
        ml(
            "TreeEnsembleRegressor",
            outputs=f"y{count}",
            n_targets=count,
            post_transform=transform,
            **ensemble(generator, "target", targets, factor=0.05),
        )
        for count, targets in ((1, only_first), (3, one_by_tree))
    ]
    assert_same_each(nodes, {"x": special_rows(generator, 20, 4)}, tolerance=1e-3)


CLASSIFIERS = {
    "one class": ([5], only_first, (0, 1)),
    "two classes, weights of the first": ([5, 8], only_first, (0, 1, 2)),
    "two classes, weights of the second": ([5, 8], lambda tree: [1], (0, 1, 2)),
    "two classes": ([5, 8], lambda tree: [0, 1], (0, 1, 2)),
    "two classes by tree": ([5, 8], lambda tree: [tree % 2], (0, 1, 2)),
    "three classes": ([5, 8, 2], lambda tree: range(3), (0, 3)),
    "three classes by tree": ([5, 8, 2], one_by_tree, (0, 3)),
    "a class without weights": ([5, 8, 2], lambda tree: [tree % 2], (0, 3)),
}


@pytest.mark.parametrize("case", CLASSIFIERS)
def test_labels_and_scores_of_classifiers(case):
    labels, targets, bases = CLASSIFIERS[case]
    generator = np.random.default_rng(3)
    nodes, outputs = [], []
    for transform in ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO"):
        for base in bases:
            for factor in ({}, {"factor": 0.2}):
                values = {"base_values": (generator.standard_normal(base) / 5).tolist()}
                outputs += [f"l{len(nodes)}", f"y{len(nodes)}"]
                made = ml(
                    "TreeEnsembleClassifier",
                    outputs=" ".join(outputs[-2:]),
                    classlabels_int64s=labels,
                    post_transform=transform,
                    **(values if base else {}),
                    **ensemble(generator, "class", targets, **factor),
                )
                nodes.append(made)
    fed = {"x": special_rows(generator, 30, 4)}
    assert_same_of(nodes, fed, " ".join(outputs), tolerance=1e-4)


def test_of_equal_scores_the_first_one_wins():
    generator = np.random.default_rng(6)
    attributes = ensemble(generator, "class", lambda tree: [tree % 3], trees=6)
    attributes["class_weights"] = [float(n % 2) for n in range(len(attributes["class_weights"]))]
    made = ml("TreeEnsembleClassifier", outputs="l y", classlabels_int64s=[7, 3, 5], **attributes)
    fed = {"x": special_rows(generator, 200, 4)}
    assert_same_of([made], fed, "l y", tolerance=0)
    scores = np.sort(run_here(ml_model([made], fed, "l y"), fed)[1], axis=1)
    assert (scores[:, -1] == scores[:, -2]).sum() > 20


@pytest.mark.parametrize("dtype", ["float64", "int64", "int32"])
def test_features_of_other_types(dtype):
    generator = np.random.default_rng(4)
    attributes = ensemble(generator, "class", lambda tree: range(3), modes=MODES)
    made = ml("TreeEnsembleClassifier", outputs="l y", classlabels_int64s=[3, 1, 2], **attributes)
    assert_same_of([made], {"x": special_rows(generator, 50, 4, dtype)}, "l y")


def set_question(members, tracks, dtype):
    """Version 5: 1 where a feature is in a set, and 2."""
    return {
        "n_targets": 1,
        "tree_roots": [0],
        "nodes_featureids": [0],
        "nodes_modes": tensor(np.array([6], np.uint8)),
        "nodes_splits": tensor(np.array([0], dtype)),
        "nodes_truenodeids": [0],
        "nodes_trueleafs": [1],
        "nodes_falsenodeids": [1],
        "nodes_falseleafs": [1],
        "nodes_missing_value_tracks_true": [tracks],
        "leaf_targetids": [0, 0],
        "leaf_weights": tensor(np.array([1, 2], dtype)),
        "membership_values": tensor(np.array([*members, np.nan], dtype)),
    }


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_sets_of_version_5(dtype):
    sets = ([1], [1, 2], [0, 3, 7], [40, 2], [-3, -1, 0, 2], [0, 41], [31], list(range(0, 64, 2)))
    values = [np.arange(-5, 70), np.arange(-4.5, 5), [30.5, 31.5, 40.5], EDGES]
    nodes = [
        ml("TreeEnsemble", outputs=f"y{number}_{tracks}", **set_question(members, tracks, dtype))
        for number, members in enumerate(sets)
        for tracks in (0, 1)
    ]
    fed = {"x": np.concatenate(values)[:, None].astype(dtype)}
    assert_same_each(nodes, fed, version=5, tolerance=0)


@pytest.mark.parametrize("transform", range(5))
def test_numbers_of_version_5_for_transforms_and_aggregates(transform):
    questions = [set_question([1, 2], 0, "float32") for _ in range(4)]
    for each in questions:
        each |= {"n_targets": 3, "leaf_targetids": [0, 2]}
        each["leaf_weights"] = tensor(np.float32([0.25, 0.75]))
    nodes = [
        ml("TreeEnsemble", outputs=f"y{n}", aggregate_function=n, post_transform=transform, **each)
        for n, each in enumerate(questions)
    ]
    fed = {"x": np.arange(4, dtype="float32")[:, None]}
    assert_same_each(nodes, fed, version=5, tolerance=1e-4)


def test_what_is_no_tree_is_refused():
    generator = np.random.default_rng(5)
    whole = ensemble(generator, "target", only_first, trees=1)
    broken = {
        "reads feature 3, and its input has 2": {},
        "no node .0, 99.": {"target_nodeids": [99] * len(whole["target_ids"])},
        "its targets are not all among 1": {"target_ids": [1] * len(whole["target_ids"])},
        "mode 'BRANCH_ODD'": {
            "nodes_modes": [each.replace("LEQ", "ODD") for each in whole["nodes_modes"]]
        },
    }
    whole["nodes_featureids"][0] = 3
    for message, changed in broken.items():
        fed = {"x": np.zeros((2, 4 if changed else 2), "float32")}
        made = ml("TreeEnsembleRegressor", n_targets=1, **{**whole, **changed})
        with pytest.raises(ModelError, match=message):
            import_onnx(ml_model([made], fed))


@pytest.mark.parametrize("changed", [{"tree_roots": [-1]}, {"nodes_truenodeids": [7]}])
def test_children_and_roots_that_are_no_nodes_are_refused(changed):
    made = {**set_question([1, 2], 0, "float32"), **changed}
    fed = {"x": np.zeros((2, 1), "float32")}
    with pytest.raises(ModelError, match="one of its roots or children is no node"):
        import_onnx(ml_model([ml("TreeEnsemble", **made)], fed, version=5))


def test_a_path_without_an_end_is_refused():
    made = stump("LEQ", 0.0, 0, "float32")
    made["nodes_modes"] = ["BRANCH_LEQ", "BRANCH_LEQ", "LEAF"]
    made["nodes_falsenodeids"] = [2, 2, 0]
    fed = {"x": np.zeros((2, 1), "float32")}
    with pytest.raises(ModelError, match="a path through its trees has no end"):
        import_onnx(ml_model([ml("TreeEnsembleRegressor", **made)], fed))
