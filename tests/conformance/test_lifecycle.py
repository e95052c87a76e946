# SPDX-License-Identifier: Apache-2.0
"""The calls that TVM makes, in order and out of order, and clones."""

import pytest
import tvm_ffi

from tvm.error import InternalError
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.runner import RunnerResult
from tvm_droplet_ms import DropletStrategy
from tvm_droplet_ms.search_strategy import EvolutionaryExplorer

from .driving import FixedModel, drive
from .objectives import bowl, timed
from .strategies import DROPLET, make_droplet
from .workloads import make_context

ERRORS = (ValueError, InternalError)


def pre_tune(context, max_trials=20):
    context.pre_tuning(
        max_trials, 7, database=ms.database.MemoryDatabase(), cost_model=FixedModel()
    )


CALLS = {
    "generate": lambda strategy: strategy.generate_measure_candidates(),
    "notify": lambda strategy: strategy.notify_runner_results([], []),
    "post_tuning": lambda strategy: strategy.post_tuning(),
}


@pytest.mark.parametrize("call", CALLS)
def test_call_before_pre_tuning(case, call):
    strategy = make_context(case.make()).search_strategy
    with pytest.raises(ERRORS):
        CALLS[call](strategy)


@pytest.mark.parametrize("call", ["generate", "post_tuning"])
def test_call_after_post_tuning(case, call):
    context = make_context(case.make())
    pre_tune(context)
    context.search_strategy.post_tuning()
    with pytest.raises(ERRORS):
        CALLS[call](context.search_strategy)


def test_pre_tuning_twice(case):
    context = make_context(case.make())
    pre_tune(context)
    with pytest.raises(ERRORS):
        pre_tune(context)


def test_no_design_space(case):
    strategy = make_context(case.make()).search_strategy
    with pytest.raises(ERRORS):
        strategy.pre_tuning(20, 7, [], ms.database.MemoryDatabase(), FixedModel())


def test_generate_twice(case):
    case.must("refuse to generate twice")
    context = make_context(case.make())
    pre_tune(context)
    candidates = context.search_strategy.generate_measure_candidates()
    with pytest.raises(ValueError, match="notify_runner_results"):
        context.search_strategy.generate_measure_candidates()
    results = [RunnerResult([1e-3], None)] * len(candidates)
    context.search_strategy.notify_runner_results(candidates, results)
    assert context.search_strategy.generate_measure_candidates()


def test_results_of_another_batch(case):
    case.must("refuse wrong results")
    context = make_context(case.make())
    pre_tune(context)
    candidates = context.search_strategy.generate_measure_candidates()
    with pytest.raises(ValueError, match=f"expected {len(candidates)} of each"):
        context.search_strategy.notify_runner_results(candidates, [RunnerResult([1e-3], None)])


def test_second_run_of_one_object(case):
    """After post_tuning a second run starts without any state of the first."""
    context = make_context(case.make())
    drive(context, timed(bowl), max_batches=2)
    again = drive(context, timed(bowl))
    assert len(again.trials) == 40


@pytest.mark.parametrize("max_batches", [0, 1, 4], ids=lambda count: f"{count} batches")
def test_clone(case, max_batches):
    """A clone of a strategy that is running starts anew, with the configuration of the first."""
    running = make_context(case.make())
    drive(running, timed(bowl), max_batches=max_batches, finish=False)
    context = make_context(running.search_strategy.clone())
    with pytest.raises(ERRORS):
        context.search_strategy.generate_measure_candidates()
    cloned = drive(context, timed(bowl))
    assert cloned.modules == drive(make_context(case.make()), timed(bowl)).modules


def test_clone_keeps_the_configuration():
    options = {"explore_trials": 5, "stop": 1.0}
    configured = make_context(make_droplet(**options).clone().clone())
    sizes = [len(batch) for batch in drive(configured, timed(bowl)).batches]
    assert sizes == [5], "the next trials are never expected to gain all of the time"
    assert sizes != [
        len(batch) for batch in drive(make_context(DROPLET.make()), timed(bowl)).batches
    ]


def test_clone_of_a_context(case):
    """``tune_tir`` tunes a clone of the context that it makes."""
    original = make_context(case.make())
    pre_tune(original)
    cloned = original.clone()
    assert len(drive(cloned, timed(bowl)).trials) == 40
    assert original.search_strategy.generate_measure_candidates()


def test_no_database_and_no_cost_model(case):
    context = make_context(case.make())
    context.pre_tuning(20, 7)
    measured = 0
    while (candidates := context.search_strategy.generate_measure_candidates()) is not None:
        results = [timed(bowl)(candidate) for candidate in candidates]
        context.search_strategy.notify_runner_results(candidates, results)
        measured += len(candidates)
    context.search_strategy.post_tuning()
    assert measured == 20


def test_global_function_makes_a_strategy_without_arguments_or_from_a_map_of_options():
    make = tvm_ffi.get_global_func("tvm_droplet_ms.DropletStrategy")
    options = {"explore_trials": 5, "explorer": "random", "prior": None, "stop": None}
    assert isinstance(make().clone(), ms.SearchStrategy)
    driven, expected = (
        drive(make_context(strategy), timed(bowl), max_trials=20)
        for strategy in (make(options), DropletStrategy(**options))
    )
    assert driven.modules == expected.modules
    assert [len(batch) for batch in driven.batches][:2] == [5, 4]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"explorer": "greedy"}, "explorer is 'greedy', expected one of known, random, evol"),
        ({"explore_trials": 0}, "explore_trials is 0, expected an integer of at least 1"),
        ({"explore_trials": 2.5}, "explore_trials is 2.5, expected an integer of at least 1"),
        ({"stop": "no"}, "stop is 'no', expected \"auto\", a share from 0 to 1, or None"),
        ({"stop": -0.1}, 'stop is -0.1, expected "auto"'),
        ({"stop": True}, 'stop is True, expected "auto"'),
    ],
)
def test_option_out_of_range_is_rejected(options, message):
    with pytest.raises(ValueError, match=message):
        DropletStrategy(**options)


@pytest.mark.parametrize("option", ["explore_trials", "descent_batch_size"])
def test_option_of_the_published_search_out_of_range_is_rejected(option):
    with pytest.raises(ValueError, match=f"{option} is 0, expected an integer of at least 1"):
        DropletStrategy.published(**{option: 0})


def test_options_that_evolution_does_not_take_are_rejected():
    with pytest.raises(ValueError, match="options of EvolutionaryExplorer are {'people': 8}"):
        EvolutionaryExplorer(people=8)
