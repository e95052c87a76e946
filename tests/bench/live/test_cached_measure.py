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
"""A builder and a runner with a cache: what is measured, what is replayed, what is kept."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tvm.s_tir import Schedule, Trace
from tvm.s_tir.meta_schedule.arg_info import ArgInfo
from tvm.s_tir.meta_schedule.builder import BuilderInput, BuilderResult
from tvm.s_tir.meta_schedule.runner import RunnerInput, RunnerResult
from tvm.s_tir.meta_schedule.utils import remove_build_dir
from tvm.target import Target
from tvm_droplet_ms.bench.live.cached_measure import CachedMeasure
from tvm_droplet_ms.bench.live.layers import Layer, make_module
from tvm_droplet_ms.bench.live.modules import module_key
from tvm_droplet_ms.bench.live.timed_passes import StoredFailure
from tvm_droplet_ms.bench.live.timing_cache import TimingCache
from tvm_droplet_ms.bench.live.timing_file import Machine
from tvm_droplet_ms.measure import RunStats
from tvm_droplet_ms.measure.failures import MACHINERY_FAILURE

MOD = make_module(Layer("", "matmul", (16, 16, 16)))
TARGET = Target("llvm")


def schedule(tile: int) -> Schedule:
    """The matmul with its first loop split."""
    made = Schedule(MOD)
    block = made.get_sblock("C")
    made.split(made.get_loops(block)[0], [None, tile])
    return made


class FakeBuilder:
    """Builds nothing; fails where it is told to."""

    def __init__(self, folder: Path) -> None:
        self.built: list[str] = []
        self.errors: dict[str, str] = {}
        self._folder = folder

    def build(self, build_inputs: Sequence[BuilderInput]) -> list[BuilderResult]:
        results = []
        for build_input in build_inputs:
            key = module_key(build_input.mod)
            self.built.append(key)
            if key in self.errors:
                results.append(BuilderResult(None, self.errors[key]))
                continue
            folder = self._folder / f"{len(self.built)}"
            folder.mkdir()
            (folder / "key").write_text(key)
            results.append(BuilderResult(str(folder / "module.so"), None))
        return results


class FakeRunner:
    """Gives each measurement another time; fails where it is told to."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.learned: list[float] = []
        self.failures: dict[str, tuple[str, str]] = {}
        self.stats = RunStats(process=41)

    def run(self, runner_inputs: Sequence[RunnerInput]) -> list[Any]:
        return [SimpleNamespace(result=lambda i=i: self._run(i)) for i in runner_inputs]

    def learn(self, runner_input: RunnerInput, secs: float) -> None:
        assert (Path(runner_input.artifact_path).parent / "task").read_text()
        self.learned.append(secs)

    def _run(self, runner_input: RunnerInput) -> RunnerResult:
        key = (Path(runner_input.artifact_path).parent / "key").read_text()
        self.ran.append(key)
        if key in self.failures:
            kind, message = self.failures[key]
            self.stats.failures[kind] += 1
            return RunnerResult([] if kind == "machinery" else None, message)
        return RunnerResult([float(len(self.ran)), len(self.ran) + 1.0], None)


class Bench:
    """Runs that share a cache, a builder and a runner."""

    def __init__(self, folder: Path) -> None:
        self.cache = TimingCache(folder / "timings.sqlite", Machine("t", "c", 1))
        self.builder = FakeBuilder(folder)
        self.runner = FakeRunner()

    def measure(self, schedules: Sequence[Schedule], seed: int = 0, commit: bool = True) -> list:
        """Measure a batch in a new run, as TVM does; the times or the error of each."""
        measure = CachedMeasure(self.cache, MOD, "dense", seed)
        tools = measure.around({"builder": self.builder, "runner": self.runner})
        builds = tools["builder"].build([BuilderInput(s.mod, TARGET) for s in schedules])
        args_info = ArgInfo.from_entry_func(MOD)
        ready = [
            RunnerInput(str(result.artifact_path), "cpu", args_info)
            for result in builds
            if result.error_msg is None
        ]
        ran = iter([future.result() for future in tools["runner"].run(ready)])
        results = [
            RunnerResult(None, result.error_msg) if result.error_msg is not None else next(ran)
            for result in builds
        ]
        if commit:
            measure.commit(schedules)
        for result in builds:
            if result.error_msg is None:
                assert os.path.isdir(os.path.dirname(result.artifact_path))
                remove_build_dir(result.artifact_path)
        return [
            [float(secs) for secs in result.run_secs]
            if result.error_msg is None
            else str(result.error_msg)
            for result in results
        ]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.cache.close()


def test_known_module_is_neither_built_nor_run(bench: Bench):
    first = bench.measure([schedule(2), schedule(4)])
    assert first == [[1.0, 2.0], [2.0, 3.0]]
    assert bench.measure([schedule(4), schedule(8), schedule(2)]) == [
        first[1],
        [3.0, 4.0],
        first[0],
    ]
    assert len(bench.builder.built) == len(bench.runner.ran) == 3
    assert bench.measure([schedule(2)], seed=5) == [first[0]]
    assert len(bench.builder.built) == 3


def test_replayed_times_are_told_to_the_runner(bench: Bench):
    bench.measure([schedule(2)])
    bench.measure([schedule(2), schedule(4)])
    assert bench.runner.learned == [1.5]


def test_equal_modules_of_a_batch_are_measured_once(bench: Bench):
    assert bench.measure([schedule(2), schedule(2)]) == [[1.0, 2.0], [1.0, 2.0]]
    bench.builder.errors[module_key(schedule(4).mod)] = "no"
    assert bench.measure([schedule(4), schedule(4)]) == ["no", "no"]
    assert len(bench.builder.built) == 2


def test_pass_is_kept_with_its_process_its_time_and_the_trace(bench: Bench):
    made = schedule(2)
    bench.measure([made])
    ((key, (timed,)),) = bench.cache.passes(module_key(MOD)).items()
    assert key == module_key(made.mod)
    assert timed.run_secs == (1.0, 2.0) and timed.source == "search"
    assert timed.process.startswith("41 of ") and timed.taken > 1.7e9
    again = Schedule(MOD)
    Trace.apply_json_to_schedule(bench.cache.traces([key])[key], again)
    assert module_key(again.mod) == key


def test_failures_are_kept_by_kind_and_replayed(bench: Bench):
    unbuilt, late = module_key(schedule(2).mod), module_key(schedule(4).mod)
    bench.builder.errors[unbuilt] = "does not compile"
    bench.runner.failures[late] = ("timeout", "took too long")
    expected = ["does not compile", "took too long", [2.0, 3.0]]
    batch = [schedule(2), schedule(4), schedule(8)]
    assert bench.measure(batch) == expected
    assert bench.measure(batch, seed=1) == expected
    assert len(bench.builder.built) == 3 and len(bench.runner.ran) == 2
    assert bench.cache.draw(0, [unbuilt, late]) == {
        unbuilt: StoredFailure("build", "does not compile"),
        late: StoredFailure("timeout", "took too long"),
    }


def test_failure_of_the_machinery_is_tried_again(bench: Bench):
    unbuilt, unrun = module_key(schedule(2).mod), module_key(schedule(4).mod)
    bench.builder.errors[unbuilt] = f"{MACHINERY_FAILURE}the disk is full"
    bench.runner.failures[unrun] = ("machinery", f"{MACHINERY_FAILURE}no process")
    failed = bench.measure([schedule(2), schedule(4)])
    assert all(MACHINERY_FAILURE in message for message in failed)
    bench.builder.errors.clear()
    bench.runner.failures.clear()
    assert bench.measure([schedule(2), schedule(4)]) == [[2.0, 3.0], [3.0, 4.0]]


def test_batch_that_was_not_committed_is_measured_again(bench: Bench):
    bench.measure([schedule(2)], commit=False)
    bench.measure([schedule(2)])
    assert len(bench.builder.built) == 2
