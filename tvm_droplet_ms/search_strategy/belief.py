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
"""What a cost model expects of candidates before they are measured."""

import math
from collections.abc import Sequence

import numpy as np

from tvm.ir import IRModule
from tvm.s_tir.meta_schedule import TuneContext
from tvm.s_tir.meta_schedule.cost_model import CostModel
from tvm.s_tir.meta_schedule.profiler import Profiler
from tvm.target import Target

from .candidates import Candidate
from .places import Place


class Belief:
    """What a cost model expects of the places of a task, asked once for each.

    A model that learns from the task's own measurements would know those afterwards; what it
    expected before is what tells how far it can be trusted.

    Parameters
    ----------
    model : CostModel
        Predicts the throughput of candidates, relative to the best of the workload.
    mod : IRModule
        The workload.
    target : Target
        The target.
    num_threads : int
        How many threads the model may see programs on.

    Attributes
    ----------
    expected : dict[Place, float]
        What the model expected, by place.
    """

    def __init__(
        self, model: CostModel, mod: IRModule, target: Target, num_threads: int = 1
    ) -> None:
        self.expected: dict[Place, float] = {}
        self._model = model
        self._context = TuneContext(mod, target=target, num_threads=num_threads)

    def is_informed(self, candidates: Sequence[Candidate]) -> bool:
        """Whether the model tells candidates apart, and always in the same way.

        TVM's models answer at random until they have samples of the run; nothing else tells that
        they know nothing.

        Parameters
        ----------
        candidates : Sequence[Candidate]
            Some, of different modules.
        """
        if len(candidates) < 2:
            return False
        first, second = (self.predict(candidates) for _ in range(2))
        return len(set(first)) > 1 and bool(np.array_equal(first, second))

    def expect(self, candidates: Sequence[tuple[Place, Candidate]]) -> None:
        """Ask the model about the places that it was not asked about.

        Parameters
        ----------
        candidates : Sequence[tuple[Place, Candidate]]
            Places with their candidates.
        """
        new = [(place, one) for place, one in candidates if place not in self.expected]
        if not new:
            return
        with Profiler.timeit("Droplet/Believe"):
            predicted = self.predict([candidate for _, candidate in new])
        for (place, _), value in zip(new, predicted, strict=True):
            self.expected[place] = float(value) if math.isfinite(value) else 0.0

    def predict(self, candidates: Sequence[Candidate]) -> np.ndarray:
        """What the model says now, of shape ``(candidates,)``; nothing is kept.

        Parameters
        ----------
        candidates : Sequence[Candidate]
            Some.
        """
        measured = [candidate.measure_candidate() for candidate in candidates]
        return np.asarray(self._model.predict(self._context, measured))
