# SPDX-License-Identifier: Apache-2.0
"""Converters for tree ensembles, by ONNX Runtime's rules (``tree_ensemble_aggregator.h``)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tvm import relax, te, tirx
from tvm.relax import op
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from ......model.scheduled import emit_scheduled
from ...operands import (
    Attributes,
    UnsupportedNode,
    constant,
    dtype_of,
    number,
    part,
    shape_of,
    text,
)
from . import converts
from .ensemble import Array, Ensemble, by_number, by_tree_and_node, numbers_of, pack
from .scores import Labels, as_rows, pair, transform_of, transformed

_AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
"""The aggregate functions of a target's weights, by their numbers in ``TreeEnsemble``."""

_TRANSFORMS = ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO", "PROBIT")
"""The transforms of scores, by their numbers in ``TreeEnsemble`` in ONNX Runtime. ONNX's definition
swaps the second and the third."""


@converts("TreeEnsembleRegressor")
def tree_ensemble_regressor(bb: Any, inputs: Any, attr: Attributes) -> Any:
    """The sums, averages or extremes of the weights of leaves."""
    rows = _rows(bb, inputs[0])
    dtype = dtype_of(rows)
    ensemble = by_tree_and_node(attr, "target", dtype)
    base = numbers_of(attr, "base_values", dtype)
    aggregate, targets = text(attr, "aggregate_function", "SUM"), int(attr["n_targets"])
    scores = _aggregated(bb, rows, ensemble, targets, aggregate, base)
    return _regressed(bb, scores, transform_of(attr), "float32")


@converts("TreeEnsemble")
def tree_ensemble(bb: Any, inputs: Any, attr: Attributes) -> Any:
    """The ensembles of version 5 of the domain, which numbers leaves apart."""
    rows = _rows(bb, inputs[0])
    dtype = dtype_of(rows)
    aggregate = _named(attr, "aggregate_function", _AGGREGATES, 1)
    transform = _named(attr, "post_transform", _TRANSFORMS, 0)
    ensemble, targets = by_number(attr, dtype), int(attr["n_targets"])
    scores = _aggregated(bb, rows, ensemble, targets, aggregate, np.zeros(0, dtype))
    return _regressed(bb, scores, transform, dtype)


@converts("TreeEnsembleClassifier")
def tree_ensemble_classifier(bb: Any, inputs: Any, attr: Attributes) -> Any:
    """Labels and scores. Classes without any weight have no score."""
    labels = Labels(attr, "classlabels_int64s")
    rows = _rows(bb, inputs[0])
    dtype = dtype_of(rows)
    ensemble = by_tree_and_node(attr, "class", dtype)
    base, transform = numbers_of(attr, "base_values", dtype), transform_of(attr)
    classes = len(labels)
    if classes > 2:
        return _of_many(bb, rows, ensemble, labels, base, transform)
    sums = _sums(bb, rows, ensemble, classes, "SUM")
    if classes == 1:
        return _of_one(bb, sums, labels, base, transform)
    return _of_two(bb, sums, ensemble, labels, base, transform)


def _of_one(bb: Any, sums: Any, labels: Labels, base: Array, transform: str) -> Any:
    """Label and score for a single class. The label is 0 or 1, whatever the class label is."""
    if len(base) > 1:
        raise UnsupportedNode(f"it has {len(base)} base_values for one class: expected one")
    scores = _plus(bb, sums, base)
    kept = transform if transform == "PROBIT" else "NONE"
    label = labels.of_condition(bb, scores > number(0.0, scores), 0, 1)
    return relax.Tuple([label, transformed(bb, scores, kept)])


def _of_two(
    bb: Any, sums: Any, ensemble: Ensemble, labels: Labels, base: Array, transform: str
) -> Any:
    """Label and scores for two classes, one of which may have no weight at all."""
    weighted = set(ensemble.targets.tolist())
    if any(not _is_always(ensemble, target) for target in weighted):
        raise UnsupportedNode(
            "one of its two classes has a weight in some leaves of each tree only"
        )
    has_second = 1 in weighted
    both = [bb.emit(part(sums, 1, n, n + 1)) for n in range(2)]
    is_binary = len(weighted) == 1
    all_positive = bool((ensemble.weights >= 0).all())
    if len(base) == 2 and has_second:
        both[1] = _plus(bb, both[0], base[1:])
        both[0] = bb.emit(-both[1]) if 0 in weighted else both[0]
    elif len(base) and 0 in weighted:
        both[0] = _plus(bb, both[0], base[:1])
    is_second = both[has_second] > number(0.5 if is_binary and all_positive else 0.0, sums)
    label = labels.of_condition(bb, is_second, *(labels.values if is_binary else (0, 1)))
    if has_second or len(base) == 2:
        return relax.Tuple([label, transformed(bb, op.concat(both, axis=1), transform)])
    return relax.Tuple(
        [label, pair(bb, both[0], "rest" if all_positive else "negative", transform)]
    )


def _of_many(
    bb: Any, rows: Any, ensemble: Ensemble, labels: Labels, base: Array, transform: str
) -> Any:
    """Label and scores for three classes or more. The largest score decides the label."""
    classes = len(labels)
    if len(base) not in (0, classes):
        raise UnsupportedNode(f"it has {len(base)} base_values for {classes} classes")
    scores = _plus(bb, _sums(bb, rows, ensemble, classes, "SUM"), base)
    ranked = scores
    if not len(base) and not _all_always(ensemble, classes):
        # ONNX Runtime does not choose a class that has no weight in the leaves of a row.
        lowest = number(float(np.finfo(dtype_of(scores)).min), scores)
        ranked = bb.emit(op.where(_reached(bb, rows, ensemble, classes), scores, lowest))
    return relax.Tuple([labels.of_largest(bb, ranked), transformed(bb, scores, transform)])


def _rows(bb: Any, data: Any) -> Any:
    """The features as rows of floats. An input with one axis is one row."""
    shape = shape_of(data)
    if len(shape) not in (1, 2):
        raise UnsupportedNode(f"its input has the shape {tuple(shape)}: expected one of 2 axes")
    return as_rows(bb, data if dtype_of(data) == "float64" else bb.emit(data.astype("float32")))


def _named(attributes: Attributes, name: str, names: Sequence[str], default: int) -> str:
    """The name for the number in an attribute."""
    number = int(attributes.get(name, default))
    if not 0 <= number < len(names):
        raise UnsupportedNode(f"its {name} is {number}: expected 0 to {len(names) - 1}")
    return names[number]


def _aggregated(
    bb: Any, rows: Any, ensemble: Ensemble, targets: int, aggregate: str, base: Array
) -> Any:
    """The values of all targets, including base values."""
    if len(base) not in (0, targets):
        raise UnsupportedNode(f"it has {len(base)} base_values for {targets} targets")
    if aggregate not in _AGGREGATES:
        names = ", ".join(_AGGREGATES)
        raise UnsupportedNode(f"its aggregate_function is {aggregate!r}: expected {names}")
    sums = _sums(bb, rows, ensemble, targets, aggregate)
    if aggregate == "AVERAGE":
        sums = bb.emit(sums / number(float(len(ensemble.roots)), sums))
    is_reached = None
    if aggregate in ("MIN", "MAX"):
        is_reached = bb.emit(op.isfinite(sums))
    elif len(base) and targets > 1 and not _all_always(ensemble, targets):
        is_reached = _reached(bb, rows, ensemble, targets)
    if is_reached is None:
        return _plus(bb, sums, base)
    zero = number(0.0, sums)
    if targets == 1:
        return _plus(bb, bb.emit(op.where(is_reached, sums, zero)), base)
    # ONNX Runtime adds no base value to a target without a weight in the leaves of a row.
    return bb.emit(op.where(is_reached, _plus(bb, sums, base), zero))


def _regressed(bb: Any, scores: Any, transform: str, dtype: str) -> Any:
    """The output of a regressor. With a single target, PROBIT is the only transform applied."""
    if transform == "NONE" or (shape_of(scores)[1] == 1 and transform != "PROBIT"):
        return scores.astype(dtype)
    return transformed(bb, scores, transform).astype(dtype)


def _sums(bb: Any, rows: Any, ensemble: Ensemble, targets: int, aggregate: str) -> Any:
    """The sum, minimum or maximum of the weights of each target, (rows, targets)."""
    starts = {"MIN": np.inf, "MAX": -np.inf}
    start = starts.get(aggregate, 0.0)
    (count, width), dtype = shape_of(rows), dtype_of(rows)
    if not _is_among(ensemble.features, width):
        raise UnsupportedNode(
            f"it reads feature {ensemble.features.max()}, and its input has {width}"
        )
    links = np.concatenate([ensemble.roots, ensemble.on_true, ensemble.on_false])
    if not _is_among(links, len(ensemble.modes)):
        raise UnsupportedNode("one of its roots or children is no node")
    if not len(ensemble.targets) or not _is_among(ensemble.targets, targets):
        raise UnsupportedNode(f"its targets are not all among {targets}")
    if start and not np.isfinite(ensemble.weights).all():
        raise UnsupportedNode("it has a weight that is not finite")
    packed = pack(ensemble, targets, start)
    reduction = aggregate.lower() if start else "sum"
    trees, has_missing = len(packed.roots), packed.has_missing
    settings = Walk(count, trees, targets, dtype, start, reduction, has_missing)
    arrays = (packed.nodes, packed.roots, packed.weights, packed.targets)
    constants = [constant(each) for each in arrays if each is not None]
    return emit_scheduled(
        bb, lambda *tensors: walk(settings, tensors), [rows, *constants], "tree_ensemble"
    )


def _is_among(numbers: Array, count: int) -> bool:
    """True if all numbers are at least 0 and below a count."""
    return bool(((numbers >= 0) & (numbers < count)).all())


def _reached(bb: Any, rows: Any, ensemble: Ensemble, targets: int) -> Any:
    """Return whether a target has any weight in the leaves of a row."""
    ones = replace(ensemble, weights=np.ones_like(ensemble.weights))
    counts = _sums(bb, rows, ones, targets, "SUM")
    return bb.emit(counts > number(0.0, counts))


def _all_always(ensemble: Ensemble, targets: int) -> bool:
    return all(_is_always(ensemble, target) for target in range(targets))


def _is_always(ensemble: Ensemble, target: int) -> bool:
    """True if all leaves of some tree have a weight of a target."""
    owned = np.zeros(len(ensemble.modes), bool)
    owned[ensemble.owners[ensemble.targets == target]] = True
    for root in ensemble.roots:
        seen, nodes = np.zeros(len(owned), bool), np.array([root])
        while len(nodes):
            seen[nodes] = True
            inner = nodes[ensemble.modes[nodes] >= 0]
            children = np.unique(
                np.concatenate([ensemble.on_true[inner], ensemble.on_false[inner]])
            )
            nodes = children[~seen[children]]
        if owned[seen & (ensemble.modes < 0)].all():
            return True
    return False


def _plus(bb: Any, scores: Any, base: Array) -> Any:
    """Add base values to scores, if there are any."""
    return scores if not len(base) else bb.emit(scores + constant(base.reshape(1, -1)))


ROWS = 64
"""Maximum number of rows in a block."""

LANES = 8
"""Number of walks that run side by side."""


@dataclass(frozen=True)
class Walk:
    """The extents of one kernel.

    - ``targets``: number of sums per row. ``dtype``: type of the features, thresholds and sums.
    - ``start``: the value of an empty sum. ``reduction``: "sum", "min" or "max".
    - ``has_missing``: whether some node sends NaN left. The last bit of a feature word then says
      whether its node does.
    """

    rows: int
    trees: int
    targets: int
    dtype: str
    start: float
    reduction: str
    has_missing: bool

    @property
    def block(self) -> int:
        """Number of rows in a block."""
        return min(self.rows, ROWS)


def walk(settings: Walk, tensors: Sequence[te.Tensor]) -> list[te.Tensor]:
    """Compute the sums of all rows, (rows, targets), as one hand-scheduled kernel.

    Several walks run side by side until all are at a leaf, which is its own child. The loads of one
    walk depend on each other, but the CPU overlaps the loads of several walks. No branch depends on
    a single value. A block of rows goes through one tree after another, because the nodes of one
    tree fit into the nearest cache. With few rows, one row goes through several trees at a time.

    ``tensors``: the features (rows, features); the words of the nodes; the first word of each tree;
    the weights of each leaf (leaves, width); and their targets, unless each leaf has all targets in
    order.
    """
    found = te.extern(
        [(settings.rows, settings.targets)],
        list(tensors),
        lambda inputs, outputs: _statements(settings, list(inputs), outputs[0]),
        dtype=[settings.dtype],
        name="walk",
    )
    return [found]


def _statements(settings: Walk, inputs: list[Any], out: Any) -> Any:
    blocks = -(-settings.rows // settings.block)
    with IRBuilder() as builder:
        with T.parallel(0, blocks) if blocks > 1 else T.serial(0, 1) as block:
            first = block * settings.block
            rows = settings.block
            if settings.rows % settings.block:
                rows = tirx.min(settings.rows - first, rows)
            with T.serial(0, rows) as row:
                with T.serial(0, settings.targets) as target:
                    start = tirx.const(settings.start, settings.dtype)
                    T.buffer_store(out, start, [first + row, target])
            if settings.rows >= LANES:
                with T.serial(0, settings.trees) as tree:
                    for offset, lanes in _lanes(rows):
                        walks = [(tree, first + offset + lane) for lane in range(lanes)]
                        _walk(settings, inputs, out, walks)
            else:
                with T.serial(0, rows) as row:
                    for offset, lanes in _lanes(settings.trees):
                        walks = [(offset + lane, first + row) for lane in range(lanes)]
                        _walk(settings, inputs, out, walks)
        return builder.get()


def _lanes(count: Any) -> Iterator[tuple[Any, int]]:
    """Generate a loop over groups of LANES places, and a loop over the remaining places."""
    with T.serial(0, count // LANES) as group:
        yield group * LANES, LANES
    with T.serial(0, count % LANES) as rest:
        yield count // LANES * LANES + rest, 1


def _walk(settings: Walk, inputs: list[Any], out: Any, walks: Sequence[tuple[Any, Any]]) -> None:
    """Walk rows through trees until all are at a leaf, and reduce the weights of the leaves."""
    features, nodes, roots, weights, *targets = inputs
    places = T.alloc_buffer((len(walks),), nodes.dtype, scope="local")
    is_moving = T.alloc_buffer((1,), "bool", scope="local")
    for lane, (tree, _) in enumerate(walks):
        T.buffer_store(places, roots[tree], [lane])
    T.buffer_store(is_moving, tirx.const(True, "bool"), [0])
    with T.While(is_moving[0]):
        T.buffer_store(is_moving, tirx.const(False, "bool"), [0])
        for lane, (_, row) in enumerate(walks):
            at = T.bind(places[lane])
            number = nodes[at + 1]
            value = features[row, number >> 1 if settings.has_missing else number]
            is_left = value <= tirx.reinterpret(settings.dtype, nodes[at])
            if settings.has_missing:
                is_left = tirx.any(is_left, tirx.all(tirx.isnan(value), (number & 1) == 1))
            child = T.bind(nodes[at + 2 + is_left.astype(nodes.dtype)])
            T.buffer_store(is_moving, tirx.any(is_moving[0], child != at), [0])
            T.buffer_store(places, child, [lane])
    for lane, (_, row) in enumerate(walks):
        leaf = nodes[places[lane]]
        with T.serial(0, weights.shape[1]) as column:
            target = targets[0][leaf, column] if targets else column
            old, new = out[row, target], weights[leaf, column]
            if settings.reduction == "sum":
                combined = old + new
            else:
                combined = (tirx.min if settings.reduction == "min" else tirx.max)(old, new)
            T.buffer_store(out, combined, [row, target])
