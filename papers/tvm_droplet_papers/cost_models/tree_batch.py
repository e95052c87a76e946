# SPDX-License-Identifier: Apache-2.0
"""Batches of loop trees, read by a network level by level.

Imports no TVM.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from .loop_tree import MAX_NODES, WIDTH


@dataclass(frozen=True)
class Level:
    """The nodes of one depth in all trees.

    ``nodes``: the nodes' rows in the batch. ``parents``: the parent in this level of each node of
    the level below, ascending, of shape ``(nodes below,)``.
    """

    nodes: slice
    parents: np.ndarray

    @property
    def count(self) -> int:
        """The number of nodes."""
        return int(self.nodes.stop - self.nodes.start)


@dataclass(frozen=True)
class TreeBatch:
    """Trees with all nodes in one array, the deepest first.

    - ``contexts``: the context vectors of the nodes, of shape ``(nodes, WIDTH)``, float32.
    - ``levels``: the levels, the deepest first.
    - ``by_tree``: the nodes in the order of their trees, of shape ``(nodes,)``.
    - ``trees``: the tree of each node in that order, of the same shape.
    - ``count``: the number of trees.
    """

    contexts: np.ndarray
    levels: tuple[Level, ...]
    by_tree: np.ndarray
    trees: np.ndarray
    count: int

    @staticmethod
    def from_features(features: np.ndarray) -> "TreeBatch":
        """Batch some trees.

        ``features``: features of ``loop_tree``, of shape ``(trees, TREE_FEATURES)``.
        """
        rows = features.reshape(len(features), MAX_NODES, 1 + WIDTH)
        parents = rows[:, :, 0].astype(int)
        depths = node_depths(features)
        trees, nodes = np.nonzero(parents >= 0)
        # Because of preorder, the nodes of a level are in the order of their parents.
        order = np.lexsort((nodes, trees, -depths[trees, nodes]))
        tree, node = trees[order], nodes[order]
        depth = depths[tree, node]
        bounds = np.flatnonzero(np.diff(depth, prepend=-1, append=-1))
        place = np.zeros_like(parents)
        levels: list[Level] = []
        for start, stop in pairwise(bounds.tolist()):
            of_level = tree[start:stop], node[start:stop]
            place[of_level] = np.arange(stop - start)
            below = levels[-1].nodes if levels else slice(0, 0)
            above = place[tree[below], parents[tree[below], node[below]]]
            levels.append(Level(slice(start, stop), above))
        by_tree = np.argsort(tree, kind="stable")
        contexts = np.ascontiguousarray(rows[tree, node, 1:], dtype=np.float32)
        return TreeBatch(contexts, tuple(levels), by_tree, tree[by_tree], len(rows))


def node_depths(features: np.ndarray) -> np.ndarray:
    """The depth of each node of some trees.

    ``features``: features of ``loop_tree``, of shape ``(trees, TREE_FEATURES)``. Returns 0 for the
    root and -1 for a row without a node, of shape ``(trees, MAX_NODES)``.
    """
    parents = features.reshape(len(features), MAX_NODES, 1 + WIDTH)[:, :, 0].astype(int)
    depths = np.zeros_like(parents)
    everyone = np.arange(len(parents))
    for column in range(1, MAX_NODES):
        depths[:, column] = depths[everyone, parents[:, column]] + 1
    depths[parents < 0] = -1
    return depths
