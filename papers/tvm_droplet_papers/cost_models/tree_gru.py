# SPDX-License-Identifier: Apache-2.0
"""TreeGRU: a recurrent network over a program's loop tree.

After "Learning to Optimize Tensor Programs" (Chen et al., 2018): a gated recurrent unit runs up the
tree. The input state of a node is the sum of its children's states. A softmax spreads each node's
state over a few memory slots, which are summed over the nodes. A linear layer scores the memory.
Imports no TVM.
"""

from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import numpy as np

from tvm_droplet_ms.cost_model.model_file import ModelKind

from .loop_tree import TREE_FEATURES, WIDTH
from .network_model import NetworkModel, load_trainer
from .tree_batch import TreeBatch

HIDDEN = 64
"""Width of a node's state."""

SLOTS = 8
"""Number of memory slots of a program."""

SHAPES: dict[str, tuple[int, ...]] = {
    "input": (WIDTH, 3 * HIDDEN),
    "bias": (3 * HIDDEN,),
    "gates": (HIDDEN, 2 * HIDDEN),
    "candidate": (HIDDEN, HIDDEN),
    "scatter": (HIDDEN, SLOTS),
    "output": (SLOTS * HIDDEN, 1),
    "output_bias": (1,),
}
"""Shapes of the parameters. The columns of "input" are for the update gate, the reset gate and the
candidate."""

SegmentSum = Callable[[Any, np.ndarray, int], Any]
"""Sums rows with equal numbers. Takes the rows, their ascending numbers, and how many numbers."""


def memory(
    parameters: Mapping[str, Any], batch: TreeBatch, xp: Any, segment_sum: SegmentSum
) -> Any:
    """The memory of each tree, as NumPy or JAX arrays.

    ``parameters``: parameters of ``SHAPES``, and the ``mean`` and the ``scale`` of the contexts.
    ``batch``: the trees. ``xp``: ``numpy`` or ``jax.numpy``. Returns an array of shape ``(trees,
    SLOTS * HIDDEN)``.
    """
    contexts = (xp.asarray(batch.contexts) - parameters["mean"]) / parameters["scale"]
    given = contexts @ parameters["input"] + parameters["bias"]
    hidden: list[Any] = []
    for level in batch.levels:
        of_level = given[level.nodes]
        if not hidden:
            below = of_level[:, :HIDDEN] * 0.0
        else:
            below = segment_sum(hidden[-1], level.parents, level.count)
        gates = of_level[:, : 2 * HIDDEN] + below @ parameters["gates"]
        # The logistic function in a form that cannot overflow.
        gates = 0.5 * xp.tanh(0.5 * gates) + 0.5
        update, reset = gates[:, :HIDDEN], gates[:, HIDDEN:]
        candidate = of_level[:, 2 * HIDDEN :] + (reset * below) @ parameters["candidate"]
        hidden.append((1.0 - update) * below + update * xp.tanh(candidate))
    nodes = xp.concatenate(hidden)[batch.by_tree]
    spread = nodes @ parameters["scatter"]
    spread = xp.exp(spread - xp.amax(spread, axis=1, keepdims=True))
    spread = spread / spread.sum(axis=1, keepdims=True)
    spread_nodes = (spread[:, :, None] * nodes[:, None, :]).reshape(-1, SLOTS * HIDDEN)
    return segment_sum(spread_nodes, batch.trees, batch.count)


def _segment_sum(rows: np.ndarray, numbers: np.ndarray, count: int) -> np.ndarray:
    sums = np.zeros((count, rows.shape[1]), dtype=rows.dtype)
    if len(rows):
        starts = np.flatnonzero(np.diff(numbers, prepend=-1))
        sums[numbers[starts]] = np.add.reduceat(rows, starts)
    return sums


class TreeGRU(NetworkModel):
    """A trained recurrent network over loop trees; see ``memory``."""

    @property
    def kind(self) -> ModelKind:
        """The kind of the model."""
        return "treegru"

    @staticmethod
    def trainer() -> ModuleType:
        """The module ``training``; ``ImportError`` if JAX is not installed."""
        return load_trainer("TreeGRU", "treegru")

    @staticmethod
    def _check(features: np.ndarray) -> None:
        if features.shape[1] != TREE_FEATURES:
            raise ValueError(
                f"programs have {features.shape[1]} features, expected the {TREE_FEATURES} of "
                "loop trees"
            )

    def _embed(self, features: np.ndarray) -> np.ndarray:
        return np.asarray(
            memory(self.parameters, TreeBatch.from_features(features), np, _segment_sum)
        )

    @staticmethod
    def _shapes(found: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
        return SHAPES | {"mean": (WIDTH,), "scale": (WIDTH,)}
