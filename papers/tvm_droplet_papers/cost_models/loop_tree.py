# SPDX-License-Identifier: Apache-2.0
"""The loops of a scheduled module as a tree of context vectors, the input of a TreeGRU.

After "Learning to Optimize Tensor Programs" (Chen et al., 2018): a node of the tree is a loop; its
context vector has the extent, the kind, the iterations within and outside, and the memory touched
in each buffer. Imports no TVM.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tvm_droplet_ms.cost_model.nests import LoopNest

MAX_NODES = 48
"""Number of nodes kept of a module."""

KINDS = 5
"""Number of loop kinds: serial, parallel, vectorized, unrolled, bound to a thread."""

OPERATIONS = 5
"""Number of kinds of operations counted in a block."""

BUFFERS = 4
"""Number of buffers described per node, the largest first."""

_PER_BUFFER = 4

WIDTH = 2 + KINDS + 1 + 4 + OPERATIONS + BUFFERS * _PER_BUFFER
"""Length of a context vector."""

TREE_FEATURES = MAX_NODES * (1 + WIDTH)
"""Number of features of ``loop_tree``."""


@dataclass
class _Node:
    """A loop or a block.

    ``nests``: each nest that contains the loop, with the loop's position in the nest; empty for a
    block.
    """

    parent: int
    outer: float
    extent: int = 1
    kind: int | None = None
    operations: np.ndarray | None = None
    nests: list[tuple[LoopNest, int]] = field(default_factory=list)


@dataclass
class _Touched:
    """The memory that a loop touches in one buffer, in bytes."""

    size: float = 0.0
    run: float = 0.0
    accesses: float = 0.0
    written: bool = False


def loop_tree(nests: Sequence[LoopNest]) -> np.ndarray:
    """The tree of a module: its loops of more than one iteration, and its blocks as leaves.

    A node has its parent and these numbers, as logarithms to base 2 except for flags:

    - the extent; the largest power of two that divides it; the kind, one-hot (all 0 for the module
      and for a block); whether the node is a block;
    - the iterations of the loop and its inner loops, the maximum over its nests; the iterations of
      the outer loops; the unroll limit, plus one; the bytes of all buffers that the node touches,
      plus one;
    - for a block, its operations of each kind, plus one;
    - for each of the ``BUFFERS`` largest buffers that the node touches, in the same order in all
      nodes of a module: the bytes touched; the accesses per byte; the contiguous bytes; and whether
      the buffer is written.

    ``nests``: the loop nests of a module, in the module's order. If they have more than
    ``MAX_NODES`` nodes, the nests with the fewest iterations are dropped. Returns an array of shape
    ``(TREE_FEATURES,)``, float32: ``MAX_NODES`` rows, each with the parent and ``WIDTH`` numbers.
    Parents come before their children. Row 0 is the module, which is its own parent. A row without
    a node has the parent -1.
    """
    kept = list(nests)
    nodes = _nodes(kept)
    while len(nodes) > MAX_NODES and len(kept) > 1:
        del kept[min(reversed(range(len(kept))), key=lambda place: _turns(kept[place]))]
        nodes = _nodes(kept)
    rows = np.zeros((MAX_NODES, 1 + WIDTH), dtype=np.float32)
    rows[:, 0] = -1.0
    sizes = _sizes(kept)
    for row, node in zip(rows, nodes, strict=False):
        row[0] = node.parent
        row[1:] = _context(node, sizes)
    return rows.ravel()


def _turns(nest: LoopNest) -> float:
    return float(nest.iterations[-1]) if len(nest.iterations) else 1.0


def _nodes(nests: Sequence[LoopNest]) -> list[_Node]:
    """The module, its loops and its blocks in preorder."""
    nodes = [_Node(0, 1.0)]
    places: dict[int, int] = {}
    for nest in nests:
        parent, outer = 0, 1.0
        if len(nest.extents):
            nodes[0].nests.append((nest, len(nest.extents) - 1))
        for position in reversed(range(len(nest.extents))):
            extent, loop = int(nest.extents[position]), nest.loops[position]
            if extent == 1:
                continue
            if loop not in places:
                places[loop] = len(nodes)
                nodes.append(_Node(parent, outer, extent, int(nest.kinds[position])))
            parent = places[loop]
            nodes[parent].nests.append((nest, position))
            outer *= extent
        nodes.append(_Node(parent, outer, operations=nest.operations))
    return nodes


def _sizes(nests: Sequence[LoopNest]) -> dict[str, float]:
    """The maximum number of bytes that a nest touches of each buffer."""
    sizes: dict[str, float] = {}
    for nest in nests:
        for access in nest.accesses:
            if len(access.touched):
                sizes[access.buffer] = max(sizes.get(access.buffer, 0.0), float(access.touched[-1]))
    return sizes


def _context(node: _Node, sizes: dict[str, float]) -> np.ndarray:
    kind = np.zeros(KINDS)
    if node.kind is not None:
        kind[node.kind] = 1.0
    computed = np.zeros(OPERATIONS) if node.operations is None else node.operations
    touched = _touched(node)
    inner = max((float(nest.iterations[at]) for nest, at in node.nests), default=1.0)
    unroll = max((nest.unroll_limit for nest, _ in node.nests), default=0)
    working_set = sum(memory.size for memory in touched.values())
    extent = np.log2([node.extent, node.extent & -node.extent])
    products = np.log2([inner, node.outer, 1.0 + unroll, 1.0 + working_set])
    buffers = np.zeros((BUFFERS, _PER_BUFFER))
    # The sort is stable: buffers of equal size keep the module's order.
    largest = sorted(touched, key=lambda name: -sizes[name])
    for row, name in zip(buffers, largest, strict=False):
        memory = touched[name]
        row[:3] = np.log2([memory.size, memory.accesses / memory.size, memory.run])
        row[3] = memory.written
    is_block = float(node.operations is not None)
    parts = (extent, kind, [is_block], products, np.log2(1.0 + computed), buffers.ravel())
    return np.concatenate(parts)


def _touched(node: _Node) -> dict[str, _Touched]:
    """The memory that the node touches in each buffer, in the order of the module."""
    found: dict[str, _Touched] = {}
    for nest, at in node.nests:
        for access in nest.accesses:
            memory = found.setdefault(access.buffer, _Touched())
            memory.size = max(memory.size, float(access.touched[at]))
            memory.run = max(memory.run, float(access.runs[at]))
            memory.accesses += float(nest.iterations[at])
            memory.written |= access.is_write
    return found
