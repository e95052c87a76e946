# SPDX-License-Identifier: Apache-2.0
"""Features of scheduled programs that mean the same in every workload.

``docs/cost_models.md`` has an overview; the functions that compute them say what each number is.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from tvm.ir import IRModule
from tvm.s_tir.meta_schedule import TuneContext
from tvm.s_tir.meta_schedule.feature_extractor import PerStoreFeature
from tvm.s_tir.meta_schedule.search_strategy import MeasureCandidate

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
"""Features of a program."""

SCHEMA = f"2: {STORE_FEATURES} of stores, {RELATIONS} relations, {LOOP_NEST_FEATURES} of loops"
"""Version of ``ProgramFeatures``; change it whenever a feature changes its meaning."""

TREE_SCHEMA = f"tree 1: {MAX_NODES} nodes, {WIDTH} of each"
"""Version of ``LoopTrees``."""

_MOVEMENTS = f"pacm 1: {TOKENS} movements of {TOKEN_WIDTH}"

PACM_SCHEMA = f"{_MOVEMENTS}, {STATEMENTS} statements of {STATEMENT_WIDTH}"
"""Version of ``DataFlow``."""

PACM_STORES_SCHEMA = f"{_MOVEMENTS}, {STATEMENTS} stores of {1 + PER_STORE}"
"""Version of ``DataFlowStores``."""


class Extractor(Protocol):
    """Extracts features of programs."""

    schema: str
    """Version of the features: files of another version are refused."""

    width: int
    """Features of a program."""

    def extract(self, context: TuneContext, candidates: Sequence[MeasureCandidate]) -> np.ndarray:
        """Features of candidates of one task, of shape ``(candidates, width)``, float32."""


class ProgramFeatures:
    """Extracts the features of scheduled programs."""

    schema = SCHEMA
    width = FEATURES

    def __init__(self) -> None:
        self._per_store = PerStoreFeature()

    def extract(self, context: TuneContext, candidates: Sequence[MeasureCandidate]) -> np.ndarray:
        """Extract the features of candidates of one task.

        ``context``: the task. Its target says whether the programs are for a GPU; TVM extracts its
        part of the features on its ``num_threads`` threads. Returns an array of shape
        ``(candidates, FEATURES)``, float32.
        """
        features = np.zeros((len(candidates), FEATURES), dtype=np.float32)
        if not candidates:
            return features
        stores = self._per_store.extract_from(context, list(candidates))
        for row, candidate, rows in zip(features, candidates, stores, strict=True):
            row[:STORE_FEATURES] = pooled_stores(rows.numpy())
            row[STORE_FEATURES:] = _loop_features(candidate.sch.mod)
        return features


class LoopTrees:
    """Extracts the loop trees of scheduled programs; see ``loop_tree.loop_tree``."""

    schema = TREE_SCHEMA
    width = TREE_FEATURES

    def extract(self, context: TuneContext, candidates: Sequence[MeasureCandidate]) -> np.ndarray:
        """Extract the loop trees of candidates of one task.

        ``context``: the task; not used. Returns an array of shape ``(candidates, TREE_FEATURES)``,
        float32.
        """
        features = np.zeros((len(candidates), TREE_FEATURES), dtype=np.float32)
        for row, candidate in zip(features, candidates, strict=True):
            row[:] = loop_tree(loop_nests(candidate.sch.mod))
        return features


class DataFlow:
    """Extracts the data movements and the statements of scheduled programs; see ``dataflow``.

    Nothing is lowered.
    """

    schema = PACM_SCHEMA
    width = TOKENS * TOKEN_WIDTH + STATEMENTS * STATEMENT_WIDTH

    def extract(self, context: TuneContext, candidates: Sequence[MeasureCandidate]) -> np.ndarray:
        """Extract the data movements and the statements of candidates of one task.

        ``context``: the task; not used. Returns an array of shape ``(candidates, width)``, float32:
        the movements, then the statements.
        """
        features = np.zeros((len(candidates), self.width), dtype=np.float32)
        for row, candidate in zip(features, candidates, strict=True):
            nests = loop_nests(candidate.sch.mod)
            row[:] = np.concatenate([data_movements(nests).ravel(), statements(nests).ravel()])
        return features


class DataFlowStores:
    """Extracts the data movements of scheduled programs, and MetaSchedule's features of stores."""

    schema = PACM_STORES_SCHEMA
    width = TOKENS * TOKEN_WIDTH + STATEMENTS * (1 + PER_STORE)

    def __init__(self) -> None:
        self._per_store = PerStoreFeature()

    def extract(self, context: TuneContext, candidates: Sequence[MeasureCandidate]) -> np.ndarray:
        """Extract the data movements and the stores of candidates of one task.

        ``context``: the task; see ``ProgramFeatures``. Returns an array of shape ``(candidates,
        width)``, float32: the movements, then the ``STATEMENTS`` stores of the most operations,
        each after a 1.
        """
        features = np.zeros((len(candidates), self.width), dtype=np.float32)
        if not candidates:
            return features
        stores = self._per_store.extract_from(context, list(candidates))
        for row, candidate, rows in zip(features, candidates, stores, strict=True):
            kept = largest_stores(in_buffer_order(rows.numpy()), STATEMENTS)
            flagged = np.zeros((STATEMENTS, 1 + PER_STORE), dtype=np.float32)
            flagged[: len(kept), 0], flagged[: len(kept), 1:] = 1.0, kept
            movements = data_movements(loop_nests(candidate.sch.mod))
            row[:] = np.concatenate([movements.ravel(), flagged.ravel()])
        return features


def _loop_features(mod: IRModule) -> np.ndarray:
    nests = loop_nests(mod)
    return np.concatenate([relations(nests), loop_nest_features(nests)])
