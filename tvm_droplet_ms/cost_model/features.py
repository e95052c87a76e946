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

import numpy as np

from tvm.ir import IRModule
from tvm.s_tir.meta_schedule import TuneContext
from tvm.s_tir.meta_schedule.feature_extractor import PerStoreFeature
from tvm.s_tir.meta_schedule.search_strategy import MeasureCandidate

from .loop_context import loop_nests
from .loop_nest import LOOP_NEST_FEATURES, loop_nest_features
from .relation import RELATIONS, relations
from .stores import STORE_FEATURES, pooled_stores

FEATURES = STORE_FEATURES + RELATIONS + LOOP_NEST_FEATURES
"""How many features a program has."""

SCHEMA = f"1: {STORE_FEATURES} of stores, {RELATIONS} relations, {LOOP_NEST_FEATURES} of loops"
"""What the features are: to be changed whenever one of them changes its meaning."""


class ProgramFeatures:
    """Extracts the features of scheduled programs."""

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


def _of_loops(mod: IRModule) -> np.ndarray:
    nests = loop_nests(mod)
    return np.concatenate([relations(nests), loop_nest_features(nests)])
