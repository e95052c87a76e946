# SPDX-License-Identifier: Apache-2.0
"""Models of the domain ai.onnx.ml, and random trees."""

import numpy as np
import onnx
from onnx_models import node
from operator_runs import assert_same, model_of

DOMAIN = "ai.onnx.ml"

tensor = onnx.numpy_helper.from_array


def ml(kind, inputs="x", outputs="y", **attributes):
    return node(kind, inputs, outputs, domain=DOMAIN, **attributes)


def ml_model(nodes, fed, outputs="y", version=3, **constants):
    made = model_of(nodes, fed, outputs, **constants)
    made.opset_import.append(onnx.helper.make_opsetid(DOMAIN, version))
    return made


def assert_same_of(nodes, fed, outputs="y", version=3, tolerance=1e-5):
    """A model of some nodes gives the same here and in ONNX Runtime."""
    assert_same(ml_model(nodes, fed, outputs, version), fed, rtol=tolerance, atol=tolerance / 10)


def assert_same_each(nodes, fed, version=3, tolerance=1e-5):
    """Nodes of one output each, in one model."""
    outputs = " ".join(each.output[0] for each in nodes)
    assert_same_of(nodes, fed, outputs, version, tolerance)


def special_rows(generator, rows, features, dtype="float32"):
    """Halves, many of them equal to thresholds, infinities and NaN."""
    found = (generator.integers(-5, 6, (rows, features)) / 2).astype(dtype)
    if found.dtype.kind == "f":
        for value, share in ((np.nan, 0.15), (np.inf, 0.05), (-np.inf, 0.05)):
            found[generator.random(found.shape) < share] = value
    return found


def tree(generator, depth, features, modes):
    """The nodes of a random tree: (mode, feature, threshold, true, false), with leaves as None."""
    nodes = []

    def add(left):
        place = len(nodes)
        nodes.append(None)
        if left and (not place or generator.random() < 0.8):
            children = add(left - 1), add(left - 1)
            threshold = float(generator.integers(-4, 5) / 2)
            mode = str(generator.choice(modes))
            nodes[place] = (mode, int(generator.integers(features)), threshold, *children)
        return place

    add(depth)
    return nodes


def ensemble(generator, kind, targets, *, trees=4, depth=3, features=4, modes=("LEQ",), **options):
    """The attributes of random trees.

    ``targets``: takes the tree, and returns the targets of one of its leaves. ``options``:
    ``tracks`` (whether NaN may count as true) and ``factor`` (makes weights that are positive).
    """
    names = "treeids nodeids featureids truenodeids falsenodeids values modes".split()
    found = {f"nodes_{name}": [] for name in [*names, "missing_value_tracks_true"]}
    found |= {f"{kind}_{name}": [] for name in ("treeids", "nodeids", "ids", "weights")}
    for number in range(trees):
        for place, each in enumerate(tree(generator, depth, features, modes)):
            mode, feature, threshold, yes, no = each or ("LEAF", 0, 0.0, 0, 0)
            named = mode if each is None else f"BRANCH_{mode}"
            for name, value in zip(names, (number, place, feature, yes, no, threshold, named)):
                found[f"nodes_{name}"].append(value)
            tracks = options.get("tracks", True) and each and generator.random() < 0.5
            found["nodes_missing_value_tracks_true"].append(int(bool(tracks)))
            for target in targets(number) if each is None else ():
                weight = generator.standard_normal()
                if "factor" in options:
                    weight = abs(weight) * options["factor"]
                for name, value in (("treeids", number), ("nodeids", place), ("ids", target)):
                    found[f"{kind}_{name}"].append(value)
                found[f"{kind}_weights"].append(float(weight))
    return found
