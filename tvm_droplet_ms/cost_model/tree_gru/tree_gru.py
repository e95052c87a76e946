# Licensed to the Apache Software Foundation (ASF) under one
# or more contributor license agreements.  See the NOTICE file
# distributed with this work for additional information
# regarding copyright ownership.  The ASF licenses this file
# to you under the Apache License, Version 2.0 (the
# "License"); you may not use this file except in compliance
# with the License.  You may obtain a copy of the License at
#
#   http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing,
# software distributed under the License is distributed on an
# "AS IS" BASIS, WITHOUT WARRANTIES OR CONDITIONS OF ANY
# KIND, either express or implied.  See the License for the
# specific language governing permissions and limitations
# under the License.
"""TreeGRU: a recurrent network that reads a program's loops as a tree, and scores it.

After "Learning to Optimize Tensor Programs" (Chen et al., 2018): a gated recurrent unit goes up the
tree, from the sum of what it made of the children; what it made of each node is spread by a softmax
over a few slots of memory, summed over the nodes; a linear layer makes a score of these. Scoring
needs NumPy alone; training needs JAX. Imports no TVM.
"""

import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..archive import load_arrays
from ..boosted_trees import Objective
from ..throughput import throughput_line
from .loop_tree import TREE_FEATURES, WIDTH
from .tree_batch import TreeBatch

HIDDEN = 64
"""How many numbers the network keeps of a node."""

SLOTS = 8
"""How many slots of memory a program's nodes are spread over."""

SHAPES: dict[str, tuple[int, ...]] = {
    "input": (WIDTH, 3 * HIDDEN),
    "bias": (3 * HIDDEN,),
    "gates": (HIDDEN, 2 * HIDDEN),
    "candidate": (HIDDEN, HIDDEN),
    "scatter": (HIDDEN, SLOTS),
    "output": (SLOTS * HIDDEN, 1),
    "output_bias": (1,),
}
"""The parameters. Those of the input are for the update gate, the reset gate and the candidate."""

_AT_ONCE = 256

SegmentSum = Callable[[Any, np.ndarray, int], Any]
"""Sums the rows that have the same number: rows, their ascending numbers, how many numbers."""


def memory(
    parameters: Mapping[str, Any], batch: TreeBatch, xp: Any, segment_sum: SegmentSum
) -> Any:
    """What the network keeps of each tree, in arrays of NumPy or JAX.

    Parameters
    ----------
    parameters : Mapping[str, Any]
        Those of ``SHAPES``, and the ``mean`` and the ``scale`` of the contexts.
    batch : TreeBatch
        The trees.
    xp : module
        ``numpy`` or ``jax.numpy``.
    segment_sum : SegmentSum
        For its arrays.

    Returns
    -------
    memory : array
        Of shape ``(trees, SLOTS * HIDDEN)``.
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
    """A trained network, and what its scores mean.

    Parameters
    ----------
    parameters : Mapping[str, np.ndarray]
        Those of ``SHAPES``, and the ``mean`` and the ``scale`` of the contexts, float32.
    objective : Objective
        What it was fitted for.
    intercept, slope : float
        The line from scores to relative throughputs. Scores of the objective "rank" have no unit
        of their own.
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
        """Train a network on the programs of one workload or several, each of which counts as much.

        Parameters
        ----------
        features : np.ndarray
            Those of ``loop_tree``, of shape ``(programs, TREE_FEATURES)``.
        throughput : np.ndarray
            ``boosted_trees.relative_throughput`` of each workload, of shape ``(programs,)``.
        workloads : np.ndarray
            Which workload each program is of, as integers in ascending order, of the same shape.
        objective : Objective
            "rank", the logistic loss of each pair of programs of one workload, or "regression".
        seed : int
            Of the first parameters, the order of the programs and what is dropped.

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
        """The relative throughputs of programs, of shape ``(programs,)``, float64."""
        scores = self.embed(features) @ self.parameters["output"] + self.parameters["output_bias"]
        return np.asarray(self.intercept + self.slope * scores[:, 0].astype(float))

    def embed(self, features: np.ndarray) -> np.ndarray:
        """What the network keeps of programs, of shape ``(programs, SLOTS * HIDDEN)``, float32."""
        parts = [
            memory(
                self.parameters,
                TreeBatch.from_features(features[start : start + _AT_ONCE]),
                np,
                _segment_sum,
            )
            for start in range(0, len(features), _AT_ONCE)
        ]
        return np.concatenate([np.zeros((0, SLOTS * HIDDEN), np.float32), *parts])

    def to_bytes(self) -> bytes:
        """The parameters, as NumPy's ``.npz``."""
        file = io.BytesIO()
        np.savez(file, **dict[str, Any](self.parameters))
        return file.getvalue()

    @staticmethod
    def from_bytes(
        content: bytes, objective: Objective, intercept: float, slope: float
    ) -> "TreeGRU":
        """The network of ``to_bytes``.

        Raises
        ------
        ValueError
            If they are the parameters of no such network.
        """
        parameters = load_arrays(io.BytesIO(content))
        shapes = SHAPES | {"mean": (WIDTH,), "scale": (WIDTH,)}
        found = {name: value.shape for name, value in parameters.items()}
        if found != shapes:
            raise ValueError(f"its parameters are of shapes {found}, expected {shapes}")
        return TreeGRU(parameters, objective, intercept, slope)
