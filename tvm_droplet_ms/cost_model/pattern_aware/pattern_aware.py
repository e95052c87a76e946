# SPDX-License-Identifier: Apache-2.0
"""A trained PaCM. Scoring needs NumPy alone; training needs JAX. Imports no TVM."""

from collections.abc import Mapping

import numpy as np

from ..boosted_trees import Objective
from ..networks.network_model import NetworkModel
from .dataflow import LEVELS
from .network import fixed_shapes, shapes, split, states


class PatternAware(NetworkModel):
    """A trained network of attention over data movements; see ``network``."""

    @staticmethod
    def fit(
        features: np.ndarray,
        throughput: np.ndarray,
        workloads: np.ndarray,
        *,
        objective: Objective,
        seed: int,
    ) -> "PatternAware":
        """Train a network on the programs of some workloads, each of equal weight.

        - ``features``: features of ``DataFlow`` or ``DataFlowStores``, of shape ``(programs,
          width)``.
        - ``throughput``: ``relative_throughput`` of each workload, of shape ``(programs,)``.
        - ``workloads``: the workload index of each program, ascending, of the same shape.
        - ``objective``: "rank", LambdaRank among the programs of one workload, or "regression".
        - ``seed``: seed of the first parameters, the order of the programs and dropout.

        Raises ``ImportError`` if JAX is not installed. Raises ``ValueError`` if the features are
        from another extractor.
        """
        split(features[:0])
        from .training import train

        parameters = train(features, throughput, workloads, objective=objective, seed=seed)
        return PatternAware.of_training(parameters, objective, features, throughput)

    @property
    def statement_width(self) -> int:
        """Number of features of a statement."""
        return int(self.parameters["statement_1"].shape[0])

    def _embed(self, features: np.ndarray) -> np.ndarray:
        tokens, statements = split(features)
        # Drop trailing rows that are empty in the whole batch, to save time.
        present = np.flatnonzero(tokens[:, :, : len(LEVELS)].any(axis=(0, 2)))
        computed = np.flatnonzero(statements[:, :, 0].any(axis=0))
        kept = tokens[:, : present.max(initial=0) + 1], statements[:, : computed.max(initial=0) + 1]
        return np.asarray(states(self.parameters, *kept, np))

    @staticmethod
    def _shapes(found: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
        width = found.get("statement_mean", (0,))[0]
        return shapes(width) | fixed_shapes(width)
