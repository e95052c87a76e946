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
"""The generic algorithms as strategies: the contract of tests/conformance, and their own part."""

import math
import sys

import conformance.test_lifecycle as lifecycle
import conformance.test_reproducibility as reproducibility
import conformance.test_spaces as spaces
import conformance.test_trials as trials
import pytest
from conformance.driving import drive
from conformance.objectives import bowl, fail, goes_wrong, rugged, sometimes, timed
from conformance.strategies import Case
from conformance.workloads import (
    Reject,
    make_context,
    matmul,
    tile_all,
    tile_and_annotate,
    tile_two,
)

from tvm.s_tir import meta_schedule as ms
from tvm_droplet_ms.bench.baselines import strategy as strategy_module
from tvm_droplet_ms.bench.baselines.strategy import ASK_TELL, AskTellStrategy

CASES = [Case(name, lambda name=name: AskTellStrategy(name)) for name in ASK_TELL]


@pytest.fixture(params=CASES, ids=lambda case: case.name)
def case(request):
    if request.param.name == "tpe":
        pytest.importorskip("optuna")
    return request.param


test_is_a_tvm_strategy = lifecycle.test_is_a_tvm_strategy
test_generate_before_pre_tuning = lifecycle.test_generate_before_pre_tuning
test_notify_before_pre_tuning = lifecycle.test_notify_before_pre_tuning
test_post_tuning_twice = lifecycle.test_post_tuning_twice
test_pre_tuning_twice = lifecycle.test_pre_tuning_twice
test_generate_after_post_tuning = lifecycle.test_generate_after_post_tuning
test_no_design_space = lifecycle.test_no_design_space
test_generate_twice = lifecycle.test_generate_twice
test_second_run_of_one_object = lifecycle.test_second_run_of_one_object
test_clone = lifecycle.test_clone
test_clone_of_a_context = lifecycle.test_clone_of_a_context
test_no_database_and_no_cost_model = lifecycle.test_no_database_and_no_cost_model
test_same_seed = reproducibility.test_same_seed
test_another_seed = reproducibility.test_another_seed
test_space_of_one_point = spaces.test_space_of_one_point
test_space_of_one_failing_point = spaces.test_space_of_one_failing_point
test_exhausted = spaces.test_exhausted
test_some_candidates_are_rejected = spaces.test_some_candidates_are_rejected
test_postprocessor_that_samples = spaces.test_postprocessor_that_samples
test_every_kind_of_decision = spaces.test_every_kind_of_decision
test_two_design_spaces = spaces.test_two_design_spaces
test_limits = trials.test_limits
test_no_trials = trials.test_no_trials
test_ended_stays_ended = trials.test_ended_stays_ended
test_candidates_describe_the_arguments = trials.test_candidates_describe_the_arguments


@pytest.mark.parametrize(
    "objective",
    [timed(bowl), fail, sometimes(trials.NAN, timed(bowl)), sometimes(trials.FAILURE, timed(bowl))],
)
def test_contract(case, objective):
    trials.test_contract(case, objective)


def test_all_candidates_are_rejected(case, caplog):
    """It ends, and says so."""
    context = make_context(case.make(), space=tile_all, postprocs=[Reject()])
    driven = drive(context, timed(bowl))
    assert driven.ended
    assert driven.trials == []
    assert f"{case.name} ends after 0 trials" in caplog.text


class Listing:
    """Proposes every point of a small space in order and records the results."""

    def __init__(self, space):
        self.told = {}
        self.space = space
        self._points = iter([(0, *indices) for indices in strategy_points(space.sizes[0])])

    def ask(self, n):
        return [point for _, point in zip(range(n), self._points)]

    def tell(self, point, secs):
        assert point not in self.told
        self.told[point] = secs


def strategy_points(sizes):
    if not sizes:
        return [()]
    return [(index, *rest) for index in range(sizes[0]) for rest in strategy_points(sizes[1:])]


def list_all(monkeypatch, space, objective, **options):
    """Drive a strategy whose algorithm proposes every point."""
    made = []

    def make(space, *_):
        made.append(Listing(space))
        return made[-1]

    monkeypatch.setitem(strategy_module._ALGORITHMS, "random", make)
    context = make_context(AskTellStrategy("random"), matmul(4, 4, 4), space, **options)
    driven = drive(context, objective, max_trials=10_000, num_trials_per_iter=64)
    return made[0], driven


def test_duplicate_module_is_told_without_a_trial(monkeypatch):
    """Many parallel extents make one module: measured once, told to each."""
    postprocs = ms.postproc.Postproc.create("llvm")
    listing, driven = list_all(monkeypatch, tile_and_annotate, timed(rugged), postprocs=postprocs)
    times = {trial.module: trial.secs[0] for trial in driven.trials}
    assert not driven.repeated
    assert len(listing.told) == math.prod(listing.space.sizes[0]) > 1.5 * len(driven.trials)
    for point, secs in listing.told.items():
        assert secs == times[listing.space.realise(point).module]


def test_failures_are_told_as_infinite(monkeypatch):
    """Those that do not run, and those that a postprocessor rejects, which are no trials."""
    objective = sometimes(trials.FAILURE, timed(bowl))
    rejects = [Reject(spaces.is_narrow)]
    listing, driven = list_all(monkeypatch, tile_two, objective, postprocs=rejects)
    times = {trial.module: trial for trial in driven.trials}
    assert len(driven.trials) < len(listing.told) == 9
    for point, secs in listing.told.items():
        candidate = listing.space.realise(point)
        if candidate is None or goes_wrong(times[candidate.module].decisions):
            assert secs == math.inf
        else:
            assert secs == times[candidate.module].secs[0]


def test_results_of_another_batch(case):
    context = make_context(case.make())
    lifecycle.pre_tune(context)
    candidates = context.search_strategy.generate_measure_candidates()
    with pytest.raises(ValueError, match=f"expected {len(candidates)} of each"):
        context.search_strategy.notify_runner_results(candidates, [])


def test_unknown_name_is_rejected():
    with pytest.raises(ValueError, match="name is 'genetic', expected one of random, tpe"):
        AskTellStrategy("genetic")


def test_tpe_without_optuna(monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ImportError, match="pip install"):
        AskTellStrategy("tpe")


@pytest.mark.parametrize(("better", "share"), [("local-search", 0.6)])
def test_better_than_random(better, share):
    """Distance of the best of 60 trials from the basin's floor, over five seeds."""

    def total(name):
        runs = (
            drive(make_context(AskTellStrategy(name), seed=seed), timed(bowl), max_trials=60)
            for seed in range(1, 6)
        )
        return sum(min(trial.secs[0] for trial in run.trials) - 1e-3 for run in runs)

    assert total(better) < share * total("random")
