# SPDX-License-Identifier: Apache-2.0
"""Several tasks under TVM's own schedulers, with a builder and a runner that do neither."""

from collections import Counter, defaultdict
from itertools import chain

import pytest
from tvm_ffi import structural_hash

from tvm.ir.utils import derived_object
from tvm.s_tir import Schedule
from tvm.s_tir import meta_schedule as ms

from .driving import FixedModel, MadeUpFuture
from .strategies import make_droplet
from .watching import follow
from .workloads import make_context, matmul, sample_nothing, tile_all, tile_two


@derived_object
class HashBuilder(ms.builder.PyBuilder):
    """Builds nothing: a module's artifact is its structural hash."""

    def __init__(self, fails: bool = False) -> None:
        super().__init__()
        self.fails = fails
        self.built: list[int] = []

    def build(self, build_inputs):
        results = []
        for build_input in build_inputs:
            self.built.append(structural_hash(build_input.mod))
            error = f"made-up build error {len(self.built)}" if self.fails else None
            path = None if self.fails else str(self.built[-1])
            results.append(ms.builder.BuilderResult(path, error))
        return results


@derived_object
class HashRunner(ms.runner.PyRunner):
    """Runs nothing: a time is a function of the artifact's name."""

    def run(self, runner_inputs):
        return [
            MadeUpFuture([1e-3 * (1 + int(runner_input.artifact_path) % 1013 / 1013)] * 2)
            for runner_input in runner_inputs
        ]


def tune(tasks, scheduler, tmp_path, *, max_trials, per_task=None, batch=5, fails=False):
    database = ms.database.MemoryDatabase()
    builder = HashBuilder(fails)
    ms.tune.tune_tasks(
        tasks=tasks,
        task_weights=[1.0] * len(tasks),
        work_dir=str(tmp_path),
        max_trials_global=max_trials,
        max_trials_per_task=per_task,
        num_trials_per_iter=batch,
        builder=builder,
        runner=HashRunner(),
        database=database,
        cost_model=FixedModel(),
        measure_callbacks=[
            ms.measure_callback.AddToDatabase(),
            ms.measure_callback.UpdateCostModel(),
        ],
        task_scheduler=scheduler,
    )
    measured: dict[str, list[int]] = defaultdict(list)
    names = {structural_hash(task.mod): task.task_name for task in tasks}
    for record in database.get_all_tuning_records():
        sch = Schedule(record.workload.mod)
        record.trace.apply_to_schedule(sch, remove_postproc=False)
        measured[names[structural_hash(record.workload.mod)]].append(structural_hash(sch.mod))
    assert sorted(chain.from_iterable(measured.values())) == sorted(builder.built)
    return measured


def tasks_of(case, *spaces):
    return [
        make_context(case.make(), matmul(32, 32, 32 * size), space, task_name=f"task {size}")
        for size, space in enumerate(spaces, start=1)
    ]


@pytest.fixture(params=["round-robin", "gradient"])
def scheduler(request):
    if request.param == "gradient":
        return ms.task_scheduler.GradientBased(seed=1)
    return ms.task_scheduler.RoundRobin()


def test_global_budget(case, scheduler, tmp_path):
    """The scheduler itself may exceed the budget by less than a batch."""
    tasks = tasks_of(case, tile_all, tile_all, tile_all)
    measured = tune(tasks, scheduler, tmp_path, max_trials=52)
    assert 52 <= sum(map(len, measured.values())) < 52 + 5
    assert len(measured) == 3
    if "measure once" not in case.deviations:
        for modules in measured.values():
            assert max(Counter(modules).values()) == 1


def test_budget_of_task(case, scheduler, tmp_path):
    tasks = tasks_of(case, tile_all, tile_all)
    measured = tune(tasks, scheduler, tmp_path, max_trials=1000, per_task=23)
    assert {name: len(modules) for name, modules in measured.items()} == {
        "task 1": 23,
        "task 2": 23,
    }


def test_exhausted_task_leaves_its_trials_to_others(case, scheduler, tmp_path):
    case.must("end an exhausted space")
    case.must("spend its trials")
    tasks = tasks_of(case, sample_nothing, tile_two, tile_all)
    measured = tune(tasks, scheduler, tmp_path, max_trials=100)
    assert len(measured["task 1"]) == 1
    # The reduction of the second task is 64 long: 5 * 5 splits.
    assert len(measured["task 2"]) <= 25
    assert len(measured["task 3"]) >= 74


def test_converged_task_leaves_its_trials_to_others(scheduler, tmp_path):
    tasks = [
        make_context(make_droplet(stop="auto"), matmul(16, 16, 16), task_name="task 1"),
        make_context(make_droplet(), matmul(32, 32, 64), task_name="task 2"),
    ]
    measured = tune(tasks, scheduler, tmp_path, max_trials=200)
    assert 12 < len(measured["task 1"]) < 120
    assert sum(map(len, measured.values())) >= 200


def test_all_builds_fail(case, scheduler, tmp_path):
    tasks = tasks_of(case, tile_all, tile_all)
    measured = tune(tasks, scheduler, tmp_path, max_trials=40, fails=True)
    assert 40 <= sum(map(len, measured.values())) < 45


def test_all_builds_failing_is_logged(caplog, scheduler, tmp_path):
    with follow(caplog) as followed:
        tasks = [make_context(make_droplet(), task_name="task 1")]
        tune(tasks, scheduler, tmp_path, max_trials=20, fails=True)
    assert any("20" in text and "made-up build error 1" in text for text in followed.warnings)


def test_tune_tir(case, tmp_path):
    """End to end with a database on disk: the measured schedules can be compiled."""
    database = ms.tune_tir(
        matmul(),
        make_context(case.make()).target,
        str(tmp_path),
        max_trials_global=20,
        num_trials_per_iter=6,
        builder=HashBuilder(),
        runner=HashRunner(),
        cost_model=FixedModel(),
        measure_callbacks=[ms.measure_callback.AddToDatabase()],
        space=make_context(case.make()).space_generator,
        strategy=case.make(),
        num_tuning_cores=1,
        seed=1,
    )
    assert 20 <= len(database.get_all_tuning_records()) < 26
    assert (tmp_path / "database_tuning_record.json").read_text().count("\n") >= 20
