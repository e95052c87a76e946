# SPDX-License-Identifier: Apache-2.0
"""A network of three layers, tuned live for a few seconds with all parts together."""

import time

import numpy as np
import pytest
from tvm_ffi import structural_hash

import tvm
from tvm import relax
from tvm.s_tir import Schedule
from tvm.s_tir import meta_schedule as ms
from tvm.target import Target
from tvm_droplet_ms import open_database
from tvm_droplet_ms.host import host_target
from tvm_droplet_ms.measure import PromptRunner, WarmBuilder
from tvm_droplet_ms.search_strategy.published.candidates import valid_secs
from tvm_droplet_ms.tuning.budget.tuning_run import tune_tasks_by_clock
from tvm_droplet_ms.tuning.experience.strategy import model_strategy
from tvm_droplet_ms.tuning.picks.first_picks import pick_schedules
from tvm_droplet_ms.tuning.schedules.application import database_to_apply

TARGET = Target({"kind": "llvm", "mcpu": str(host_target().attrs["mcpu"]), "num-cores": 1})
SHAPES = ((4, 16), (16, 32), (32, 48), (48, 8))


def network():
    """Three dense layers, the first two with an activation."""
    builder = relax.BlockBuilder()
    names = ("image", "first", "second", "third")
    arguments = [
        relax.Var(name, relax.TensorType(shape, "float32"))
        for name, shape in zip(names, SHAPES, strict=True)
    ]
    with builder.function("main", arguments):
        with builder.dataflow():
            hidden = arguments[0]
            for weight in arguments[1:3]:
                hidden = builder.emit(relax.op.nn.relu(relax.op.matmul(hidden, weight)))
            out = builder.emit_output(relax.op.matmul(hidden, arguments[3]))
        builder.emit_func_output(out)
    with TARGET:
        return relax.get_pipeline("zero")(builder.get())


@pytest.fixture(scope="module")
def measure():
    """A builder and a runner for quick, rough measurements."""
    evaluator = ms.runner.EvaluatorConfig(number=1, repeat=1, min_repeat_ms=0)
    parts = {
        "builder": WarmBuilder(max_workers=1),
        "runner": PromptRunner(evaluator_config=evaluator),
    }
    yield parts
    for part in parts.values():
        part.close()


def tune(tasks, work_dir, max_trials, measure):
    database = open_database(work_dir)
    picks = pick_schedules(tasks, work_dir=work_dir, most=4, least=4)
    run = tune_tasks_by_clock(
        tasks,
        work_dir=str(work_dir),
        database=database,
        strategy=model_strategy(tasks, database, TARGET, picks, explore_trials=2),
        deadline=time.monotonic() + 300.0,
        max_trials=max_trials,
        num_trials_per_iter=2,
        **measure,
    )
    return run, database, database_to_apply(database, picks, TARGET)


def scheduled(mod, trace):
    """The structural hash of a workload under a trace."""
    schedule = Schedule(mod)
    trace.apply_to_schedule(schedule, remove_postproc=False)
    return structural_hash(schedule.mod)


@pytest.mark.filterwarnings("ignore:the cost model was trained on programs for")
def test_three_layers_are_tuned_and_tuned_on(tmp_path, measure):
    module = network()
    tasks = ms.relax_integration.extract_tasks(module, TARGET)
    assert len(tasks) == 3
    run, database, _ = tune(tasks, tmp_path, 6, measure)
    assert run.trials == 6 and run.why_ended == "trials"
    assert [row.effort.trials for row in run.rows] == [2, 2, 2]
    assert all(0 < row.best_secs < 1.0 for row in run.rows)
    measured = {
        scheduled(record.workload.mod, record.trace) for record in database.get_all_tuning_records()
    }
    assert len(measured) == 6
    picks = pick_schedules(tasks, work_dir=tmp_path)
    assert len(picks) == 3
    # A pick is measured first.
    assert {scheduled(pick.mod, pick.trace) for pick in picks} <= measured
    again, database, to_apply = tune(tasks, tmp_path, 2, measure)
    assert again.trials == 2
    records = database.get_all_tuning_records()
    assert len(records) == 8
    assert all(valid_secs(record.run_secs) for record in records)
    for row, before in zip(again.rows, run.rows, strict=True):
        assert row.best_secs <= before.best_secs
    with TARGET, to_apply:
        tuned = relax.transform.MetaScheduleApplyDatabase()(module)
    kernels = [f for f in tuned.functions.values() if isinstance(f, tvm.tirx.PrimFunc)]
    assert all(kernel.attrs["tirx.is_scheduled"] for kernel in kernels)

    rng = np.random.default_rng(0)
    arguments = [rng.standard_normal(shape, dtype="float32") for shape in SHAPES]
    machine = relax.VirtualMachine(tvm.compile(tuned, TARGET), tvm.cpu())
    out = machine["main"](*[tvm.runtime.tensor(argument) for argument in arguments]).numpy()
    image, first, second, third = arguments
    expected = np.maximum(np.maximum(image @ first, 0) @ second, 0) @ third
    np.testing.assert_allclose(out, expected, rtol=1e-3, atol=1e-3)
