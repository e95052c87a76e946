# SPDX-License-Identifier: Apache-2.0
"""Tree ensembles as ONNX describes them, and their packed form for one kernel.

The kernel has a single test: "is the feature at most the threshold, or is it NaN where NaN goes
left?". ONNX's tests reduce to it: "less" uses the next smaller threshold, "greater" swaps the
children, and "equal" also tests the next smaller number.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from ...operands import UnsupportedNode

Array = np.ndarray[Any, Any]

WORDS = 4
"""Number of words in a node: the threshold (for a leaf, its number), the feature, the first word of
the right child (for larger features), and the first word of the left child."""

MODES = ("LEQ", "LT", "GTE", "GT", "EQ", "NEQ", "MEMBER")
"""The tests of nodes, by their numbers in version 5."""

_Row = tuple[Any, int, int, bool, int]
"""Threshold, left and right child, whether NaN goes left, and feature."""

_Goal = tuple[int, int, bool, int]
"""The children for a feature inside and outside a set, whether NaN is in the set, and feature."""


@dataclass(frozen=True)
class Ensemble:
    """Trees with an entry for each node, including leaves. Children and roots are node numbers.

    - ``modes``: indices in MODES; -1 for a leaf. ``missing``: whether NaN counts as true.
    - ``spans``: for each MEMBER node: the ranges of numbers in its set, (ranges, 2), both ends
      inclusive, in ascending order.
    - ``owners``, ``targets``, ``weights``: the weights of leaves, with an entry for each weight:
      the node, the target that the weight is added to, and the weight.
    """

    modes: Array
    features: Array
    splits: Array
    on_true: Array
    on_false: Array
    missing: Array
    roots: Array
    spans: dict[int, Array]
    owners: Array
    targets: Array
    weights: Array


@dataclass(frozen=True)
class Packed:
    """An ensemble packed for ``walk``. ``targets``: None if each leaf has all targets in order."""

    nodes: Array
    roots: Array
    weights: Array
    targets: Array | None
    has_missing: bool


def pack(ensemble: Ensemble, targets: int, start: float) -> Packed:
    """Pack an ensemble.

    ``targets``: number of targets. ``start``: the neutral weight of the reduction. Raises
    ``UnsupportedNode`` if a path has no end.
    """
    threshold, left, right, missing, feature = _questions(ensemble)
    dtype = threshold.dtype
    words = np.int32 if dtype.itemsize == 4 else np.int64
    is_leaf = np.zeros(len(threshold), bool)
    is_leaf[: len(ensemble.modes)] = ensemble.modes < 0
    leaves = np.flatnonzero(is_leaf)
    left[leaves] = right[leaves] = leaves
    _check_ends(left, right, is_leaf, ensemble.roots)
    nodes = np.empty((len(threshold), WORDS), words)
    nodes[:, 0] = threshold.view(words)
    nodes[leaves, 0] = np.arange(len(leaves))
    has_missing = bool(missing[~is_leaf].any())
    nodes[:, 1] = feature * 2 + missing if has_missing else feature
    nodes[:, 2], nodes[:, 3] = right * WORDS, left * WORDS
    weights, ids = _leaf_weights(ensemble, leaves, start, targets)
    return Packed(
        nodes.reshape(-1),
        (ensemble.roots * WORDS).astype(words),
        weights,
        ids,
        has_missing,
    )


def _below(values: Array) -> Array:
    """The next smaller number. NaN for minus infinity, because no number is at most NaN."""
    low = values.dtype.type(-np.inf)
    with np.errstate(invalid="ignore", under="ignore"):
        return np.where(values == low, np.nan, np.nextafter(values, low)).astype(values.dtype)


def spans_of(members: Array) -> Array:
    """The ranges of numbers that ONNX Runtime accepts as members of a set.

    Large sets, and sets with numbers below 0 or above 30, are sets of integers: ONNX Runtime
    truncates features there.
    """
    members = np.unique(members)
    if len(members) < 31 and bool(((members >= 0) & (members <= 30)).all()):
        return np.stack([members, members], axis=1)
    low = np.where(members > 0, members, -_below(1 - members))
    high = np.where(members < 0, members, _below(members + 1))
    return np.stack([low, high], axis=1)


def _questions(ensemble: Ensemble) -> list[Array]:
    """Threshold, left and right child, NaN flag and feature of all nodes, with inserted nodes."""
    is_mode = {name: ensemble.modes == number for number, name in enumerate(MODES)}
    split, missing = ensemble.splits, ensemble.missing
    is_strict = is_mode["LT"] | is_mode["GTE"]
    threshold = np.where(is_strict, _below(split), split)
    # No number is greater than NaN either.
    is_turned = (is_mode["GT"] | is_mode["GTE"]) & ~np.isnan(split)
    left = np.where(is_turned, ensemble.on_false, ensemble.on_true)
    right = np.where(is_turned, ensemble.on_true, ensemble.on_false)
    nan_left = np.where(is_turned, ~missing, missing)
    rows: list[_Row] = []

    def added(row: _Row) -> int:
        rows.append(row)
        return len(threshold) + len(rows) - 1

    def membership(spans: Array, goal: _Goal) -> _Row:
        """Insert tests for whether a feature is in any of the ranges. Return the first test."""
        yes, no, has_nan, feature = goal
        if not len(spans):
            return (np.nan, no, no, False, feature)
        if len(spans) == 1:
            below = added((_below(spans[0, :1])[0], no, yes, False, feature))
            return (spans[0, 1], below, no, has_nan, feature)
        middle = len(spans) // 2
        low, high = (added(membership(half, goal)) for half in (spans[:middle], spans[middle:]))
        return (spans[middle - 1, 1], low, high, False, feature)

    for node in np.flatnonzero(is_mode["EQ"] | is_mode["NEQ"] | is_mode["MEMBER"]):
        spans = ensemble.spans.get(int(node), np.array([[split[node]] * 2]))
        ends = (int(left[node]), int(right[node]), bool(missing[node]))
        if is_mode["NEQ"][node]:
            ends = (ends[1], ends[0], False)
        first = membership(spans, (*ends, int(ensemble.features[node])))
        threshold[node], left[node], right[node], nan_left[node], _ = first
    columns = [threshold, left, right, nan_left, ensemble.features]
    if rows:
        columns = [
            np.concatenate([one, np.array(other, one.dtype)])
            for one, other in zip(columns, zip(*rows, strict=True), strict=True)
        ]
    return columns


def _check_ends(left: Array, right: Array, is_leaf: Array, roots: Array) -> None:
    """Refuse trees with a cycle."""
    nodes = roots
    for _ in range(len(left)):
        inner = nodes[~is_leaf[nodes]]
        if not len(inner):
            return
        nodes = np.unique(np.concatenate([left[inner], right[inner]]))
    raise UnsupportedNode("a path through its trees has no end")


def _leaf_weights(
    ensemble: Ensemble, leaves: Array, start: float, targets: int
) -> tuple[Array, Array | None]:
    """The weights of each leaf, (leaves, width), and the targets that they are added to."""
    number = np.full(len(ensemble.modes), -1)
    number[leaves] = np.arange(len(leaves))
    # Weights of inner nodes, which old converters write, are ignored.
    kept = number[ensemble.owners] >= 0
    owner, target = number[ensemble.owners][kept], ensemble.targets[kept]
    order = np.argsort(owner, kind="stable")
    owner, target, value = owner[order], target[order], ensemble.weights[kept][order]
    counts = np.bincount(owner, minlength=len(leaves))
    width = max(1, int(counts.max(initial=0)))
    column = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
    weights = np.full((len(leaves), width), start, ensemble.weights.dtype)
    ids = np.zeros((len(leaves), width), np.int32)
    weights[owner, column], ids[owner, column] = value, target
    is_whole = targets == 1 or (
        width == targets and bool((counts == width).all() and (ids == np.arange(targets)).all())
    )
    return weights, None if is_whole and width == targets else ids


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
