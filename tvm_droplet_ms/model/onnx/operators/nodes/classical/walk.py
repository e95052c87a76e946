# SPDX-License-Identifier: Apache-2.0
"""The walks of all rows through all trees as one kernel, which is scheduled by hand.

A leaf is its own child, so that a walk has as many steps as its tree is deep, and no branch that
depends on a value: the CPU overlaps the walks of the rows of a block. A block of rows goes through
one tree after another, as the nodes of one tree fit into the nearest cache.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm import te, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

ROWS = 64
"""The rows of a block."""

WORDS = 4
"""The words of a node: its threshold (of a leaf: its number), its feature, and the first words of
the child on the right, where the feature is larger, and of the one on the left."""


@dataclass(frozen=True)
class Walk:
    """The extents of one kernel.

    - ``targets``: sums of a row. ``dtype``: of the features, the thresholds and the sums.
    - ``start``: what an empty sum is. ``reduction``: "sum", "min" or "max".
    - ``has_missing``: whether some node sends NaN to its left; the last bit of a feature says so.
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
        """The rows of a block."""
        return min(self.rows, ROWS)


def walk(settings: Walk, tensors: Sequence[te.Tensor]) -> list[te.Tensor]:
    """Compute the sums of all rows, (rows, targets).

    ``tensors``: the features (rows, features); the words of the nodes; the first word and the depth
    of each tree; the weights of each leaf (leaves, width), and their targets where these are not
    all targets in their order.
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
            with T.serial(0, settings.trees) as tree:
                with T.serial(0, rows) as row:
                    _one_tree(settings, inputs, out, tree, first + row)
        return builder.get()


def _one_tree(settings: Walk, inputs: list[Any], out: Any, tree: Any, row: Any) -> None:
    """Walk through one tree and add the weights of the leaf."""
    features, nodes, roots, depths, weights, *targets = inputs
    place = T.alloc_buffer((1,), nodes.dtype, scope="local")
    T.buffer_store(place, roots[tree], [0])
    with T.serial(0, depths[tree]):
        at = place[0]
        threshold = tirx.reinterpret(settings.dtype, nodes[at])
        number = nodes[at + 1]
        value = features[row, number >> 1 if settings.has_missing else number]
        is_left = value <= threshold
        if settings.has_missing:
            is_left = tirx.any(is_left, tirx.all(tirx.isnan(value), (number & 1) == 1))
        T.buffer_store(place, nodes[at + 2 + is_left.astype(nodes.dtype)], [0])
    leaf = nodes[place[0]]
    with T.serial(0, weights.shape[1]) as column:
        target = targets[0][leaf, column] if targets else column
        old, new = out[row, target], weights[leaf, column]
        if settings.reduction == "sum":
            combined = old + new
        else:
            combined = (tirx.min if settings.reduction == "min" else tirx.max)(old, new)
        T.buffer_store(out, combined, [row, target])
