# SPDX-License-Identifier: Apache-2.0
"""TreeGRU: a recurrent network over a program's loop tree.

After "Learning to Optimize Tensor Programs" (Chen et al., 2018): a gated recurrent unit goes up the
tree; the state before a node is the sum of its children's. A softmax spreads each node's state over
a few slots of memory, which are summed over the nodes, and a linear layer scores the memory.
Scoring needs NumPy alone; training needs JAX. Imports no TVM.
"""

import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...session.archive import load_arrays
from ..boosted_trees import Objective
from ..throughput import throughput_line
from .loop_tree import TREE_FEATURES, WIDTH
from .tree_batch import TreeBatch

HIDDEN = 64
"""Width of a node's state."""

SLOTS = 8
"""Slots of memory of a program."""

SHAPES: dict[str, tuple[int, ...]] = {
    "input": (WIDTH, 3 * HIDDEN),
    "bias": (3 * HIDDEN,),
    "gates": (HIDDEN, 2 * HIDDEN),
    "candidate": (HIDDEN, HIDDEN),
    "scatter": (HIDDEN, SLOTS),
    "output": (SLOTS * HIDDEN, 1),
    "output_bias": (1,),
}
"""Shapes of the parameters. The input's have columns for the update gate, the reset gate and the
candidate."""

_BATCH = 256

SegmentSum = Callable[[Any, np.ndarray, int], Any]
"""Sums the rows that have the same number: rows, their ascending numbers, how many numbers."""


def memory(
    parameters: Mapping[str, Any], batch: TreeBatch, xp: Any, segment_sum: SegmentSum
) -> Any:
    """The memory of each tree, in arrays of NumPy or JAX.

    Parameters
    ----------
    parameters : Mapping[str, Any]
        Parameters of ``SHAPES``, and the ``mean`` and the ``scale`` of the contexts.
    batch : TreeBatch
        The trees.
    xp : module
        ``numpy`` or ``jax.numpy``.
    segment_sum : SegmentSum
        For its arrays.

    Returns
    -------
    memory : array
        Array of shape ``(trees, SLOTS * HIDDEN)``.
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
        # The logistic function, which overflows nowhere in this form.
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


@dataclass(frozen=True)
class TreeGRU:
    """A trained network, and the line from its scores to relative throughputs.

    Parameters
    ----------
    parameters : Mapping[str, np.ndarray]
        Parameters of ``SHAPES``, and the ``mean`` and the ``scale`` of the contexts, float32.
    objective : Objective
        The training objective.
    intercept, slope : float
        The line from scores to relative throughputs; scores of the objective "rank" have no unit.
    """

    parameters: Mapping[str, np.ndarray]
    objective: Objective
    intercept: float = 0.0
    slope: float = 1.0

    @staticmethod
    def fit(
        features: np.ndarray,
        throughput: np.ndarray,
        workloads: np.ndarray,
        *,
        objective: Objective,
        seed: int,
    ) -> "TreeGRU":
        """Train a network on the programs of some workloads, each of equal weight.

        Parameters
        ----------
        features : np.ndarray
            Features of ``loop_tree``, of shape ``(programs, TREE_FEATURES)``.
        throughput : np.ndarray
            ``relative_throughput`` of each workload, of shape ``(programs,)``.
        workloads : np.ndarray
            The number of each program's workload, ascending, of the same shape.
        objective : Objective
            "rank", the logistic loss of each pair of programs of one workload, or "regression".
        seed : int
            Seed of the first parameters, the order of the programs and dropout.

        Raises
        ------
        ImportError
            If JAX is not installed.
        ValueError
            If the features are no loop trees.
        """
        if features.shape[1] != TREE_FEATURES:
            raise ValueError(
                f"programs have {features.shape[1]} features, expected the {TREE_FEATURES} of "
                "loop trees"
            )
        from .training import train

        parameters = train(features, throughput, workloads, objective=objective, seed=seed)
        if objective == "regression":
            return TreeGRU(parameters, objective)
        scores = TreeGRU(parameters, objective).predict(features)
        return TreeGRU(parameters, objective, *throughput_line(scores, throughput))

    def predict(self, features: np.ndarray) -> np.ndarray:
        """Predict the relative throughput of programs, of shape ``(programs,)``, float64."""
        scores = self.embed(features) @ self.parameters["output"] + self.parameters["output_bias"]
        return np.asarray(self.intercept + self.slope * scores[:, 0].astype(float))

    def embed(self, features: np.ndarray) -> np.ndarray:
        """The memory of programs, of shape ``(programs, SLOTS * HIDDEN)``, float32."""
        parts = [
            memory(
                self.parameters,
                TreeBatch.from_features(features[start : start + _BATCH]),
                np,
                _segment_sum,
            )
            for start in range(0, len(features), _BATCH)
        ]
        return np.concatenate([np.zeros((0, SLOTS * HIDDEN), np.float32), *parts])

    def to_bytes(self) -> bytes:
        """The parameters in NumPy's ``.npz`` format."""
        file = io.BytesIO()
        np.savez(file, **dict[str, Any](self.parameters))
        return file.getvalue()

    @staticmethod
    def from_bytes(
        content: bytes, objective: Objective, intercept: float, slope: float
    ) -> "TreeGRU":
        """Read the network that ``to_bytes`` wrote.

        Raises
        ------
        ValueError
            If they are damaged, or the parameters of another network.
        """
        parameters = load_arrays(io.BytesIO(content))
        shapes = SHAPES | {"mean": (WIDTH,), "scale": (WIDTH,)}
        found = {name: value.shape for name, value in parameters.items()}
        if found != shapes:
            raise ValueError(f"its parameters are of shapes {found}, expected {shapes}")
        return TreeGRU(parameters, objective, intercept, slope)
