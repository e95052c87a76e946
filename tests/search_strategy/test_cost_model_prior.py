# SPDX-License-Identifier: Apache-2.0
"""The prior of a strategy: its source, its queries and its updates."""

import math
import random
from statistics import geometric_mean

import numpy as np
import pytest
import tvm_ffi
from conformance.driving import drive
from conformance.objectives import bowl, decisions_of, fail, sometimes, timed
from conformance.strategies import SMALL_EVOLUTION
from conformance.workloads import LLVM, make_context, matmul, tile_all

from tvm.ir.utils import derived_object
from tvm.s_tir import Trace
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.runner import RunnerResult
from tvm_droplet_ms import DropletStrategy
from tvm_droplet_ms.search_strategy import EvolutionaryExplorer, RandomExplorer
from tvm_droplet_ms.search_strategy.candidates import ScreenedReplayer
from tvm_droplet_ms.search_strategy.design_spaces import EncodedSpaces
from tvm_droplet_ms.search_strategy.prior import FIND_PRIOR, CostModelPrior, find_prior

BEST = 1e-3
"""The smallest time of ``bowl``."""


def throughput(cost: float) -> float:
    return BEST / cost


def inverted(cost: float) -> float:
    return 1.0 - BEST / cost


@derived_object
class Oracle(ms.cost_model.PyCostModel):
    """Predicts a function of the true cost; records queries and updates."""

    def __init__(self, expect=throughput, cost=bowl, asked=None, told=None) -> None:
        super().__init__()
        self.expect = expect
        self.cost = cost
        self.asked = [] if asked is None else asked
        self.told = [] if told is None else told

    def load(self, path):
        raise NotImplementedError

    def save(self, path):
        raise NotImplementedError

    def update(self, context, candidates, results):
        assert context.target is not None and context.mod is not None
        self.told.append(
            [
                (decisions_of(candidate.sch), result.run_secs and float(result.run_secs[0]))
                for candidate, result in zip(candidates, results, strict=True)
            ]
        )

    def predict(self, context, candidates):
        decisions = [decisions_of(candidate.sch) for candidate in candidates]
        self.asked += decisions
        return np.array([self.expect(self.cost(point)) for point in decisions])


@pytest.fixture
def registered():
    """Registers another function as ``find_prior`` for the length of a test."""
    present = tvm_ffi.get_global_func(FIND_PRIOR, allow_missing=True)
    yield lambda find: tvm_ffi.register_global_func(FIND_PRIOR, find, override=True)
    if present is None:
        tvm_ffi.registry.remove_global_func(FIND_PRIOR)
    else:
        tvm_ffi.register_global_func(FIND_PRIOR, present, override=True)


def run(prior, *, cost=bowl, seed=1, max_trials=40, **options):
    context = make_context(DropletStrategy(prior=prior, **options), seed=seed)
    return drive(context, timed(cost), max_trials=max_trials)


def first_within(driven, factor: float) -> float:
    """The number of trials until one is within a factor of the best."""
    for number, trial in enumerate(driven.trials, start=1):
        if bowl(trial.decisions) <= factor * BEST:
            return number
    return math.inf


def test_epsilon_is_the_share_that_the_prior_does_not_pick():
    """The number of trials among the four best predicted of the pool, of four."""

    def best_predicted(epsilon: float) -> int:
        asked = []
        explorer = RandomExplorer(pool_size=64, epsilon=epsilon)
        driven = run(Oracle(asked=asked), max_trials=4, explore_trials=4, explorer=explorer)
        assert len(set(asked)) == 64
        fourth = sorted(map(bowl, set(asked)))[3]
        return sum(bowl(trial.decisions) <= fourth for trial in driven.trials)

    assert best_predicted(0.0) == 4
    assert best_predicted(0.5) == 2
    assert best_predicted(1.0) < 2


def test_good_prior_finds_good_schedules_sooner():
    """Half of the exploration, and with it the descent, begins near the best of the pool."""
    informed, alone = [], []
    for seed in range(2):
        informed.append(first_within(run(Oracle(), seed=seed), 1.5))
        alone.append(first_within(run(None, seed=seed), 1.5))
    assert np.mean(informed) < 0.5 * np.mean(alone)


def test_wrong_prior_costs_little():
    """The prediction is inverted: the search must come within 20% of the one without a prior."""

    def best(prior, seed: int) -> float:
        driven = run(prior, seed=seed, max_trials=48)
        return min(bowl(trial.decisions) for trial in driven.trials)

    ratios = [best(Oracle(inverted), seed) / best(None, seed) for seed in range(5)]
    assert geometric_mean(ratios) <= 1.2


def test_prior_is_asked_once_about_each_point():
    asked = []
    run(Oracle(asked=asked), max_trials=24)
    assert len(asked) == len(set(asked)) > 0


def test_prior_is_not_queried_after_many_measurements():
    """The points that it was asked about do not grow after the first 32 trials."""
    asked, asked_before = [], []

    def objective(candidate):
        asked_before.append(len(asked))
        return timed(bowl)(candidate)

    drive(make_context(DropletStrategy(prior=Oracle(asked=asked))), objective, max_trials=44)
    first_batch, early, late = asked_before[0], asked_before[31], asked_before[43]
    assert 0 < first_batch < early == late == len(asked)


def test_prior_update_includes_failures():
    told = []
    context = make_context(DropletStrategy(prior=Oracle(told=told)))
    drive(context, fail, max_trials=8)
    assert [secs for batch in told for _, secs in batch] == [None] * 8


def test_prior_is_updated_once_per_batch_in_order_with_what_was_measured():
    told = []
    context = make_context(DropletStrategy(prior=Oracle(told=told)))
    objective = sometimes(RunnerResult([], "the disk is full"), timed(bowl))
    driven = drive(context, objective, max_trials=16)
    measured = [[trial for trial in batch if trial.secs] for batch in driven.batches]
    assert 0 < sum(map(len, measured)) < 16
    assert told == [
        [(trial.decisions, trial.secs[0]) for trial in batch] for batch in measured if batch
    ]


def test_cost_model_of_the_tuning_is_not_asked():
    asked = []
    context = make_context(DropletStrategy(prior=None))
    drive(context, timed(bowl), max_trials=12, cost_model=Oracle(asked=asked))
    assert asked == []


@pytest.mark.parametrize("expect", [math.nan, math.inf, -math.inf])
def test_prediction_that_is_not_finite_counts_as_no_throughput(expect):
    context = make_context(ms.search_strategy.ReplayTrace(), matmul(), tile_all)
    (space,) = context.generate_design_space()
    candidate = ScreenedReplayer(context.mod, [], random.Random(1)).replay(
        Trace(space.trace.insts, {})
    )
    prior = CostModelPrior(Oracle(lambda _: expect), context.mod, LLVM)
    point = EncodedSpaces([space.trace]).find(candidate.trace)
    prior.ask([(point, candidate)])
    assert prior.means == {point: 0.0}


def test_auto_is_what_find_prior_returns(registered):
    names, told = [], []

    def find(name, target):
        names.append((str(name), str(target.kind)))
        return Oracle(told=told)

    registered(find)
    # The default too.
    for strategy in (DropletStrategy(prior="auto"), DropletStrategy()):
        drive(make_context(strategy), timed(bowl), max_trials=8)
    assert names == [("auto", "llvm")] * 2
    assert sum(map(len, told)) == 16


def test_auto_is_no_prior_where_find_prior_returns_none(registered):
    registered(lambda name, target: None)
    assert run("auto", max_trials=24).modules == run(None, max_trials=24).modules


def test_path_is_resolved_by_find_prior(registered, tmp_path):
    names, told = [], []

    def find(name, target):
        names.append(str(name))
        return Oracle(told=told)

    registered(find)
    path = tmp_path / "some.model"
    path.write_bytes(b"")
    for prior in (path, str(path)):
        run(prior, max_trials=4)
    assert names == [str(path)] * 2
    assert sum(map(len, told)) == 8


def test_path_without_a_loader_is_rejected(registered, tmp_path):
    registered(lambda name, target: None)
    tvm_ffi.registry.remove_global_func(FIND_PRIOR)
    assert find_prior("auto", LLVM) is None
    with pytest.raises(ValueError, match="no function 'tvm_droplet_ms.find_prior' is registered"):
        find_prior(tmp_path / "some.model", LLVM)
    registered(lambda name, target: None)


def test_missing_file_is_rejected_at_construction(tmp_path):
    missing = tmp_path / "missing.model"
    for prior in (missing, str(missing), tmp_path):
        with pytest.raises(ValueError, match="there is no such file"):
            DropletStrategy(prior=prior)


@pytest.mark.parametrize("prior", [1, 0.5, True, ["auto"], Oracle])
def test_prior_of_a_wrong_type_is_rejected_at_construction(prior):
    with pytest.raises(ValueError, match="expected 'auto', the path of a model file, a cost model"):
        DropletStrategy(prior=prior)


def test_cost_model_is_shared_by_clones():
    """Tasks are tuned by clones: each feeds the one model, and is predicted by it."""
    asked, told = [], []
    strategy = DropletStrategy(prior=Oracle(asked=asked, told=told), explore_trials=4)
    trials = []
    for clone in (strategy.clone(), strategy.clone().clone()):
        before = len(asked)
        driven = drive(make_context(clone), timed(bowl), max_trials=8)
        trials += [(trial.decisions, trial.secs[0]) for trial in driven.trials]
        assert len(asked) > before
    assert [pair for batch in told for pair in batch] == trials


@pytest.mark.parametrize("has_prior", [True, False])
def test_evolution_selects_with_the_prior_or_the_cost_model_of_the_tuning(has_prior):
    asked, of_tuning = [], []
    explorer = EvolutionaryExplorer(**SMALL_EVOLUTION)
    prior = Oracle(asked=asked) if has_prior else None
    strategy = DropletStrategy(prior=prior, explorer=explorer, explore_trials=12)
    context = make_context(strategy)
    driven = drive(context, timed(bowl), max_trials=12, cost_model=Oracle(asked=of_tuning))
    assert (bool(asked), bool(of_tuning)) == (has_prior, not has_prior)
    assert len(driven.trials) == 12
