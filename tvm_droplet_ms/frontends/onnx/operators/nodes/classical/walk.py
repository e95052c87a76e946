# SPDX-License-Identifier: Apache-2.0
"""The walks of all rows through all trees as one hand-scheduled kernel.

Several walks run side by side until all are at a leaf, which is its own child. The loads of one
walk depend on each other, but the CPU overlaps the loads of several walks. No branch depends on a
single value. A block of rows goes through one tree after another, because the nodes of one tree fit
into the nearest cache. With few rows, one row goes through several trees at a time.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import te, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

ROWS = 64
"""Maximum number of rows in a block."""

LANES = 8
"""Number of walks that run side by side."""

WORDS = 4
"""Number of words in a node: the threshold (for a leaf, its number), the feature, the first word of
the right child (for larger features), and the first word of the left child."""


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
    """Compute the sums of all rows, (rows, targets).

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
