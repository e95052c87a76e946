# SPDX-License-Identifier: Apache-2.0
"""TreeGRU: a recurrent network over a program's loop tree.

After "Learning to Optimize Tensor Programs" (Chen et al., 2018): a gated recurrent unit runs up the
tree. The input state of a node is the sum of its children's states. A softmax spreads each node's
state over a few memory slots, which are summed over the nodes. A linear layer scores the memory.
Imports no TVM.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from .loop_tree import WIDTH
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
