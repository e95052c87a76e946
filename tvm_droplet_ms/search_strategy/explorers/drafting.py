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
"""Points that a prior is asked about because its own predictions promise most of them."""

import random

import numpy as np

from ..candidates import Candidate, Replayer
from ..design_spaces import DesignSpaces, SpacePoint
from ..latent_draft import LatentDraft
from ..prior import CostModelPrior
from ..surrogate.trees import VectorTrees

DRAFTED, PARENTS = 64, 16
"""The drafted points of a round that the prior is asked about, and the best predicted points that
they are made of."""


class Drafting:
    """Asks a prior about points that are drafted from its own predictions.

    Trees over vectors are fitted to the predictions so far. What they expect most of, among
    thousands of points that nothing has replayed, is replayed and shown to the prior.

    Parameters
    ----------
    prior : CostModelPrior
        Predicts.
    spaces : DesignSpaces
        The points of the design spaces.
    replayer : Replayer
        Replays them.
    generator : random.Random
        Seeds all random choices.
    rounds : int
        The times to draft: each has learned from the answers to the one before.
    """

    def __init__(
        self,
        prior: CostModelPrior,
        spaces: DesignSpaces,
        replayer: Replayer,
        generator: random.Random,
        rounds: int,
    ) -> None:
        self._prior = prior
        self._spaces = spaces
        self._replayer = replayer
        self._draft = LatentDraft(spaces, generator)
        self._rounds = rounds

    def candidates(self) -> list[tuple[SpacePoint, Candidate]]:
        """The drafted points that the prior was asked about, with their candidates."""
        return [found for _ in range(self._rounds) for found in self._ask_about_drafted()]

    def _ask_about_drafted(self) -> list[tuple[SpacePoint, Candidate]]:
        means = self._prior.means
        if not means:
            return []
        trees = VectorTrees.fit(self._spaces.vectors(list(means)), np.array(list(means.values())))

        def score(sketch: int, decisions: np.ndarray) -> np.ndarray:
            return trees.predict(self._spaces.vectors_of(sketch, decisions))

        parents = sorted(means, key=lambda point: -means[point])[:PARENTS]
        best = self._draft.best(means, parents, score, 2 * DRAFTED)
        found = []
        for point in [point for point in best if point not in means][:DRAFTED]:
            candidate = self._replayer.replay(self._spaces.trace(point))
            if candidate is not None:
                found.append((self._spaces.realised(point, candidate.trace), candidate))
        self._prior.ask(found)
        return found
