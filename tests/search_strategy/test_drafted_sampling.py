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
"""A strategy whose random schedules a draft has sifted."""

import statistics

import numpy as np
import pytest
from conformance.driving import drive
from conformance.objectives import bowl, timed
from conformance.workloads import make_context

from tvm_droplet_ms import DropletStrategy
from tvm_droplet_ms.search_strategy import RandomExplorer


class KnowsTheBowl:
    """Scores a point by what it costs, times a sign; knows nothing of some points."""

    def __init__(self, sign=-1.0, knows=lambda points: np.ones(len(points), dtype=bool)):
        self.sign, self.knows, self.asked = sign, knows, 0

    def begin(self, spaces, replayer):
        self._spaces = spaces
        return self

    def scores(self, sketch, points):
        self.asked += len(points)
        decisions = self._spaces.sketches[sketch].decisions
        costs = np.array(
            [bowl([d.value(tuple(point)) for d in decisions]) for point in points.tolist()]
        )
        return np.where(self.knows(points), self.sign * costs, -np.inf)


def costs(draft, seed=0, trials=8, **options):
    strategy = DropletStrategy(prior=None, draft=draft, explore_trials=trials, **options)
    driven = drive(make_context(strategy, seed=seed), timed(bowl), max_trials=trials)
    assert len(driven.trials) == len(set(driven.modules)) == trials
    return [bowl(trial.decisions) for trial in driven.trials]


def test_first_trials_are_the_best_of_thousands_and_some_at_random():
    draft = KnowsTheBowl()
    drafted, without = costs(draft), costs(None)
    assert draft.asked > 500
    assert sum(cost < min(without) for cost in drafted) >= 6
    # A quarter is as TVM draws it.
    assert sorted(drafted)[6] >= min(without)


def test_wrong_draft_leaves_the_random_ones():
    wrong, without = costs(KnowsTheBowl(sign=1.0)), costs(None)
    assert wrong[:2] == without[:2]
    assert statistics.mean(wrong) > statistics.mean(without)


def test_draft_that_knows_nothing_changes_nothing():
    ignorant = KnowsTheBowl(knows=lambda points: np.zeros(len(points), dtype=bool))
    # Those of the first batch; the next one begins later in the stream of draws.
    assert costs(ignorant)[:4] == costs(None)[:4]


def test_a_draft_drafts_only_what_it_knows_and_no_more_than_its_share():
    """The draft knows the points whose cost is above the median of random ones: half of them."""
    random = costs(None, trials=64)
    median = statistics.median(random)

    class KnowsTheWorseHalf(KnowsTheBowl):
        def scores(self, sketch, points):
            scores = super().scores(sketch, points)
            return np.where(-scores > median, scores, -np.inf)

    found = costs(KnowsTheWorseHalf(), trials=64)
    best_known = [c for c in found if median < c < statistics.quantiles(random, n=8)[4]]
    # Each batch of 8 has 6 that are not random. Half of them are drafted, all near the median.
    assert 16 <= len(best_known) <= 24 + 8
    assert sum(cost <= median for cost in found) >= 20


@pytest.mark.parametrize("seed", [0, 1])
def test_same_seed_drafts_the_same(seed):
    assert costs(KnowsTheBowl(), seed) == costs(KnowsTheBowl(), seed)


def test_clone_keeps_the_draft():
    strategy = DropletStrategy(prior=None, draft=KnowsTheBowl(), explorer=RandomExplorer())
    context = make_context(strategy.clone())
    driven = drive(context, timed(bowl), max_trials=8)
    assert [bowl(trial.decisions) for trial in driven.trials] == costs(KnowsTheBowl())


@pytest.mark.parametrize("draft", ["symbols", 3, object()])
def test_what_is_no_draft_is_refused(draft):
    with pytest.raises(ValueError, match=r"draft is .*, expected None or an object with `begin`"):
        DropletStrategy(draft=draft)
