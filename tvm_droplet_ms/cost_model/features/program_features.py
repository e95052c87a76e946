# SPDX-License-Identifier: Apache-2.0
"""Features of scheduled programs that have the same meaning in every workload.

``docs/cost_models.md`` has an overview. The functions that compute the features describe each
number.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm_ffi import structural_hash

from tvm.s_tir.meta_schedule import TuneContext
from tvm.s_tir.meta_schedule.feature_extractor import PerStoreFeature
from tvm.s_tir.meta_schedule.search_strategy import MeasureCandidate

from ..nests import LoopNest
from .context_relations import LOOP_NEST_FEATURES, RELATIONS, loop_nest_features, relations
from .loop_context import loop_nests
from .store_features import STORE_FEATURES, pooled_stores

FEATURES = STORE_FEATURES + RELATIONS + LOOP_NEST_FEATURES
"""Number of features of a program."""

SCHEMA = f"2: {STORE_FEATURES} of stores, {RELATIONS} relations, {LOOP_NEST_FEATURES} of loops"
"""Version of ``ProgramFeatures``; change it whenever a feature changes its meaning."""


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
            parts = self.parts(loop_nests(candidate.sch.mod), rows)
            row[:] = np.concatenate([part.ravel() for part in parts])
        return features

    def parts(self, nests: Sequence[LoopNest], stores: np.ndarray) -> list[np.ndarray]:
        """The features of one program, in their order."""
        raise NotImplementedError


class ProgramFeatures(Extractor):
    """Pooled features of stores, context relations, and the loops around the blocks."""

    schema = SCHEMA
    width = FEATURES
    reads_stores = True

    def parts(self, nests: Sequence[LoopNest], stores: np.ndarray) -> list[np.ndarray]:
        """The features of one program, in their order."""
        return [pooled_stores(stores), relations(nests), loop_nest_features(nests)]


_KEPT = 8192
"""Number of programs in the cache: about 30 MB, and the requests of TVM's evolutionary search for
three batches. A fifth of the requests for one batch are repeats."""


class CachedFeatures:
    """An extractor that caches the features of programs."""

    def __init__(self, extractor: Extractor) -> None:
        self._extractor = extractor
        self._rows: dict[tuple[int, str], np.ndarray] = {}

    def extract(self, context: TuneContext, candidates: Sequence[MeasureCandidate]) -> np.ndarray:
        """Features of candidates of one task; see ``Extractor.extract``."""
        target = str(context.target)
        keys = [(structural_hash(candidate.sch.mod), target) for candidate in candidates]
        rows = {key: self._rows[key] for key in keys if key in self._rows}
        new = {
            key: candidate
            for key, candidate in zip(keys, candidates, strict=True)
            if key not in rows
        }
        # Copy each row: a view would keep the features of the whole batch alive.
        computed = map(np.copy, self._extractor.extract(context, list(new.values())))
        rows.update(zip(new, computed, strict=True))
        for key, row in rows.items():  # The latest requests are evicted last.
            self._rows.pop(key, None)
            self._rows[key] = row
        for key in list(self._rows)[: max(0, len(self._rows) - _KEPT)]:
            del self._rows[key]
        features = np.zeros((len(keys), self._extractor.width), dtype=np.float32)
        for place, key in enumerate(keys):
            features[place] = rows[key]
        return features
