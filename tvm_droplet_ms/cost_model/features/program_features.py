# SPDX-License-Identifier: Apache-2.0
"""Features of scheduled programs that have the same meaning in every workload.

``docs/cost_models.md`` has an overview. The functions that compute the features describe each
number.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tvm.s_tir.meta_schedule import TuneContext
from tvm.s_tir.meta_schedule.feature_extractor import PerStoreFeature
from tvm.s_tir.meta_schedule.search_strategy import MeasureCandidate

from ..nests import LoopNest
from ..pattern_aware.dataflow import (
    STATEMENT_WIDTH,
    STATEMENTS,
    TOKEN_WIDTH,
    TOKENS,
    data_movements,
    statements,
)
from ..tree_gru.loop_tree import MAX_NODES, TREE_FEATURES, WIDTH, loop_tree
from .context_relations import LOOP_NEST_FEATURES, RELATIONS, loop_nest_features, relations
from .loop_context import loop_nests
from .store_features import (
    PER_STORE,
    STORE_FEATURES,
    in_buffer_order,
    largest_stores,
    pooled_stores,
)

FEATURES = STORE_FEATURES + RELATIONS + LOOP_NEST_FEATURES
"""Number of features of a program."""

SCHEMA = f"2: {STORE_FEATURES} of stores, {RELATIONS} relations, {LOOP_NEST_FEATURES} of loops"
"""Version of ``ProgramFeatures``; change it whenever a feature changes its meaning."""

TREE_SCHEMA = f"tree 1: {MAX_NODES} nodes, {WIDTH} of each"
"""Version of ``LoopTrees``."""

_MOVEMENTS = f"pacm 1: {TOKENS} movements of {TOKEN_WIDTH}"

PACM_SCHEMA = f"{_MOVEMENTS}, {STATEMENTS} statements of {STATEMENT_WIDTH}"
"""Version of ``DataFlow``."""

PACM_STORES_SCHEMA = f"{_MOVEMENTS}, {STATEMENTS} stores of {1 + PER_STORE}"
"""Version of ``DataFlowStores``."""


class Extractor:
    """Extracts features of scheduled programs; only features of stores need lowering."""

    schema: str
    """Version of the features: files of another version are refused."""

    width: int
    """Number of features of a program."""

    reads_stores = False
    """Whether the features include MetaSchedule's features of stores, one row for each store."""

    def extract(self, context: TuneContext, candidates: Sequence[MeasureCandidate]) -> np.ndarray:
        """Features of candidates of one task, of shape ``(candidates, width)``, float32.

        ``context``: the task. Its target determines whether the programs are for a GPU. TVM
        extracts features of stores with the ``num_threads`` threads of the task.
        """
        features = np.zeros((len(candidates), self.width), dtype=np.float32)
        stores: Sequence[Any] = [None] * len(candidates)
        if self.reads_stores and candidates:
            found = PerStoreFeature().extract_from(context, list(candidates))
            stores = [rows.numpy() for rows in found]
        for row, candidate, rows in zip(features, candidates, stores, strict=True):
            parts = self._parts(loop_nests(candidate.sch.mod), rows)
            row[:] = np.concatenate([part.ravel() for part in parts])
        return features

    def _parts(self, nests: Sequence[LoopNest], stores: np.ndarray) -> list[np.ndarray]:
        """The features of one program, in their order."""
        raise NotImplementedError


class ProgramFeatures(Extractor):
    """Pooled features of stores, context relations, and the loops around the blocks."""

    schema = SCHEMA
    width = FEATURES
    reads_stores = True

    def _parts(self, nests: Sequence[LoopNest], stores: np.ndarray) -> list[np.ndarray]:
        return [pooled_stores(stores), relations(nests), loop_nest_features(nests)]


class LoopTrees(Extractor):
    """The loop tree; see ``loop_tree.loop_tree``."""

    schema = TREE_SCHEMA
    width = TREE_FEATURES

    def _parts(self, nests: Sequence[LoopNest], stores: np.ndarray) -> list[np.ndarray]:
        return [loop_tree(nests)]


class DataFlow(Extractor):
    """The data movements, then the statements; see ``dataflow``."""

    schema = PACM_SCHEMA
    width = TOKENS * TOKEN_WIDTH + STATEMENTS * STATEMENT_WIDTH

    def _parts(self, nests: Sequence[LoopNest], stores: np.ndarray) -> list[np.ndarray]:
        return [data_movements(nests), statements(nests)]


class DataFlowStores(Extractor):
    """The data movements, then a 1 and the features of each store.

    Only the ``STATEMENTS`` stores with the most operations are included.
    """

    schema = PACM_STORES_SCHEMA
    width = TOKENS * TOKEN_WIDTH + STATEMENTS * (1 + PER_STORE)
    reads_stores = True

    def _parts(self, nests: Sequence[LoopNest], stores: np.ndarray) -> list[np.ndarray]:
        kept = largest_stores(in_buffer_order(stores), STATEMENTS)
        flagged = np.zeros((STATEMENTS, 1 + PER_STORE), dtype=np.float32)
        flagged[: len(kept), 0], flagged[: len(kept), 1:] = 1.0, kept
        return [data_movements(nests), flagged]
