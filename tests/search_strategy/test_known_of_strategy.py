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
"""A strategy whose prior chooses among the known schedules of other tasks too."""

import random

import numpy as np
import pytest
from conformance.driving import drive
from conformance.objectives import bowl, timed
from conformance.workloads import make_context

from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule as ms
from tvm_droplet_ms import DropletStrategy
from tvm_droplet_ms.search_strategy import RandomExplorer
from tvm_droplet_ms.search_strategy.candidates import Replayer
from tvm_droplet_ms.search_strategy.descents.local_moves import LocalMoves
from tvm_droplet_ms.search_strategy.design_spaces import DesignSpaces
from tvm_droplet_ms.search_strategy.known_schedules import write_schedules
from tvm_droplet_ms.search_strategy.published.decisions import Prober
from tvm_droplet_ms.search_strategy.tuned_task import TunedTask


@derived_object
class Indifferent(ms.cost_model.PyCostModel):
    """Expects the same of all, and counts what it is asked about."""

    def __init__(self):
        super().__init__()
        self.asked = 0

    def load(self, path):
        raise NotImplementedError

    def save(self, path):
        raise NotImplementedError

    def update(self, context, candidates, results):
        """Learns nothing."""

    def predict(self, context, candidates):
        self.asked += len(candidates)
        return np.ones(len(candidates))


def best_of_space():
    """The best of 4,000 random points by the bowl, as decisions of another task."""
    context = make_context(ms.search_strategy.ReplayTrace())
    (schedule,) = context.generate_design_space()
    spaces = DesignSpaces([schedule.trace])
    replayer = Replayer(context.mod, [], random.Random(0))
    moves = LocalMoves(spaces, Prober(replayer, 1), random.Random(0))
    points = moves.random_points(4000)
    costs = {}
    for point in points:
        sketch = spaces.sketches[point[0]]
        costs[point] = bowl([decision.value(point[1]) for decision in sketch.decisions])
    best = min(costs, key=costs.__getitem__)
    return TunedTask.from_trace(spaces.trace(best)), costs[best]


@pytest.fixture(scope="module")
def known(tmp_path_factory):
    tuned, cost = best_of_space()
    path = tmp_path_factory.mktemp("known") / "known.jsonl"
    write_schedules(path, [tuned])
    return path, cost


def run(known, prior, max_trials=4):
    strategy = DropletStrategy(
        known=known, prior=prior, explore_trials=4, explorer=RandomExplorer(pool_size=32)
    )
    return drive(make_context(strategy), timed(bowl), max_trials=max_trials)


def test_nearest_known_schedule_is_in_the_first_batch(known):
    path, cost = known
    without, model = run(None, Indifferent()), Indifferent()
    driven = run(path, model)
    costs = [bowl(trial.decisions) for trial in driven.trials]
    assert cost in costs
    assert min(bowl(trial.decisions) for trial in without.trials) > cost
    assert len(costs) == 4
    assert model.asked == 33


def test_without_a_prior_nothing_known_is_used(known):
    path, _ = known
    with_file, without = run(path, None), run(None, None)
    assert with_file.modules == without.modules


def test_measured_schedule_is_not_measured_again(known):
    path, cost = known
    database = ms.database.MemoryDatabase()
    strategy = DropletStrategy(known=path, prior=Indifferent(), explore_trials=4)
    first = drive(make_context(strategy), timed(bowl), max_trials=4, database=database)
    again = drive(make_context(strategy.clone()), timed(bowl), max_trials=4, database=database)
    assert cost in [bowl(trial.decisions) for trial in first.trials]
    assert not set(first.modules) & set(again.modules)


def test_missing_file_is_refused():
    with pytest.raises(ValueError, match="known is 'nowhere', and there is no such file"):
        DropletStrategy(known="nowhere")
