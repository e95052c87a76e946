# SPDX-License-Identifier: Apache-2.0
"""Read tree ensembles from both forms of their ONNX attributes."""

from typing import Any

import numpy as np
import onnx

from ...operands import UnsupportedNode
from .ensemble import MODES, Array, Ensemble, spans_of

_BY_NAME = {**{f"BRANCH_{name}".encode(): n for n, name in enumerate(MODES)}, b"LEAF": -1}


def numbers_of(attributes: dict[str, Any], name: str, dtype: str) -> Array:
    """The numbers of an attribute: a list, or a tensor of the input's type."""
    tensor = attributes.get(f"{name}_as_tensor", attributes.get(name, ()))
    if not isinstance(tensor, onnx.TensorProto):
        return np.array(tensor, np.float32).astype(dtype)
    found: Array = onnx.numpy_helper.to_array(tensor).reshape(-1)
    if found.dtype != dtype:
        raise UnsupportedNode(f"its {name} are of {found.dtype}, and its input is of {dtype}")
    return found


def by_tree_and_node(attributes: dict[str, Any], kind: str, dtype: str) -> Ensemble:
    """Read an ensemble whose nodes are identified by tree and node numbers.

    ``kind``: "class" or "target", the prefix of the weight attributes. ``dtype``: the input's type.
    """
    trees, ids, features, on_true, on_false = (
        _integers(attributes, f"nodes_{name}")
        for name in ("treeids", "nodeids", "featureids", "truenodeids", "falsenodeids")
    )
    splits, names = numbers_of(attributes, "nodes_values", dtype), attributes.get("nodes_modes", ())
    if not len(trees) == len(ids) == len(features) == len(splits) == len(names) > 0:
        raise UnsupportedNode("its lists of nodes are empty, or of different lengths")
    if unknown := sorted(set(names) - set(_BY_NAME)):
        raise UnsupportedNode(f"it has a node of the mode {unknown[0].decode()!r}")
    modes = np.array([_BY_NAME[name] for name in names])
    places = {key: place for place, key in enumerate(zip(trees.tolist(), ids.tolist()))}
    if len(places) < len(names):
        raise UnsupportedNode("two of its nodes have the same number")

    def place(of_trees: Array, nodes: Array) -> Array:
        try:
            return np.array([places[key] for key in zip(of_trees.tolist(), nodes.tolist())], int)
        except KeyError as error:
            raise UnsupportedNode(f"it has no node {error} (tree, node)") from error

    is_leaf = modes < 0
    tracks = _integers(attributes, "nodes_missing_value_tracks_true")
    owners = [_integers(attributes, f"{kind}_{name}") for name in ("treeids", "nodeids")]
    return Ensemble(
        modes=modes,
        features=np.where(is_leaf, 0, features),
        splits=splits,
        on_true=place(trees, np.where(is_leaf, ids, on_true)),
        on_false=place(trees, np.where(is_leaf, ids, on_false)),
        missing=_longer(tracks == 1, len(modes)),
        # A tree begins where the tree number changes.
        roots=np.flatnonzero(np.concatenate([[True], trees[1:] != trees[:-1]])),
        spans={},
        owners=place(*owners),
        targets=_integers(attributes, f"{kind}_ids"),
        weights=numbers_of(attributes, f"{kind}_weights", dtype),
    )


def by_number(attributes: dict[str, Any], dtype: str) -> Ensemble:
    """Read an ensemble of version 5, which numbers leaves apart. ``dtype``: the input's type."""
    modes = onnx.numpy_helper.to_array(attributes["nodes_modes"]).astype(int).reshape(-1)
    targets, inner = _integers(attributes, "leaf_targetids"), len(modes)
    total, leaves = inner + len(targets), np.arange(inner, inner + len(targets))
    on_true, on_false = (
        np.concatenate(
            [
                _integers(attributes, f"nodes_{side}nodeids")
                + inner * (_integers(attributes, f"nodes_{side}leafs") != 0),
                leaves,
            ]
        )
        for side in ("true", "false")
    )
    tracks = _integers(attributes, "nodes_missing_value_tracks_true")
    values = numbers_of(attributes, "membership_values", dtype)
    # NaN ends each set.
    sets = np.split(values, np.flatnonzero(np.isnan(values)) + 1)
    nodes = np.flatnonzero(modes == MODES.index("MEMBER")).tolist()
    return Ensemble(
        modes=np.concatenate([modes, np.full(len(targets), -1)]),
        features=_longer(_integers(attributes, "nodes_featureids"), total),
        splits=_longer(numbers_of(attributes, "nodes_splits", dtype), total),
        on_true=on_true,
        on_false=on_false,
        missing=_longer(tracks == 1, total),
        roots=_integers(attributes, "tree_roots"),
        spans={node: spans_of(each[~np.isnan(each)]) for node, each in zip(nodes, sets)},
        owners=leaves,
        targets=targets,
        weights=numbers_of(attributes, "leaf_weights", dtype),
    )


def _integers(attributes: dict[str, Any], name: str) -> Array:
    return np.array(attributes.get(name, ()), np.int64)


def _longer(array: Array, length: int) -> Array:
    """Pad an array with zeros at the end."""
    return np.pad(array, (0, length - len(array)))
