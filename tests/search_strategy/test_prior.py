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
"""A strategy that is told what to expect: what it measures first, and how far it believes."""

import math
import random

import numpy as np
import pytest
from conformance.driving import drive
from conformance.objectives import bowl, decisions_of, rugged, timed
from conformance.workloads import LLVM, make_context, matmul, tile_all

from tvm.ir.utils import derived_object
from tvm.s_tir import Trace
from tvm.s_tir import meta_schedule as ms
from tvm_droplet_ms import DropletStrategy
from tvm_droplet_ms.search_strategy.belief import Belief
from tvm_droplet_ms.search_strategy.candidates import Replayer
from tvm_droplet_ms.search_strategy.design_spaces import DesignSpaces

BEST = 1e-3
"""The smallest time of ``bowl``."""


@derived_object
class Oracle(ms.cost_model.PyCostModel):
    """Expects what a function of the cost says, and counts what it was asked."""

    def __init__(self, expect, cost=bowl, asked=None) -> None:
        super().__init__()
        self.expect = expect
        self.cost = cost
        self.asked = [] if asked is None else asked

    def load(self, path):
        raise NotImplementedError

    def save(self, path):
        raise NotImplementedError

    def update(self, context, candidates, results):
        pass

    def predict(self, context, candidates):
        decisions = [decisions_of(candidate.sch) for candidate in candidates]
        self.asked += decisions
        return np.array([self.expect(self.cost(one)) for one in decisions])


def throughput(cost: float) -> float:
    return BEST / cost


def inverted(cost: float) -> float:
    return 1.0 - BEST / cost


def first_within(driven, factor: float, cost=bowl) -> float:
    """After how many trials something was measured within a factor of the best."""
    for number, trial in enumerate(driven.trials, start=1):
        if cost(trial.decisions) <= factor * BEST:
            return number
    return math.inf


def run(model, *, cost=bowl, seed=1, max_trials=40, **options):
    context = make_context(DropletStrategy(**options), seed=seed)
    return drive(context, timed(cost), max_trials=max_trials, cost_model=model)


@pytest.mark.parametrize("seed", range(3))
def test_the_first_trials_are_the_best_of_what_was_drawn(seed):
    asked = []
    driven = run(Oracle(throughput, asked=asked), seed=seed, max_trials=4, epsilon=0.0)
    costs = sorted({one: bowl(one) for one in asked}.values())
    assert len(costs) > 100
    assert sorted(bowl(trial.decisions) for trial in driven.trials) == costs[:4]


def test_what_is_good_is_found_sooner_than_without():
    """Half of the exploration, and with it the descent, begins near the best of what was drawn."""
    informed, alone = [], []
    for seed in range(4):
        informed.append(first_within(run(Oracle(throughput), seed=seed), 1.5))
        alone.append(first_within(run(ms.cost_model.RandomModel(), seed=seed), 1.5))
    assert np.mean(informed) < 0.5 * np.mean(alone)


def test_a_part_of_the_first_batch_is_random():
    """With epsilon 1 the model chooses nothing; with diversity batches cover more values."""
    best = [
        sorted(
            bowl(t.decisions)
            for t in run(Oracle(throughput), max_trials=4, epsilon=e, explore_trials=4).trials
        )[0]
        for e in (0.0, 1.0)
    ]
    assert best[0] < best[1]


def covered(driven) -> int:
    return len(
        {
            (axis, value)
            for t in driven.trials
            for axis, tile in enumerate(t.decisions)
            for value in enumerate(tile)
        }
    )


def test_diversity_covers_more_values():
    close, diverse = (
        run(Oracle(throughput), max_trials=8, explore_trials=8, epsilon=0.0, diversity=alpha)
        for alpha in (0.0, 0.5)
    )
    assert covered(diverse) > covered(close)


@pytest.mark.parametrize("seed", range(3))
def test_a_wrong_model_costs_little(seed):
    """The expectation is inverted: the search must come within 10% of what it finds alone."""
    misled = run(Oracle(inverted), seed=seed, max_trials=48)
    alone = run(ms.cost_model.RandomModel(), seed=seed, max_trials=48)
    found = [min(bowl(trial.decisions) for trial in driven.trials) for driven in (misled, alone)]
    assert found[0] <= 1.1 * found[1]


def test_a_model_that_answers_at_random_changes_nothing():
    """TVM's own, before it has samples: the search is the one without a model."""
    model = ms.cost_model.XGBModel(num_tuning_cores=1)
    modules = run(model, cost=rugged).modules
    assert modules == run(ms.cost_model.RandomModel(), cost=rugged).modules
    assert modules != run(Oracle(throughput, rugged), cost=rugged).modules


def test_without_the_cost_model():
    alone = run(ms.cost_model.RandomModel()).modules
    assert run(Oracle(throughput), without=["cost model"]).modules == alone


def test_no_place_is_asked_about_twice():
    asked = []
    run(Oracle(throughput, asked=asked), max_trials=24)
    # What it answered was tried on two candidates, twice.
    assert len(asked) - len(set(asked)) <= 4


def test_no_model_is_asked_once_much_was_measured():
    asked = {}
    for trials in (32, 48, 64):
        asked[trials] = []
        run(Oracle(throughput, asked=asked[trials]), max_trials=trials)
    assert 0 < len(asked[32]) == len(asked[48]) == len(asked[64])


@pytest.mark.parametrize("options", [{"epsilon": 1.5}, {"epsilon": -0.1}, {"diversity": -1.0}])
def test_options_out_of_range(options):
    ((name, value),) = options.items()
    with pytest.raises(ValueError, match=f"{name} is {value}"):
        DropletStrategy(**options)


def test_what_is_not_finite_is_expected_to_be_worst():
    context = make_context(ms.search_strategy.ReplayTrace(), matmul(), tile_all)
    (space,) = context.generate_design_space()
    replayer = Replayer(context.mod, [], random.Random(1))
    candidate = replayer.replay(Trace(space.trace.insts, {}))
    belief = Belief(Oracle(lambda _: math.nan), context.mod, LLVM)
    place = DesignSpaces([space.trace]).find(candidate.trace)
    belief.expect([(place, candidate)])
    assert belief.expected == {place: 0.0}
    assert not belief.is_informed([candidate])
