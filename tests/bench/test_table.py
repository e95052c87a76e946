# SPDX-License-Identifier: Apache-2.0
"""Replay: tune_tir sees the table's times, and every trial is kept."""

import math
from dataclasses import replace

import pytest
from conformance.workloads import LLVM
from replaying import PASSES, annotated, annotated_space, tune

from tvm.s_tir import Schedule
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.arg_info import ArgInfo
from tvm.s_tir.meta_schedule.builder import BuilderInput
from tvm.s_tir.meta_schedule.runner import RunnerInput
from tvm_droplet_ms import DropletStrategy
from tvm_droplet_ms.bench.definition import UnknownDefinitionError, trust
from tvm_droplet_ms.bench.design_space import DesignSpace
from tvm_droplet_ms.bench.space import Space, SpaceError
from tvm_droplet_ms.bench.table import ReplayTable


@pytest.fixture(scope="module")
def space() -> Space:
    return annotated_space()


def module_of(space: Space, index: int) -> object:
    """The scheduled module at an index of the space."""
    design_space = DesignSpace(annotated().context(LLVM, "replay-trace"))
    (point, *_) = (point for point in space.points if point.module == index)
    return design_space.realize((point.sketch, point.decisions)).schedule.mod


def measure(table: ReplayTable, *modules: object) -> list[list[float] | None]:
    """Results of a table's builder and runner for one batch."""
    made = table.measure()
    built = made["builder"].build([BuilderInput(mod, LLVM) for mod in modules])
    args_info = ArgInfo.from_entry_func(annotated().mod, remove_preproc=True)
    paths = [str(result.artifact_path) for result in built if result.error_msg is None]
    ran = made["runner"].run([RunnerInput(path, "llvm", args_info) for path in paths])
    results = iter(future.result() for future in ran)
    reported = []
    for build_result in built:
        result = next(results) if build_result.error_msg is None else None
        secs = None if result is None or result.run_secs is None else result.run_secs
        reported.append(None if secs is None else [float(sec) for sec in secs])
    return reported


@pytest.mark.parametrize("strategy", ["replay-trace", "evolutionary", DropletStrategy()])
def test_database_holds_times_of_space(space: Space, strategy: object):
    table = ReplayTable(space)
    database = tune(table, strategy, 24)
    (record,) = database.get_top_k(database.commit_workload(annotated().mod), 1)
    schedule = Schedule(annotated().mod)
    record.trace.apply_to_schedule(schedule, remove_postproc=False)
    found = table.answer(schedule.mod)
    assert float(record.run_secs[0]) == found.time
    assert found.time == min(trial.best_estimate for trial in table.trials)
    assert len(table.trials) >= 24


def test_modules_near_the_best_are_repeated(space: Space):
    slow, best, near, far = (module_of(space, i) for i in (99, 19, 20, 40))
    first, second, third, fourth = measure(ReplayTable(space), slow, best, near, far)
    assert first == pytest.approx([100e-6] * 5)
    assert second == pytest.approx([20e-6] * 5)
    assert third == pytest.approx([21e-6] * 5)
    assert fourth == pytest.approx([41e-6])


def test_noise_is_drawn_from_the_passes_and_seeded(space: Space):
    mod = module_of(space, 9)
    drawn = [tuple(measure(ReplayTable(space, noisy=True, seed=seed), mod)[0]) for seed in range(9)]
    again = [tuple(measure(ReplayTable(space, noisy=True, seed=seed), mod)[0]) for seed in range(9)]
    assert drawn == again
    # The repeats of one measurement are of one pass.
    assert {(len(secs), len(set(secs))) for secs in drawn} == {(5, 1)}
    assert len(set(drawn)) > 1
    passes = {round(1e-5 * (1 + 0.01 * n), 12) for n in range(-3, 4)}
    assert len(passes) == PASSES
    assert {round(sec, 12) for secs in drawn for sec in secs} <= passes


def test_trial_has_its_noise_and_its_best_estimate(space: Space):
    table = ReplayTable(space, noisy=True, seed=3)
    (reported,) = measure(table, module_of(space, 9))
    (trial,) = table.trials
    assert trial.secs == pytest.approx(sum(reported) / len(reported))
    assert trial.best_estimate == pytest.approx(1e-5)


def test_failures_are_values():
    space = annotated_space({3: "compile", 4: "wrong result", 5: "timeout"})
    table = ReplayTable(space)
    mods = [module_of(space, i) for i in (3, 4, 5, 6)]
    assert measure(table, *mods)[:3] == [None, None, None]
    assert [trial.failure for trial in table.trials] == ["compile", "wrong result", "timeout", None]
    assert [math.isinf(trial.secs) for trial in table.trials] == [True, True, True, False]


def test_tuning_continues_after_failures():
    space = annotated_space({i: "runtime" for i in range(0, 200, 2)})
    table = ReplayTable(space)
    tune(table, "evolutionary", 24)
    failed = [trial for trial in table.trials if trial.failure]
    assert len(table.trials) >= 24
    assert 0 < len(failed) < len(table.trials)


def test_missing_module_ends_run():
    table = ReplayTable(annotated_space(leave_out=60))
    with pytest.raises(RuntimeError, match=r"(?s)annotated has no module.*closed"):
        tune(table, "evolutionary", 64)


def test_other_modules_are_rejected(space: Space):
    modules = tuple(replace(module, structural_hash=i) for i, module in enumerate(space.modules))
    with pytest.raises(SpaceError, match="annotated was measured with"):
        ReplayTable(replace(space, modules=modules))


def test_mutators_and_sampling_stay_in_the_space(space: Space):
    evolution = ms.search_strategy.EvolutionarySearch(population_size=64, genetic_num_iters=2)
    for seed in range(1, 6):
        table = ReplayTable(space)
        tune(table, evolution, 40, seed=seed)
        assert {trial.module for trial in table.trials} <= set(space.index)


def test_file_may_not_name_code_that_user_has_not_named(space: Space):
    """Resolving the definition would import the module and call the function."""
    sneaky = replace(space, definition="os:getcwd")
    with pytest.raises(SpaceError, match=r"'os:getcwd'.*--trust os:getcwd"):
        ReplayTable(sneaky)
    trust("os:getcwd")
    with pytest.raises(UnknownDefinitionError, match="expected a Definition"):
        ReplayTable(sneaky)
