# SPDX-License-Identifier: Apache-2.0
"""Breakdown of a run's time, against hand-computed values and known delays."""

import time
from pathlib import Path
from typing import Any

import pytest

from tvm import te
from tvm.ir import IRModule
from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.builder import BuilderInput, BuilderResult, PyBuilder
from tvm.s_tir.meta_schedule.testing import te_workload
from tvm.target import Target
from tvm_droplet_ms.measure import BuildStats, RunStats, fast_start
from tvm_droplet_ms.measure.profile import TuningProfile, breakdown

SCOPES = {
    "SendToBuilder": 10.0,
    "SendToRunner": 5.0,
    "JoinRunnerFutures": 1.0,
    "EvoSearch/Evolve/Mutation": 3.0,
    "EvoSearch/PickWithEpsGreedy": 1.0,
    "MeasureCallback/UpdateCostModel": 0.5,
    "MeasureCallback/AddToDatabase": 0.25,
    "Total": 22.0,
}


def _breakdown(scopes: dict[str, float], **stats: Any) -> dict[str, float]:
    options = {"start_secs": 2.0, "wall_secs": 22.0, "build": None, "workers": 2, "run": None}
    return breakdown(scopes, **{**options, **stats})


def test_other_builder_and_runner_count_as_build_and_run() -> None:
    assert _breakdown(SCOPES) == {
        "starting": 2.0,
        "proposing": 4.0,
        "building": 10.0,
        "exporting": 0.0,
        "running": 6.0,
        "waiting": 0.0,
        "cost model": 0.5,
        "database": 0.25,
        "other": 1.25,
    }


def test_worker_time_is_not_waiting() -> None:
    build = BuildStats(build_secs=8.0, export_secs=6.0)  # of two workers: 4 s and 3 s
    run = RunStats(load_secs=0.5, timing_secs=4.0)
    parts = _breakdown(SCOPES, build=build, run=run)
    assert parts["building"] == 4.0 and parts["exporting"] == 3.0 and parts["running"] == 4.5
    assert parts["waiting"] == 16.0 - 11.5
    assert sum(parts.values()) == 24.0


def test_droplet_scope_contains_evolution_scope() -> None:
    scopes = {**SCOPES, "Droplet/Generate": 4.5, "Droplet/Notify": 0.5}
    assert _breakdown(scopes)["proposing"] == 5.0


class _Used:
    """A builder or runner with only the attributes that the profile reads."""

    def __init__(self, stats: BuildStats | RunStats) -> None:
        self.stats = stats
        self.max_workers = 2


def test_only_time_within_context_counts() -> None:
    builder = _Used(BuildStats(build_secs=100.0, export_secs=50.0))
    runner = _Used(RunStats(load_secs=10.0, timing_secs=200.0))
    profile = TuningProfile(builder, runner)
    for _ in range(2):  # The parts add up.
        with profile:
            builder.stats.build_secs += 8.0
            builder.stats.export_secs += 6.0
            runner.stats.load_secs += 0.5
            runner.stats.timing_secs += 4.0
        builder.stats.build_secs += 1000.0  # Between the two contexts.
    parts = profile.parts()
    assert parts["building"] == 2 * 8.0 / 2
    assert parts["exporting"] == 2 * 6.0 / 2
    assert parts["running"] == 2 * 4.5


SMALL_EVOLUTION = ms.search_strategy.EvolutionarySearch(
    population_size=16, init_min_unmeasured=8, genetic_num_iters=1
)


@pytest.mark.parametrize("strategy", [SMALL_EVOLUTION, "replay-trace"], ids=["evolution", "replay"])
def test_parts_add_up_to_run_time(strategy: Any, tmp_path: Path) -> None:
    delay = 0.5

    @derived_object
    class SlowToFail(PyBuilder):
        def build(self, build_inputs: list[BuilderInput]) -> list[BuilderResult]:
            time.sleep(delay)
            return [BuilderResult(None, "not built") for _ in build_inputs]

    fast_start()
    builder = SlowToFail()
    before = time.perf_counter()
    with TuningProfile(builder) as profile:
        ms.tune_tir(
            IRModule({"main": te.create_prim_func(te_workload.matmul(16, 16, 16))}),
            Target({"kind": "llvm", "num-cores": 1}),
            str(tmp_path),
            max_trials_global=4,
            num_trials_per_iter=2,
            builder=builder,
            strategy=strategy,
            cost_model="random",
        )
    wall = time.perf_counter() - before
    parts = profile.parts()
    assert 2 * delay <= parts["building"] < wall
    # The time to create the profile is not in any part.
    assert sum(parts.values()) - parts["starting"] == pytest.approx(wall, rel=0.05, abs=0.2)
