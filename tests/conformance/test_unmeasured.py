# SPDX-License-Identifier: Apache-2.0
"""Candidates that the machine, and not their own fault, kept from being measured.

Their result has an empty list of times and an error message.
"""

import pytest
from tvm_ffi import structural_hash

from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.database import TuningRecord
from tvm.s_tir.meta_schedule.runner import RunnerResult

from .driving import drive
from .objectives import bowl, goes_wrong, rugged, sometimes, timed
from .strategies import make_droplet
from .watching import follow
from .workloads import LLVM, make_context, matmul, tile_two

UNMEASURED = RunnerResult([], "made-up: the disk is full")


class Once:
    """Each module cannot be measured at its first attempt, and can be at its second."""

    def __init__(self) -> None:
        self.attempts: dict[int, int] = {}

    def __call__(self, candidate) -> RunnerResult:
        module = structural_hash(candidate.sch.mod)
        self.attempts[module] = self.attempts.get(module, 0) + 1
        return UNMEASURED if self.attempts[module] == 1 else timed(rugged)(candidate)


def test_candidate_is_proposed_again():
    """All 25 modules of a small space are measured in the end, each after one failed attempt."""
    objective = Once()
    strategy = make_droplet(explorer="random")
    driven = drive(make_context(strategy, space=tile_two), objective, max_trials=200)
    assert driven.ended
    assert list(objective.attempts.values()) == [2] * 25
    assert len([trial for trial in driven.trials if trial.secs]) == 25


def test_candidate_does_not_count_as_explored(caplog):
    """The descent begins after 12 measurements, and not after 12 trials."""
    with follow(caplog) as followed:
        strategy = make_droplet()
        driven = drive(make_context(strategy), sometimes(UNMEASURED, timed(bowl)), max_trials=60)
    phases = [(progress.phase, progress.trials) for progress, _ in followed.events("phase")]
    assert phases[0] == ("explore", 0)
    assert any(goes_wrong(trial.decisions) for trial in driven.trials)
    assert any(
        "could not be measured" in text and "the disk is full" in text for text in followed.warnings
    )


def test_record_is_skipped_and_counted_where_a_database_is_resumed(caplog):
    database = ms.database.MemoryDatabase()
    objective = sometimes(UNMEASURED, timed(bowl))
    first = drive(make_context(make_droplet(), space=tile_two), objective, database=database)
    measured = {trial.module for trial in first.trials if trial.secs}
    attempted = [trial for trial in first.trials if not trial.secs]
    assert measured and attempted
    with follow(caplog) as followed:
        second = drive(
            make_context(make_droplet(), space=tile_two, seed=2), timed(bowl), database=database
        )
    assert not measured & set(second.modules)
    assert {trial.module for trial in attempted} <= set(second.modules)
    assert len(second.trials) == 25 - len(measured)
    assert followed.says(f"{len(attempted)} of could not be measured")


@pytest.mark.parametrize("kind", ["memory", "json"])
def test_databases_of_tvm_accept_a_record_without_times(kind, tmp_path):
    database = (
        ms.database.MemoryDatabase()
        if kind == "memory"
        else ms.database.JSONDatabase(work_dir=str(tmp_path))
    )
    context = make_context(make_droplet(), space=tile_two)
    (space,) = context.generate_design_space()
    workload = database.commit_workload(matmul())
    for secs in ([], [1e-3]):
        database.commit_tuning_record(TuningRecord(space.trace, workload, secs, LLVM))
    if kind == "json":
        database = ms.database.JSONDatabase(work_dir=str(tmp_path))
        workload = database.commit_workload(matmul())
    times = [list(record.run_secs) for record in database.get_all_tuning_records()]
    assert sorted(map(len, times)) == [0, 1]
    (best, *_) = database.get_top_k(workload, 2)
    assert [float(sec) for sec in best.run_secs] == [1e-3]
