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
"""What is seen of a program before it is measured, as numbers that mean the same in every workload.

``docs/features.md`` has them one by one.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from tvm.ir import IRModule
from tvm.s_tir.meta_schedule import TuneContext
from tvm.s_tir.meta_schedule.feature_extractor import PerStoreFeature
from tvm.s_tir.meta_schedule.search_strategy import MeasureCandidate

from ..tree_gru.loop_tree import MAX_NODES, TREE_FEATURES, WIDTH, loop_tree
from .context_relations import RELATIONS, relations
from .loop_context import loop_nests
from .loop_nest import LOOP_NEST_FEATURES, loop_nest_features
from .store_features import STORE_FEATURES, pooled_stores

FEATURES = STORE_FEATURES + RELATIONS + LOOP_NEST_FEATURES
"""How many features a program has."""

SCHEMA = f"2: {STORE_FEATURES} of stores, {RELATIONS} relations, {LOOP_NEST_FEATURES} of loops"
"""What the features are: to be changed whenever one of them changes its meaning."""

TREE_SCHEMA = f"tree 1: {MAX_NODES} nodes, {WIDTH} of each"
"""The same of ``LoopTrees``."""


class Extractor(Protocol):
    """Makes numbers of programs."""

    schema: str
    """What the numbers mean."""

    width: int
    """How many there are of a program."""

    def extract(self, context: TuneContext, candidates: Sequence[MeasureCandidate]) -> np.ndarray:
        """Those of some candidates of one task, of shape ``(candidates, width)``, float32."""


class ProgramFeatures:
    """Extracts the features of scheduled programs."""

    schema = SCHEMA
    width = FEATURES

    def __init__(self) -> None:
        self._of_stores = PerStoreFeature()

    def extract(self, context: TuneContext, candidates: Sequence[MeasureCandidate]) -> np.ndarray:
        """The features of some candidates of one task.

        Parameters
        ----------
        context : TuneContext
            The task: its target tells whether the programs are for a GPU.
        candidates : Sequence[MeasureCandidate]
            The candidates.

        Returns
        -------
        features : np.ndarray
            Of shape ``(candidates, FEATURES)``, float32.
        """
        features = np.zeros((len(candidates), FEATURES), dtype=np.float32)
        if not candidates:
            return features
        stores = self._of_stores.extract_from(context, list(candidates))
        for row, candidate, of_stores in zip(features, candidates, stores, strict=True):
            row[:STORE_FEATURES] = pooled_stores(of_stores.numpy())
            row[STORE_FEATURES:] = _of_loops(candidate.sch.mod)
        return features


class LoopTrees:
    """Extracts the loop trees of scheduled programs; see ``loop_tree.loop_tree``."""

    schema = TREE_SCHEMA
    width = TREE_FEATURES

    def extract(self, context: TuneContext, candidates: Sequence[MeasureCandidate]) -> np.ndarray:
        """The loop trees of some candidates of one task.

        Parameters
        ----------
        context : TuneContext
            The task; nothing of it is used.
        candidates : Sequence[MeasureCandidate]
            The candidates.

        Returns
        -------
        features : np.ndarray
            Of shape ``(candidates, TREE_FEATURES)``, float32.
        """
        features = np.zeros((len(candidates), TREE_FEATURES), dtype=np.float32)
        for row, candidate in zip(features, candidates, strict=True):
            row[:] = loop_tree(loop_nests(candidate.sch.mod))
        return features


def _of_loops(mod: IRModule) -> np.ndarray:
    nests = loop_nests(mod)
    return np.concatenate([relations(nests), loop_nest_features(nests)])
