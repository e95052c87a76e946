# SPDX-License-Identifier: Apache-2.0
"""The published mode: evolution explores, and a coordinate descent measures to a local optimum."""

import pytest
from scipy import stats

from tvm.s_tir import meta_schedule as ms
from tvm_droplet_ms import DropletStrategy

from .driving import FixedModel, drive
from .objectives import Noisy, bowl, rugged, spread, timed
from .strategies import make_published_droplet
from .test_descent import assert_optimum, neighbors
from .workloads import make_context, tile_and_annotate


@pytest.mark.parametrize("cost", [bowl, rugged])
def test_descent_ends_in_a_local_optimum(cost):
    strategy = make_published_droplet()
    driven = drive(make_context(strategy), timed(cost), max_trials=2000)
    assert driven.ended
    assert 12 < len(driven.trials) < 1000
    measured = assert_optimum(driven, cost=cost)
    assert set(neighbors(min(measured, key=cost))) <= measured


def test_descent_ends_where_no_neighbor_is_significantly_faster():
    """Significance is SciPy's test on three times per candidate."""
    strategy = make_published_droplet()
    driven = drive(make_context(strategy), spread(rugged), max_trials=2000)
    assert driven.ended
    times = {trial.decisions: trial.secs for trial in driven.trials}

    def is_optimum(decisions) -> bool:
        around = list(neighbors(decisions))
        return all(near in times for near in around) and not any(
            sum(times[near]) < sum(times[decisions])
            and stats.ttest_ind(times[near], times[decisions]).pvalue <= 0.05
            for near in around
        )

    optima = [decisions for decisions in times if is_optimum(decisions)]
    assert optima
    assert min(map(rugged, optima)) <= 1.01 * min(map(rugged, times))


def test_descent_does_not_follow_noise():
    """Equal kernels with noisy times: with five times each, the descent takes few steps."""
    noisy = Noisy(lambda _: 1e-3, 0.2)

    def five_times(candidate):
        return ms.runner.RunnerResult([float(noisy(candidate).run_secs[0]) for _ in range(5)], None)

    driven = drive(make_context(make_published_droplet()), five_times, max_trials=300)
    assert driven.ended and len(driven.trials) < 150


def test_descent_covers_every_kind_of_decision():
    context = make_context(
        make_published_droplet(explore_trials=4),
        space=tile_and_annotate,
        postprocs=ms.postproc.Postproc.create("llvm"),
        mutators=ms.mutator.Mutator.create("llvm"),
    )
    driven = drive(context, timed(rugged), max_trials=60)
    assert not driven.repeated
    times = [rugged(trial.decisions) for trial in driven.trials]
    assert min(times[4:]) < min(times[:4])
    assert driven.ended or len(driven.trials) == 60


@pytest.mark.parametrize(("max_trials", "expected"), [(70, 35), (1000, 300), (1, 1)])
def test_explores_for_300_trials_or_half_of_them(max_trials, expected):
    """The published search explores for long."""
    context = make_context(DropletStrategy.published())
    context.pre_tuning(max_trials, 300, cost_model=FixedModel())
    candidates = context.search_strategy.generate_measure_candidates()
    context.search_strategy.post_tuning()
    # Evolution proposes some modules twice.
    assert 0.98 * expected <= len(candidates) <= expected


@pytest.mark.parametrize(("measure", "warned"), [(timed, True), (spread, False)])
def test_warns_where_the_significance_test_decides_nothing(caplog, measure, warned):
    drive(make_context(make_published_droplet()), measure(bowl), max_trials=30)
    assert ("significance test decides nothing" in caplog.text) == warned


def test_goes_on_from_the_records_of_a_database():
    database = ms.database.MemoryDatabase()
    first, again = (
        drive(make_context(make_published_droplet()), timed(bowl), max_trials=n, database=database)
        for n in (20, 200)
    )
    assert again.ended and not set(first.modules) & set(again.modules)
    assert_optimum(first, again)
