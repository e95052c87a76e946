# SPDX-License-Identifier: Apache-2.0
"""A trained TreeGRU. Scoring needs NumPy alone; training needs JAX. Imports no TVM."""

from collections.abc import Mapping

import numpy as np

from ..boosted_trees import Objective
from ..networks.network_model import NetworkModel
from .loop_tree import TREE_FEATURES, WIDTH
from .network import SHAPES, memory
from .tree_batch import TreeBatch


def _segment_sum(rows: np.ndarray, numbers: np.ndarray, count: int) -> np.ndarray:
    sums = np.zeros((count, rows.shape[1]), dtype=rows.dtype)
    if len(rows):
        starts = np.flatnonzero(np.diff(numbers, prepend=-1))
        sums[numbers[starts]] = np.add.reduceat(rows, starts)
    return sums


class TreeGRU(NetworkModel):
    """A trained recurrent network over loop trees; see ``network``."""

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

        - ``features``: features of ``loop_tree``, of shape ``(programs, TREE_FEATURES)``.
        - ``throughput``: ``relative_throughput`` of each workload, of shape ``(programs,)``.
        - ``workloads``: the workload index of each program, ascending, of the same shape.
        - ``objective``: "rank", the logistic loss of each pair of programs of one workload, or
          "regression".
        - ``seed``: seed of the first parameters, the order of the programs and dropout.

        Raises ``ImportError`` if JAX is not installed. Raises ``ValueError`` if the features are
        not loop trees.
        """
        if features.shape[1] != TREE_FEATURES:
            raise ValueError(
                f"programs have {features.shape[1]} features, expected the {TREE_FEATURES} of "
                "loop trees"
            )
        from .training import train

        parameters = train(features, throughput, workloads, objective=objective, seed=seed)
        return TreeGRU.of_training(parameters, objective, features, throughput)

    def _embed(self, features: np.ndarray) -> np.ndarray:
        return np.asarray(
            memory(self.parameters, TreeBatch.from_features(features), np, _segment_sum)
        )

    @staticmethod
    def _shapes(found: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
        return SHAPES | {"mean": (WIDTH,), "scale": (WIDTH,)}
