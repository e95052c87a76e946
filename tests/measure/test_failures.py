# SPDX-License-Identifier: Apache-2.0
"""Machinery failures as values, and their effect on TVM's scheduler and database."""

import json
import os
from pathlib import Path
from typing import get_args

import pytest

from tvm import te
from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.arg_info import TensorInfo
from tvm.s_tir.meta_schedule.builder import PyBuilder
from tvm.s_tir.meta_schedule.runner import EvaluatorConfig, LocalRunner, RunnerInput
from tvm.s_tir.meta_schedule.testing import te_workload
from tvm.target import Target
from tvm_droplet_ms.measure import (
    Failure,
    PromptRunner,
    WarmBuilder,
    fast_start,
    is_machinery_failure,
    is_unmeasured,
)
from tvm_droplet_ms.measure.failures import FailureKind, failure_at, failure_path

HOST = Target({"kind": "llvm", "num-cores": 1})


@pytest.mark.parametrize("kind", get_args(FailureKind))
def test_machinery_failure_is_recognized_by_prefix(kind):
    failure, is_machinery = Failure(kind, "why"), kind in ("machinery", "closed")
    assert str(failure) == ("machinery failure: why" if is_machinery else "why")
    assert failure.is_machinery is is_machinery_failure(str(failure)) is is_machinery
    assert not is_machinery_failure(None)


@pytest.mark.parametrize("run_secs, expected", [(None, False), ([], True), ([1e10], False)])
def test_only_empty_times_are_unmeasured(run_secs, expected):
    assert is_unmeasured(run_secs) is expected


@pytest.mark.parametrize("message", ["plain", "a/b\nc: 100% \u00fc", "/", "%2F"])
def test_failure_goes_through_path(tmp_path, message):
    path = failure_path(str(tmp_path), Failure("machinery", message))
    assert os.path.dirname(path) == str(tmp_path)
    assert failure_at(path) == Failure("machinery", message)


def test_artifact_path_is_not_a_failure(tmp_path):
    assert failure_at(str(tmp_path / "machinery failure" / "module.so")) is None


def test_another_runner_quotes_the_failure(tmp_path):
    path = failure_path(str(tmp_path), Failure("machinery", "No space left on device"))
    (future,) = LocalRunner().run([RunnerInput(path, "cpu", [TensorInfo("float32", (16,))])])
    assert is_machinery_failure(future.result().error_msg)


@derived_object
class HalfABuilder(PyBuilder):
    """Every other candidate meets a full disk; one raises."""

    def __init__(self, builder, folder):
        super().__init__()
        self.builder = builder
        self.folder = folder
        self.count = 0

    def build(self, build_inputs):
        results = list(self.builder.build(build_inputs))
        for i in range(0, len(results), 2):
            folder = Path(self.folder, str(self.count))
            folder.mkdir()
            self.count += 1
            failure = Failure("machinery", "No space left on device")
            results[i] = ms.builder.BuilderResult(failure_path(str(folder), failure), None)
        results[1] = ms.builder.BuilderResult(None, "ValueError: no such schedule")
        return results


@pytest.mark.parametrize("scheduler", ["gradient", "round-robin"])
def test_tvm_database_distinguishes_unmeasured_from_failed_candidates(tmp_path, scheduler):
    fast_start()
    work_dir, folder = str(tmp_path / "work"), tmp_path / "failed"
    folder.mkdir()
    func = te.create_prim_func(te_workload.matmul(16, 16, 16))
    builder = WarmBuilder(max_workers=1)
    runner = PromptRunner(evaluator_config=EvaluatorConfig(number=1, repeat=1, min_repeat_ms=1))
    try:
        ms.tune_tir(
            func,
            HOST,
            work_dir,
            8,
            num_trials_per_iter=8,
            strategy="replay-trace",
            builder=HalfABuilder(builder, folder),
            runner=runner,
            cost_model="random",
            task_scheduler=scheduler,
            seed=1,
        )
    finally:
        runner.close()
        builder.close()

    assert not list(folder.iterdir()), "TVM deletes the folders"
    lines = Path(work_dir, "database_tuning_record.json").read_text().splitlines()
    stored = [json.loads(line)[1][1] for line in lines]
    assert stored.count([]) == 4 and stored.count([1e10]) == 1
    database = ms.database.JSONDatabase(work_dir=work_dir)
    records = database.get_all_tuning_records()
    assert sorted(is_unmeasured(record.run_secs) for record in records) == [False] * 4 + [True] * 4
    workload = database.commit_workload(ms.tir_integration._normalize_mod(func))
    best = database.get_top_k(workload, 99)
    assert len(best) == 3 and not any(is_unmeasured(record.run_secs) for record in best)
    assert ms.tir_integration.compile_tir(database, func, HOST) is not None
