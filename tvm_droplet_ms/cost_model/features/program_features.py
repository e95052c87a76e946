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
from .loop_context import loop_nests
from .store_features import STORE_FEATURES, pooled_stores

SIZES = 2.0 ** np.arange(4, 25)
"""The thresholds: sizes of a cache in bytes, from 16 B to 16 MiB."""

NESTS = 3
"""Number of loop nests kept: the nests with the most iterations."""

ACCESSES = 4
"""Number of accesses kept per nest: the accesses that touch the most bytes."""

_STRIDE = 2
"""The traffic of a single access is kept at every second size."""

_OF_NEST = 2 * len(SIZES) + ACCESSES * len(SIZES[::_STRIDE])

RELATIONS = len(SIZES) + NESTS * _OF_NEST
"""Number of features of ``relations``."""


def relations(nests: Sequence[LoopNest]) -> np.ndarray:
    """The iterations that fit in a cache of each size, and the traffic into the cache.

    The traffic is the bytes touched by the largest loop whose working set fits, times the number of
    times that this loop is entered. The first features are the total traffic of all nests at each
    of ``SIZES``. Then each of the ``NESTS`` nests with the most iterations has: the iterations that
    fit in each size; the traffic at each size; and the traffic of each of the ``ACCESSES`` accesses
    that touch the most bytes, at every second size. ``nests``: the loop nests of a module. Returns
    logarithms to base 2 of iterations and of bytes plus one, of shape ``(RELATIONS,)``, float32; 0
    for missing nests and accesses.
    """
    known = [nest for nest in nests if len(nest.iterations) and nest.accesses]
    known.sort(key=lambda nest: -nest.iterations[-1])
    features = np.zeros(RELATIONS)
    within, traffics = zip(*map(_at_each_size, known), strict=True) if known else ((), ())
    together = sum((traffic.sum(axis=0) for traffic in traffics), np.zeros(len(SIZES)))
    features[: len(SIZES)] = np.log2(1.0 + together)
    for place, (nest, fitting, traffic) in enumerate(zip(known, within, traffics, strict=True)):
        if place == NESTS:
            break
        start = len(SIZES) + place * _OF_NEST
        totals = [-access.touched[-1] for access in nest.accesses]
        largest = np.argsort(totals, kind="stable")[:ACCESSES]
        parts = [fitting, 1.0 + traffic.sum(axis=0), 1.0 + traffic[largest, ::_STRIDE].ravel()]
        of_nest = np.log2(np.concatenate(parts))
        features[start : start + len(of_nest)] = of_nest
    return features.astype(np.float32)


def _at_each_size(nest: LoopNest) -> tuple[np.ndarray, np.ndarray]:
    """The iterations that fit each of ``SIZES``, and the bytes each access moves into it.

    A size holds the outermost loop whose working set fits. If not even the innermost loop fits,
    every iteration moves all bytes that it touches. Returns ``iterations``: array of shape
    ``(sizes,)``; ``traffic``: bytes, of shape ``(accesses, sizes)``.
    """
    touched = np.array([access.touched for access in nest.accesses])
    # Index -1, the last column, is a single iteration.
    fitting = np.searchsorted(touched.sum(axis=0), SIZES, side="right") - 1
    iterations = np.append(nest.iterations, 1.0)[fitting]
    per_iteration = touched[:, :1] / nest.iterations[0]
    moved = np.concatenate([touched, per_iteration], axis=1)[:, fitting]
    return iterations, moved * (nest.iterations[-1] / iterations)


BLOCKS = 6
"""Number of blocks kept, in the order of the module."""

LOOPS = 20
"""Number of loops kept per block, the innermost first."""

LOOP_NEST_FEATURES = BLOCKS * (3 * LOOPS + 2)
"""Number of features of ``loop_nest_features``."""


def loop_nest_features(nests: Sequence[LoopNest]) -> np.ndarray:
    """Tiling of the loops around each innermost block, which per-store features average away.

    For each loop of a block, the innermost first: the logarithm to base 2 of its extent, the
    logarithm of the product of the extents so far, and its kind (0 serial, 1 parallel, 2
    vectorized, 3 unrolled). Then the block's unroll limit and its number of loops. ``nests``: the
    loop nests of a scheduled module, in the module's order. Returns an array of shape
    ``(LOOP_NEST_FEATURES,)``, float32; 0 for missing blocks and loops.
    """
    features = np.zeros((BLOCKS, 3 * LOOPS + 2), dtype=np.float32)
    for row, nest in zip(features, nests, strict=False):
        columns = [np.log2(nest.extents), np.log2(nest.iterations), nest.kinds]
        loops = np.stack(columns, axis=1)[:LOOPS].ravel()
        row[: len(loops)] = loops
        row[-2:] = nest.unroll_limit, len(nest.extents)
    return features.ravel()


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
