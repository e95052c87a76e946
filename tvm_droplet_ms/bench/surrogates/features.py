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
"""A scheduled module as a vector of fixed length, for the regressor of a surrogate space."""

from collections.abc import Sequence

import numpy as np

from tvm.ir import IRModule
from tvm.s_tir import Schedule
from tvm.s_tir.meta_schedule import TuneContext
from tvm.s_tir.meta_schedule.arg_info import ArgInfo
from tvm.s_tir.meta_schedule.feature_extractor import PerStoreFeature
from tvm.s_tir.meta_schedule.search_strategy import MeasureCandidate
from tvm.target import Target

from ...cost_model.features.context_relations import RELATIONS, relations
from ...cost_model.features.loop_context import loop_nests
from ...cost_model.features.loop_nest import LOOP_NEST_FEATURES, loop_nest_features

STORES = 12
"""How many of a module's stores have features of their own; those beyond share the last place."""

STORE_FEATURES = 164
"""How many features ``PerStoreFeature`` has of one store."""

FEATURES = (1 + STORES) * STORE_FEATURES + LOOP_NEST_FEATURES + RELATIONS
"""How many features a module has."""


class ModuleFeatures:
    """MetaSchedule's features of each store, those of the loop nests, and their relations.

    A regressor that answers a builder sees a module and not the decisions that made it. The stores
    of one workload come in the same order in most of its schedules, so that a column means one
    thing; the sum over all stores stands first for where it does not.

    Parameters
    ----------
    target : Target
        The target.
    """

    def __init__(self, target: Target) -> None:
        self._extractor = PerStoreFeature()
        self._target = target

    def of(self, modules: Sequence[IRModule]) -> np.ndarray:
        """The features of modules.

        Parameters
        ----------
        modules : Sequence[IRModule]
            Scheduled modules.

        Returns
        -------
        features : np.ndarray
            Of shape ``(len(modules), FEATURES)``, float32.
        """
        if not modules:
            return np.empty((0, 0), dtype=np.float32)
        context = TuneContext(modules[0], target=self._target, num_threads=1)
        candidates = [
            MeasureCandidate(Schedule(mod), ArgInfo.from_entry_func(mod, remove_preproc=True))
            for mod in modules
        ]
        stores = [array.numpy() for array in self._extractor.extract_from(context, candidates)]
        return np.stack(
            [
                np.concatenate([_pack(array), _of_loops(mod)])
                for array, mod in zip(stores, modules, strict=True)
            ]
        )


def _of_loops(mod: IRModule) -> np.ndarray:
    nests = loop_nests(mod)
    return np.concatenate([loop_nest_features(nests), relations(nests)])


def _pack(stores: np.ndarray) -> np.ndarray:
    """The sum over the stores, then each store; zeros where there are fewer than ``STORES``."""
    places = np.zeros((STORES, stores.shape[1]))
    for place, store in enumerate(stores):
        places[min(place, STORES - 1)] += store
    return np.concatenate([stores.sum(axis=0), *places]).astype(np.float32)
