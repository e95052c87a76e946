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
"""Child process of ``batches``: sample candidates, or build and run batches of them."""

import json
import statistics
import time
from pathlib import Path
from typing import Any

from tvm_ffi import structural_hash

import tvm
from tvm.ir import IRModule
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.arg_info import ArgInfo
from tvm.s_tir.meta_schedule.builder import BuilderInput, LocalBuilder
from tvm.s_tir.meta_schedule.runner import (
    EvaluatorConfig,
    LocalRunner,
    RunnerInput,
    RunnerResult,
)
from tvm.s_tir.meta_schedule.utils import remove_build_dir
from tvm.target import Target

from ...host import host_target
from ...measure import fast_measure
from .environment import environment
from .layers import ALL_LAYERS, make_module
from .store import Task, serve

START_SIZE = 2
"""Candidates of the batch that starts the workers, before those that count."""

Candidate = tuple[IRModule, list[ArgInfo]]


def sample(settings: dict[str, Any]) -> dict[str, Any]:
    """Random candidates of a layer, as TVM's ReplayTrace samples them: all distinct, postprocessed.

    Raises
    ------
    RuntimeError
        If the design space gives fewer than ``settings["candidates"]``.
    """
    count = settings["candidates"]
    context = ms.TuneContext(
        make_module(ALL_LAYERS[settings["layer"]]),
        target=host_target(),
        space_generator="post-order-apply",
        search_strategy="replay-trace",
        rand_state=settings["seed"] + 1,
        num_threads=1,
    )
    context.pre_tuning(max_trials=20 * count, num_trials_per_iter=count)
    found: dict[int, Any] = {}
    while len(found) < count:
        proposed = context.generate_measure_candidates()
        if proposed is None:
            raise RuntimeError(
                f"{settings['layer']}: {20 * count} random samples gave {len(found)} distinct "
                f"modules, expected {count}: ask for fewer --candidates"
            )
        for candidate in proposed:
            found.setdefault(structural_hash(candidate.sch.mod), candidate)
        # ReplayTrace only counts them.
        context.notify_runner_results(proposed, [RunnerResult([1.0], None)] * len(proposed))
    chosen = list(found.values())[:count]
    return {
        "modules": [tvm.ir.save_json(candidate.sch.mod) for candidate in chosen],
        "args_info": [[info.as_json() for info in candidate.args_info] for candidate in chosen],
    }


def load_candidates(path: Path) -> list[Candidate]:
    """Read the result of ``sample`` from its file."""
    saved = json.loads(path.read_text())
    return [
        (tvm.ir.load_json(module), [ArgInfo.from_json(info) for info in infos])
        for module, infos in zip(saved["modules"], saved["args_info"], strict=True)
    ]


def make_tools(method: str, same_timing: bool, target: Target) -> dict[str, Any]:
    """The builder and the runner of ``tvm``, ``ours`` or ``overlap``.

    Parameters
    ----------
    same_timing : bool
        Whether ours gets the evaluator configuration that is the default of TVM's runner.
    """
    if method == "tvm":
        return {"builder": LocalBuilder(), "runner": LocalRunner()}
    config = EvaluatorConfig() if same_timing else None
    return fast_measure(target, overlap=method == "overlap", evaluator_config=config)


def measure(settings: dict[str, Any], candidates: list[Candidate]) -> dict[str, Any]:
    """Build and run one batch of each size, the first of them only to start the workers.

    Returns
    -------
    result : dict
        ``make_secs``, the making of builder and runner; ``start``, the batch that starts the
        workers; ``batches``: for each ``size``, ``build_secs``, ``run_secs``, ``secs``
        (a candidate's mean time, None if it failed) and ``errors``; ``environment``. All times in
        seconds.
    """
    target = host_target()
    begun = time.perf_counter()
    tools = make_tools(settings["method"], settings["same_timing"], target)
    make_secs = time.perf_counter() - begun
    slices = {}
    end = START_SIZE
    for size in sorted(settings["sizes"]):
        slices[size] = candidates[end : end + size]
        end += size
    start = run_batch(tools, target, candidates[:START_SIZE])
    batches = [run_batch(tools, target, slices[size]) for size in settings["sizes"]]
    result = {"make_secs": make_secs, "start": start, "batches": batches}
    if settings["method"] != "tvm":
        stats = tools["runner"].stats
        result |= {"hopeless": stats.hopeless, "near_best": stats.near_best}
    return result | {"environment": environment()}


def run_batch(tools: dict[str, Any], target: Target, candidates: list[Candidate]) -> dict[str, Any]:
    """Build and run a batch as MetaSchedule's scheduler does, and delete the artefacts."""
    begun = time.perf_counter()
    built = tools["builder"].build([BuilderInput(mod, target) for mod, _ in candidates])
    build_secs = time.perf_counter() - begun
    errors: list[str | None] = [_text(result.error_msg) for result in built]
    good = [i for i, error in enumerate(errors) if error is None]
    inputs = [RunnerInput(built[i].artifact_path, "cpu", candidates[i][1]) for i in good]
    begun = time.perf_counter()
    results = [future.result() for future in tools["runner"].run(inputs)]
    run_secs = time.perf_counter() - begun
    secs: list[float | None] = [None] * len(candidates)
    for i, result in zip(good, results, strict=True):
        errors[i] = _text(result.error_msg)
        secs[i] = _mean_secs(result)
        # As TVM's measure callback RemoveBuildArtifact does.
        remove_build_dir(built[i].artifact_path)
    times = {"build_secs": build_secs, "run_secs": run_secs, "secs": secs}
    return {"size": len(candidates), **times, "errors": [e for e in errors if e is not None]}


def agree(settings: dict[str, Any], candidates: list[Candidate]) -> dict[str, Any]:
    """Time the same artefacts with LocalRunner and with ours in turns, after one that is not kept.

    Returns
    -------
    result : dict
        ``tvm`` and ``ours``: for each pass the candidates' mean times in seconds, None where one
        failed; ``errors``, the texts of all failures; ``environment``.
    """
    target = host_target()
    fast = make_tools("ours", settings["same_timing"], target)
    runners = {"tvm": LocalRunner(), "ours": fast["runner"]}
    batch = candidates[START_SIZE : START_SIZE + settings["sizes"][0]]
    built = fast["builder"].build([BuilderInput(mod, target) for mod, _ in batch])
    errors = [str(result.error_msg) for result in built if result.error_msg is not None]
    inputs = [
        RunnerInput(result.artifact_path, "cpu", args_info)
        for result, (_, args_info) in zip(built, batch, strict=True)
        if result.error_msg is None
    ]
    passes: dict[str, list[list[float | None]]] = {name: [] for name in runners}
    for i in range(settings["repeats"] + 1):
        for name in sorted(runners, reverse=i % 2 == 1):
            results = [future.result() for future in runners[name].run(inputs)]
            errors += [str(result.error_msg) for result in results if result.error_msg is not None]
            if i > 0:
                passes[name].append([_mean_secs(result) for result in results])
    for runner_input in inputs:
        remove_build_dir(runner_input.artifact_path)
    return {**passes, "errors": errors, "environment": environment()}


def _mean_secs(result: RunnerResult) -> float | None:
    """Mean time, the ranking key of the database."""
    return None if result.run_secs is None else statistics.fmean(map(float, result.run_secs))


def _text(error: Any) -> str | None:
    return None if error is None else str(error)


def work(task: Task) -> dict[str, Any]:
    """Run the task ``settings["task"]``: ``sample``, ``measure`` or ``agree``."""
    if task.settings["task"] == "sample":
        return sample(task.settings)
    candidates = load_candidates(task.out / f"{task.settings['layer']}-candidates.json")
    if task.settings["task"] == "agree":
        return agree(task.settings, candidates)
    return measure(task.settings, candidates)


if __name__ == "__main__":
    serve(work)
