# Licensed to the Apache Software Foundation (ASF) under one
# or more contributor license agreements.  See the NOTICE file
# distributed with this work for additional information
# regarding copyright ownership.  The ASF licenses this file
# to you under the Apache License, Version 2.0 (the
# "License"); you may not use this file except in compliance
# with the License.  You may obtain a copy of the License at
#
#   http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing,
# software distributed under the License is distributed on an
# "AS IS" BASIS, WITHOUT WARRANTIES OR CONDITIONS OF ANY
# KIND, either express or implied.  See the License for the
# specific language governing permissions and limitations
# under the License.
"""TVM's own task scheduler, ended by a clock: what was measured is kept, and nothing is raised."""

import time
from tempfile import mkdtemp

import pytest
from tvm_ffi import structural_equal

import tvm
from tvm import te, topi
from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.database import MemoryDatabase
from tvm.target import Target
from tvm_droplet_ms.bench.live.ending import (
    OUT_OF_TIME,
    Deadline,
    EndingRunner,
    EndingStrategy,
    ending_build,
)
from tvm_droplet_ms.compat import fast_tune_contexts

TARGET = Target({"kind": "llvm", "num-cores": 1})


class MadeUpClock:
    """A clock that only running moves: a second for each candidate."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


@derived_object
class MadeUpBuilder(ms.builder.PyBuilder):
    """Builds nothing."""

    def build(self, build_inputs):
        return [ms.builder.BuilderResult(f"{mkdtemp()}/built", None) for _ in build_inputs]


@derived_object
class MadeUpRunner(ms.runner.PyRunner):
    """Every candidate takes a second of the clock."""

    def __init__(self, clock):
        super().__init__()
        self.clock = clock

    def run(self, runner_inputs):
        self.clock.now += len(runner_inputs)
        result = ms.runner.RunnerResult([1e-3], None)
        return [ms.runner.RunnerFuture(lambda: True, lambda: result) for _ in runner_inputs]


def dense(n):
    lhs, rhs = te.placeholder((8, 16), name="lhs"), te.placeholder((n, 16), name="rhs")
    return tvm.IRModule({"main": te.create_prim_func([lhs, rhs, topi.nn.dense(lhs, rhs)])})


@pytest.fixture
def tuned(tmp_path):
    """Tunes three kernels in batches of 4; the runner, and the times of each kernel."""

    def tune(secs, scheduler="gradient"):
        clock = MadeUpClock()
        deadline = Deadline(secs, clock)
        runner = EndingRunner(MadeUpRunner(clock), deadline)
        mods = [dense(n) for n in (8, 16, 32)]
        database = MemoryDatabase()
        with fast_tune_contexts():
            contexts = [
                ms.TuneContext(
                    mod,
                    target=TARGET,
                    space_generator="post-order-apply",
                    search_strategy=EndingStrategy(ms.search_strategy.ReplayTrace(), deadline),
                    task_name=f"dense {index}",
                    rand_state=index + 1,
                    num_threads=1,
                ).clone()
                for index, mod in enumerate(mods)
            ]
            ms.tune.tune_tasks(
                tasks=contexts,
                task_weights=[1.0] * 3,
                work_dir=str(tmp_path),
                max_trials_global=10**6,
                num_trials_per_iter=4,
                builder=MadeUpBuilder(),
                runner=runner,
                database=database,
                cost_model="none",
                task_scheduler=scheduler,
            )
        records = [
            [
                float(record.run_secs[0])
                for record in database.get_all_tuning_records()
                if structural_equal(record.workload.mod, mod)
            ]
            for mod in mods
        ]
        return runner, records

    return tune


def test_a_batch_is_cut_and_its_results_are_kept(tuned):
    runner, records = tuned(6)
    assert runner.trials == 6
    # A failure has a time of 1e10.
    assert [sum(secs < 1 for secs in task) for task in records] == [4, 2, 0]
    assert [len(task) for task in records] == [4, 4, 0]


@pytest.mark.parametrize("scheduler", ["gradient", "round-robin"])
def test_tuning_ends_in_later_rounds_too(tuned, scheduler):
    runner, records = tuned(21, scheduler)
    assert runner.trials == sum(secs < 1 for task in records for secs in task) == 21
    assert all(len(task) >= 4 for task in records)


def test_nothing_is_measured_where_the_time_is_over_at_once(tuned):
    runner, records = tuned(0)
    assert runner.trials == 0 and records == [[], [], []]


def test_a_candidate_that_is_not_run_says_why():
    clock = MadeUpClock()
    runner = EndingRunner(MadeUpRunner(clock), Deadline(1, clock))
    inputs = [ms.runner.RunnerInput("built", "llvm", []) for _ in range(3)]
    errors = [future.result().error_msg for future in runner.run(inputs)]
    assert errors == [None, OUT_OF_TIME, OUT_OF_TIME]


def test_nothing_is_built_after_the_moment():
    with pytest.raises(RuntimeError, match=OUT_OF_TIME):
        ending_build(time.monotonic())(dense(8), TARGET, None)


def test_builds_as_tvm_does_before_the_moment(monkeypatch):
    from tvm.s_tir.meta_schedule.builder import local_builder

    monkeypatch.setattr(local_builder, "default_build", lambda *built_with: built_with)
    assert ending_build(time.monotonic() + 60)("mod", "target", "params") == (
        "mod",
        "target",
        "params",
    )
