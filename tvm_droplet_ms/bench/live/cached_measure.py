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
"""A builder and a runner that measure only modules that the cache of timings does not know."""

import os
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import psutil

from tvm import IRModule
from tvm.ir.utils import derived_object
from tvm.s_tir.meta_schedule.builder import BuilderInput, BuilderResult, PyBuilder
from tvm.s_tir.meta_schedule.measure_callback import PyMeasureCallback
from tvm.s_tir.meta_schedule.runner import PyRunner, RunnerFuture, RunnerInput, RunnerResult

from ...measure.failures import is_machinery_failure
from ...measure.runner import PromptRunnerFuture
from ...measure.task_signature import task_signature, write_task
from .modules import module_key, trace_json
from .timed_passes import Outcome, StoredFailure, TimedPass
from .timing_cache import Measurement, TimingCache


def process_name(pid: int | None = None) -> str:
    """A name of a process of this one's that no later process has.

    Parameters
    ----------
    pid : int | None
        A process that this one has started; None for this one.
    """
    return f"{pid or os.getpid()} of {psutil.Process().create_time():.2f}"


class CachedMeasure:
    """Measures the modules of one run, or replays what the cache has of them.

    What is measured is added to the cache by ``callback``, a batch at a time. A failure of the
    machinery is not added.

    ``measured`` counts the modules that were not known, and ``workload`` is the key of the layer's
    module.

    Parameters
    ----------
    cache : TimingCache
        The cache.
    mod : IRModule
        The layer without a schedule.
    layer : str
        Its name.
    seed : int
        The seed of the run.
    """

    def __init__(self, cache: TimingCache, mod: IRModule, layer: str, seed: int) -> None:
        self.measured = 0
        self.workload = module_key(mod)
        self._layer = layer
        self._cache = cache
        self._seed = seed
        self._folder = tempfile.TemporaryDirectory(prefix="tvm_droplet_ms_known_")
        self._modules: dict[str, str] = {}
        self._outcomes: dict[str, Outcome] = {}
        self._new: set[str] = set()

    def around(self, tools: Mapping[str, Any]) -> dict[str, Any]:
        """A builder and a runner around those of ``fast_measure``."""
        return {
            "builder": CachedBuilder(self, tools["builder"]),
            "runner": CachedRunner(self, tools["runner"]),
        }

    def look_up(self, modules: Sequence[str]) -> None:
        """Draw the outcomes of known modules, for the runner."""
        self._outcomes |= self._cache.draw(self._seed, modules)

    def outcome(self, module: str) -> Outcome | None:
        """What is known of a module in this batch."""
        return self._outcomes.get(module)

    def found(self, module: str, outcome: Outcome) -> None:
        """Take the outcome of a module that was not known."""
        self.measured += 1
        self._outcomes[module] = outcome
        self._new.add(module)

    def mark(self, module: str, build_input: BuilderInput) -> str:
        """A path that stands for the artefact of a module that is not built.

        TVM deletes its folder after the batch.
        """
        folder = tempfile.mkdtemp(dir=self._folder.name)
        write_task(folder, task_signature(build_input.mod, build_input.target))
        return self.keep(module, str(Path(folder, "known")))

    def keep(self, module: str, path: str) -> str:
        """Remember whose artefact a path is."""
        self._modules[path] = module
        return path

    def module_at(self, path: str) -> str:
        """The module whose artefact a path is."""
        return self._modules[path]

    def callback(self) -> Any:
        """A measure callback that adds the outcomes of each batch to the cache."""
        commit = self.commit

        @derived_object
        class AddToCache(PyMeasureCallback):
            def apply(self, scheduler, task_id, candidates, builds, results):  # type: ignore
                commit([candidate.sch for candidate in candidates])

        return AddToCache()

    def commit(self, schedules: Sequence[Any]) -> None:
        """Add the outcomes of a batch's candidates, given by their schedules, to the cache."""
        by_module = {module_key(schedule.mod): schedule for schedule in schedules}
        measurements = [
            Measurement(module, trace_json(schedule.trace), self._outcomes[module])
            for module, schedule in by_module.items()
            if module in self._new
        ]
        self._cache.add(self.workload, self._layer, measurements, self._seed)
        self._modules.clear()
        self._outcomes.clear()
        self._new.clear()


@derived_object
class CachedBuilder(PyBuilder):
    """A builder that builds only modules that the cache does not know, each of them once.

    Parameters
    ----------
    measure : CachedMeasure
        What is known.
    builder : Any
        The builder of the other modules.
    """

    def __init__(self, measure: CachedMeasure, builder: Any) -> None:
        super().__init__()
        self._measure = measure
        self._builder = builder

    def build(self, build_inputs: Sequence[BuilderInput]) -> list[BuilderResult]:
        """Build a batch; a known module's result is the path of an artefact that does not exist."""
        measure = self._measure
        modules = [module_key(build_input.mod) for build_input in build_inputs]
        measure.look_up(modules)
        unknown: dict[str, BuilderInput] = {}
        for module, build_input in zip(modules, build_inputs, strict=True):
            if measure.outcome(module) is None:
                unknown.setdefault(module, build_input)
        built = self._build(unknown)
        results = []
        for module, build_input in zip(modules, build_inputs, strict=True):
            outcome = measure.outcome(module)
            result = built.pop(module, None)
            if result is not None:
                results.append(result)
            elif isinstance(outcome, StoredFailure) and outcome.kind == "build":
                results.append(BuilderResult(None, outcome.message))
            else:
                results.append(BuilderResult(measure.mark(module, build_input), None))
        return results

    def _build(self, unknown: Mapping[str, BuilderInput]) -> dict[str, BuilderResult]:
        if not unknown:
            return {}
        built = dict(zip(unknown, self._builder.build(list(unknown.values())), strict=True))
        for module, result in built.items():
            if result.error_msg is None:
                self._measure.keep(module, str(result.artifact_path))
            elif not is_machinery_failure(str(result.error_msg)):
                self._measure.found(module, StoredFailure("build", str(result.error_msg)))
        return built


@derived_object
class CachedRunner(PyRunner):
    """A runner that replays what is known and runs the rest, in order.

    Parameters
    ----------
    measure : CachedMeasure
        What is known.
    runner : Any
        A ``PromptRunner``, which is told the times that are replayed.
    """

    def __init__(self, measure: CachedMeasure, runner: Any) -> None:
        super().__init__()
        self._measure = measure
        self._runner = runner

    def run(self, runner_inputs: Sequence[RunnerInput]) -> list[RunnerFuture]:
        """Measure or replay a batch."""
        futures = []
        for runner_input in runner_inputs:
            future: Future[RunnerResult] = Future()
            future.set_result(self._result(runner_input))
            futures.append(PromptRunnerFuture(future))
        return futures

    def _result(self, runner_input: RunnerInput) -> RunnerResult:
        module = self._measure.module_at(str(runner_input.artifact_path))
        outcome = self._measure.outcome(module)
        if outcome is None:
            return self._run(module, runner_input)
        if isinstance(outcome, StoredFailure):
            return RunnerResult(None, outcome.message)
        self._runner.learn(runner_input, outcome.secs)
        return RunnerResult(list(outcome.run_secs), None)

    def _run(self, module: str, runner_input: RunnerInput) -> RunnerResult:
        stats = self._runner.stats
        failures = Counter(stats.failures)
        (future,) = self._runner.run([runner_input])
        result = future.result()
        if result.error_msg is None:
            run_secs = tuple(float(secs) for secs in result.run_secs)
            timed = TimedPass(run_secs, process_name(stats.process), time.time())
            self._measure.found(module, timed)
        elif not is_machinery_failure(str(result.error_msg)):
            (kind,) = stats.failures - failures
            self._measure.found(module, StoredFailure(kind, str(result.error_msg)))
        return result
