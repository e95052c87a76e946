# SPDX-License-Identifier: Apache-2.0
"""A cache of program features: a search asks a cost model about many programs repeatedly."""

from collections.abc import Sequence

import numpy as np
from tvm_ffi import structural_hash

from tvm.s_tir.meta_schedule import TuneContext
from tvm.s_tir.meta_schedule.search_strategy import MeasureCandidate

from .program_features import Extractor

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
