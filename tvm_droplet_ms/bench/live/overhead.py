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
"""Overhead of DropletStrategy's code, and its growth with the number of tasks.

    python -m tvm_droplet_ms.bench.live.overhead      # 40 seconds

Tunes 1, 2, 4 and 8 matrix multiplications at once with a builder and a runner that do nothing, so
that only proposing takes time, and prints the milliseconds of each part for each measured trial:
replay with postprocessors, the surrogate model, and the rest of the strategy ("own").
"""

import argparse
import tempfile
from typing import Any

from tvm.ir import IRModule
from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.builder import BuilderResult, PyBuilder
from tvm.s_tir.meta_schedule.runner import PyRunner, PyRunnerFuture, RunnerResult
from tvm.s_tir.meta_schedule.testing.te_workload import matmul
from tvm.te import create_prim_func

from ... import DropletStrategy
from ...host import host_target
from ...progress import quiet_tvm


@derived_object
class NoBuilder(PyBuilder):  # type: ignore[misc]
    """A builder that names an artefact for each input and builds none."""

    def build(self, build_inputs: Any) -> list[BuilderResult]:
        """Build nothing."""
        return [BuilderResult(f"artefact-{number}", None) for number in range(len(build_inputs))]


@derived_object
class FixedFuture(PyRunnerFuture):  # type: ignore[misc]
    """A future that is done at once, with a given time."""

    def __init__(self, secs: float) -> None:
        super().__init__()
        self.secs = secs

    def done(self) -> bool:
        """Always."""
        return True

    def result(self) -> RunnerResult:
        """The given time."""
        return RunnerResult([self.secs], None)


@derived_object
class FixedRunner(PyRunner):  # type: ignore[misc]
    """A runner that gives each candidate another time."""

    def __init__(self) -> None:
        super().__init__()
        self.runs = 0

    def run(self, runner_inputs: Any) -> list[PyRunnerFuture]:
        """Give each candidate a time."""
        futures = []
        for _ in runner_inputs:
            self.runs += 1
            futures.append(FixedFuture(1e-3 * (1.0 + (self.runs * 0.6180339887) % 1.0)))
        return futures


def seconds_by_part(num_tasks: int, trials_per_task: int) -> tuple[dict[str, float], int]:
    """Tune, and return the seconds of each part and the number of trials measured."""
    mod = IRModule(
        {
            f"matmul_{number}": create_prim_func(matmul(64 * (number + 1), 128, 128))
            for number in range(num_tasks)
        }
    )
    runner = FixedRunner()
    with tempfile.TemporaryDirectory() as work_dir, ms.Profiler() as profiler, quiet_tvm():
        ms.tune_tir(
            mod,
            host_target(),
            work_dir,
            max_trials_global=num_tasks * trials_per_task,
            max_trials_per_task=trials_per_task,
            num_trials_per_iter=32,
            builder=NoBuilder(),
            runner=runner,
            database="memory",
            cost_model="random",
            task_scheduler="round-robin",
            measure_callbacks=[ms.measure_callback.AddToDatabase()],
            strategy=DropletStrategy(),
            seed=0,
        )
    scopes = {str(name): float(secs.value) for name, secs in profiler.get().items()}
    parts = {
        "replay": scopes["Droplet/Replay"],
        "model": scopes["Droplet/Model"],
    }
    parts["own"] = scopes["Droplet/Generate"] + scopes["Droplet/Notify"] - sum(parts.values())
    return parts, runner.runs


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--trials-per-task", type=int, default=96)
    arguments = parser.parse_args()
    print("milliseconds for each measured trial")
    print(f"{'tasks':>5} {'trials':>6} {'replay':>8} {'model':>8} {'own':>8}")
    for num_tasks in arguments.tasks:
        parts, trials = seconds_by_part(num_tasks, arguments.trials_per_task)
        per_trial = [1e3 * secs / trials for secs in parts.values()]
        print(f"{num_tasks:>5} {trials:>6} " + " ".join(f"{ms_:>8.2f}" for ms_ in per_trial))


if __name__ == "__main__":
    main()
