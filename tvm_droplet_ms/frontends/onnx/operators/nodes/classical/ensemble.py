# SPDX-License-Identifier: Apache-2.0
"""Tree ensembles as ONNX describes them, and their packed form for one kernel.

The kernel has a single test: "is the feature at most the threshold, or is it NaN where NaN goes
left?". ONNX's tests reduce to it: "less" uses the next smaller threshold, "greater" swaps the
children, and "equal" also tests the next smaller number.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...operands import UnsupportedNode
from .walk import WORDS

Array = np.ndarray[Any, Any]

MODES = ("LEQ", "LT", "GTE", "GT", "EQ", "NEQ", "MEMBER")
"""The tests of nodes, by their numbers in version 5."""

_Row = tuple[Any, int, int, bool, int]
"""Threshold, left and right child, whether NaN goes left, and feature."""


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
    between = _Between(len(threshold), [])
    for node in np.flatnonzero(is_mode["EQ"] | is_mode["NEQ"] | is_mode["MEMBER"]):
        spans = ensemble.spans.get(int(node), np.array([[split[node]] * 2]))
        ends = (int(left[node]), int(right[node]), bool(missing[node]))
        if is_mode["NEQ"][node]:
            ends = (ends[1], ends[0], False)
        first = between.membership(spans, _Goal(*ends, int(ensemble.features[node])))
        threshold[node], left[node], right[node], nan_left[node], _ = first
    columns = [threshold, left, right, nan_left, ensemble.features]
    if between.rows:
        columns = [
            np.concatenate([one, np.array(other, one.dtype)])
            for one, other in zip(columns, zip(*between.rows, strict=True), strict=True)
        ]
    return columns


@dataclass(frozen=True)
class _Goal:
    """The children for a feature inside and outside a set, and whether NaN is in the set."""

    yes: int
    no: int
    has_nan: bool
    feature: int


@dataclass(frozen=True)
class _Between:
    """Inserted nodes, and the number of the first one."""

    first: int
    rows: list[_Row]

    def membership(self, spans: Array, goal: _Goal) -> _Row:
        """Insert tests for whether a feature is in any of the ranges. Return the first test."""
        yes, no, feature = goal.yes, goal.no, goal.feature
        if not len(spans):
            return (np.nan, no, no, False, feature)
        if len(spans) == 1:
            below = self._added((_below(spans[0, :1])[0], no, yes, False, feature))
            return (spans[0, 1], below, no, goal.has_nan, feature)
        middle = len(spans) // 2
        low, high = (
            self._added(self.membership(half, goal)) for half in (spans[:middle], spans[middle:])
        )
        return (spans[middle - 1, 1], low, high, False, feature)

    def _added(self, row: _Row) -> int:
        self.rows.append(row)
        return self.first + len(self.rows) - 1


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
