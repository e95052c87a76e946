# SPDX-License-Identifier: Apache-2.0
"""Records in a database before a run: own trials, other targets, unreplayable traces."""

import json
import math
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tvm_ffi import structural_hash

from tvm import te
from tvm.ir import IRModule
from tvm.ir.utils import derived_object
from tvm.s_tir import Schedule, Trace
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.database import TuningRecord
from tvm.s_tir.meta_schedule.runner import RunnerResult
from tvm.s_tir.meta_schedule.testing import te_workload
from tvm_droplet_ms import open_database

from .driving import FixedModel, drive
from .objectives import Decisions, bowl, decisions_of, fail, rugged, sometimes, spread, timed
from .strategies import make_droplet, make_evolution
from .test_spaces import is_narrow
from .watching import follow
from .workloads import LLVM, OTHER_LLVM, Reject, make_context, matmul, tile_two

FAILURE = RunnerResult(None, "made-up run error")
NAN = RunnerResult([math.nan], None)


def commit(database, sch: Schedule, secs: list[float], target=LLVM, mod=None) -> None:
    workload = database.commit_workload(matmul() if mod is None else mod)
    args_info = ms.arg_info.ArgInfo.from_entry_func(workload.mod, remove_preproc=True)
    database.commit_tuning_record(TuningRecord(sch.trace, workload, secs, target, args_info))


def scheduled(*tiles: list[int]) -> Schedule:
    """A schedule of ``tile_all`` with given decisions, also outside the sampling limits."""
    sch = Schedule(matmul())
    i, j, k = sch.get_loops(sch.get_sblock("C"))
    limits = (32, 32, 16)
    new = []
    for loop, tile, limit in zip((i, j, k), tiles, limits):
        factors = sch.sample_perfect_tile(
            loop, n=len(tile), max_innermost_factor=limit, decision=tile
        )
        new.append(sch.split(loop, factors))
    (i0, i1, i2, i3), (j0, j1, j2, j3), (k0, k1) = new
    sch.reorder(i0, j0, i1, j1, k0, i2, j2, k1, i3, j3)
    return sch


def unreplayable() -> Schedule:
    """A schedule whose trace names a block that a matmul does not have."""
    other = te.create_prim_func(te_workload.matmul_relu(32, 32, 32))
    sch = Schedule(IRModule({"main": other}))
    sch.get_sblock("compute")
    return sch


@pytest.mark.parametrize(
    "objective",
    [
        spread(bowl),
        sometimes(FAILURE, spread(bowl)),
        fail,
        lambda _: RunnerResult([math.nan], None),
    ],
    ids=["all well", "some fail", "all fail", "all NaN"],
)
def test_resume(case, objective):
    """A second run measures nothing that the first did, failures included: the rest of 25."""
    case.must("resume")
    case.must("spend its trials")
    database = ms.database.MemoryDatabase()
    runs = [
        drive(
            make_context(case.make(), space=tile_two, seed=seed),
            objective,
            database=database,
            max_trials=max_trials,
        )
        for seed, max_trials in ((1, 14), (2, 100), (3, 40))
    ]
    assert [len(run.trials) for run in runs] == [14, 11, 0]
    assert runs[2].ended
    assert len({module for run in runs for module in run.modules}) == 25


def test_resume_with_single_times():
    database = ms.database.MemoryDatabase()
    first = drive(make_context(make_droplet()), timed(bowl), database=database)
    second = drive(make_context(make_droplet()), timed(bowl), database=database)
    assert not set(first.modules) & set(second.modules)


def test_resume_goes_on(caplog):
    """Records in the database count as explored: the second run starts with the descent."""
    database = ms.database.MemoryDatabase()
    first = drive(make_context(make_droplet()), spread(bowl), database=database, max_trials=14)
    with follow(caplog) as followed:
        drive(make_context(make_droplet()), spread(bowl), database=database)
    phases = [progress.phase for progress, _ in followed.events("phase")]
    assert phases[0] == "descend"
    best = min((trial.decisions for trial in first.trials), key=bowl)
    assert next(followed.incumbents()) == best


def test_resume_under_other_postprocessors(case):
    """The best records are no longer in the space; the search continues with the others."""
    case.must("spend its trials")
    database = ms.database.MemoryDatabase()
    first = drive(make_context(case.make()), spread(narrow_is_fast), database=database)
    assert any(min(tile[-1] for tile in trial.decisions) < 2 for trial in first.trials)
    second = drive(
        make_context(case.make(), postprocs=[Reject(is_narrow)]),
        spread(narrow_is_fast),
        database=database,
    )
    assert second.ended
    assert len(second.trials) == 40
    assert all(min(tile[-1] for tile in trial.decisions) >= 2 for trial in second.trials)


def narrow_is_fast(decisions: Decisions) -> float:
    return 1e-3 * sum(tile[-1] for tile in decisions)


def test_resume_of_another_design_space(case):
    """Records of a sketch that this space does not have are starting points all the same."""
    database = ms.database.MemoryDatabase()
    drive(make_context(case.make(), space=tile_two), spread(bowl), database=database)
    driven = drive(make_context(case.make()), spread(rugged), database=database)
    assert driven.ended
    assert case.has_spent(len(driven.trials), 40)


def test_resume_after_an_abandoned_run(case):
    case.must("resume")
    database = ms.database.MemoryDatabase()
    first = drive(
        make_context(case.make()), spread(rugged), database=database, max_batches=4, finish=False
    )
    second = drive(make_context(case.make()), spread(rugged), database=database)
    assert not set(first.modules) & set(second.modules)
    assert case.has_spent(len(second.trials), 40)


def test_resume_a_killed_process(tmp_path):
    """The process dies while it measures; its database opens, and holds all batches before."""
    child = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("child.py")), "be-killed", str(tmp_path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert child.returncode == -signal.SIGKILL, child.stderr
    batches = json.loads(child.stdout.splitlines()[-1])
    first = {module for batch in batches for module in batch}
    database = open_database(tmp_path)
    assert len(database.get_all_tuning_records()) == len(first) > 0
    second = drive(make_context(make_droplet()), spread(bowl), database=database)
    assert not first & set(second.modules)
    assert len(database.get_all_tuning_records()) == len(first) + 40


def test_unreplayable_record(case):
    database = ms.database.MemoryDatabase()
    commit(database, unreplayable(), [1e-6])
    commit(database, scheduled([2, 4, 2, 2], [4, 2, 2, 2], [2, 16]), [1e-3])
    driven = drive(make_context(case.make()), timed(bowl), database=database)
    assert driven.ended
    assert case.has_spent(len(driven.trials), 40)


def test_unreplayable_records_are_counted_and_named_once(caplog):
    database = ms.database.MemoryDatabase()
    for _ in range(3):
        commit(database, unreplayable(), [1e-6])
    commit(database, scheduled([2, 4, 2, 2], [4, 2, 2, 2], [2, 16]), [1e-3])
    with follow(caplog) as followed:
        drive(make_context(make_droplet()), timed(bowl), database=database)
    (warning,) = followed.warnings
    assert "replay" in warning
    assert followed.says("1 modules measured", "3 of no longer replays")


@derived_object
class Witness(ms.mutator.PyMutator):
    """Resamples, and remembers the decisions of the traces that it is given."""

    def __init__(self, seen: set) -> None:
        super().__init__()
        self.seen = seen

    def _initialize_with_tune_context(self, context) -> None:
        pass

    def apply(self, trace: Trace, _) -> Trace:
        made = trace.decisions
        tiles = [made[inst] for inst in trace.insts if inst in made]
        self.seen.add(tuple(tuple(int(factor) for factor in tile) for tile in tiles))
        return Trace(trace.insts, {})

    def clone(self) -> ms.mutator.Mutator:
        return Witness(self.seen)


UNSAMPLED = [
    ([1, 1, 1, 32], [1, 1, 1, 32], [1, 32]),
    ([2, 1, 1, 16], [1, 1, 1, 32], [1, 32]),
    ([1, 1, 1, 32], [2, 1, 1, 16], [1, 32]),
]
"""Their innermost reduction factor exceeds its limit of 16, which TVM does not check on replay:
whatever has it was neither sampled nor mutated, but taken from a record."""


def descends(decisions) -> bool:
    return decisions[-1] == (1, 32)


def drive_among_foreign_records(strategy, **options):
    database = ms.database.MemoryDatabase()
    for tiles in UNSAMPLED:
        commit(database, scheduled(*tiles), [1e-9], OTHER_LLVM)
    commit(database, scheduled([2, 4, 2, 2], [4, 2, 2, 2], [2, 16]), [1e-3], LLVM)
    seen: set = set()
    context = make_context(strategy, mutators={Witness(seen): 0.5}, **options)
    # A model that likes them best of all: nothing but the filter keeps them out.
    model = FixedModel(lambda candidate: float(descends(decisions_of(candidate.sch))))
    driven = drive(context, timed(bowl), database=database, max_trials=80, cost_model=model)
    return driven, seen


def test_records_of_another_target_are_ignored(caplog):
    """Neither a start, nor a parent of evolution's, nor the best so far; and counted."""
    with follow(caplog) as followed:
        driven, seen = drive_among_foreign_records(
            make_droplet(explore_trials=24, explorer="evolutionary")
        )
    assert len(driven.trials) == 80
    assert seen
    assert not any(descends(decisions) for decisions in seen)
    assert not any(descends(trial.decisions) for trial in driven.trials)
    assert not any(descends(decisions) for decisions in followed.incumbents())
    assert followed.last.best_secs > 1e-9
    assert followed.says("1 modules measured", "3 of another target")


def test_evolution_alone_descends_from_another_target():
    """The counterpart of the test above: a strategy that does not filter."""
    driven, seen = drive_among_foreign_records(make_evolution(init_measured_ratio=0.2))
    assert any(descends(decisions) for decisions in seen)
    assert any(descends(trial.decisions) for trial in driven.trials)


def test_records_of_another_target_may_be_measured_here():
    """Such records are not measurements of this target; their candidates are new here."""
    database = ms.database.MemoryDatabase()
    there, here = (
        drive(
            make_context(make_droplet(), space=tile_two, target=target),
            spread(bowl),
            database=database,
            max_trials=100,
        )
        for target in (OTHER_LLVM, LLVM)
    )
    assert set(here.modules) == set(there.modules)
    assert len(here.trials) == 25


def test_records_of_another_workload_are_ignored(caplog):
    database = ms.database.MemoryDatabase()
    drive(make_context(make_droplet(), matmul(16, 16, 16)), spread(bowl), database=database)
    with follow(caplog) as followed:
        driven = drive(make_context(make_droplet()), spread(bowl), database=database)
    assert next(iter(followed.events("phase")))[0].phase == "explore"
    assert len(driven.trials) == 40


def test_records_of_a_list_of_times_and_of_failures(caplog):
    """Failures are known, and no start; the best record is."""
    database = ms.database.MemoryDatabase()
    known = set()
    for place, secs in enumerate([[1e10], [0.0], [math.nan], [1e-3, 2e-3]]):
        tile = [4 if position == place else 2 for position in range(4)]
        schedule = scheduled(tile, [4, 2, 2, 2], [2, 16])
        commit(database, schedule, secs)
        known.add(structural_hash(schedule.mod))
    with follow(caplog) as followed:
        driven = drive(
            make_context(make_droplet(explore_trials=4)), spread(bowl), database=database
        )
    assert next(followed.incumbents())[0] == (2, 2, 2, 4)
    assert not known & set(driven.modules)
    assert len(driven.trials) == 40
