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
"""Child process of ``compare``: rebuild the winners of a layer and time them in turns."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import tvm
from tvm import IRModule
from tvm.s_tir import Schedule, Trace
from tvm.s_tir.meta_schedule.arg_info import ArgInfo
from tvm.s_tir.meta_schedule.builder import BuilderInput
from tvm.s_tir.meta_schedule.utils import remove_build_dir

from ...host import host_target
from ...measure import fast_measure
from .layers import ALL_LAYERS, make_module
from .modules import module_key
from .store import Task, serve
from .trials import Trial, best_trial


def remeasure(mod: IRModule, traces: Sequence[Any], rounds: int) -> list[dict[str, Any]]:
    """Rebuild winners from their traces, check their outputs, and time them in turns.

    Traces that give the same module are timed as one. Each round begins with another kernel and
    has newly allocated buffers: some kernels take twice as long where their buffers happen to
    conflict in a cache. A first round does not count.

    Parameters
    ----------
    mod : IRModule
        The layer.
    traces : Sequence[Any]
        The JSON of each winner's trace.
    rounds : int
        Number of timings per kernel.

    Returns
    -------
    kernels : list[dict[str, Any]]
        For each trace ``error`` (None if its output is that of the layer), and in seconds
        ``median`` and ``quartiles`` (the first and the third), None after an error.

    Raises
    ------
    RuntimeError
        If the unscheduled layer does not build.
    """
    rebuilt = rebuild(mod, traces)
    timers = {
        key: library.time_evaluator("main", tvm.cpu(), number=1, min_repeat_ms=100)
        for key, library in rebuilt.libraries.items()
    }
    samples = _time_in_turns(timers, rebuilt.arrays, rounds)
    return [_kernel(rebuilt.errors.get(key), samples.get(key)) for key in rebuilt.modules]


@dataclass(frozen=True)
class Rebuilt:
    """Kernels that were made again from their traces.

    Parameters
    ----------
    modules : list[str]
        The key of each trace's module.
    libraries : dict[str, Any]
        The libraries of the modules that compute what the layer does.
    errors : dict[str, str]
        Why the other modules have none.
    arrays : list[np.ndarray]
        Arguments of the layer.
    """

    modules: list[str]
    libraries: dict[str, Any]
    errors: dict[str, str]
    arrays: list[np.ndarray]


def rebuild(mod: IRModule, traces: Sequence[Any]) -> Rebuilt:
    """Rebuild kernels from their traces, each module once, and check their outputs.

    Parameters
    ----------
    mod : IRModule
        The layer.
    traces : Sequence[Any]
        The JSON of each kernel's trace.

    Raises
    ------
    RuntimeError
        If the unscheduled layer does not build.
    """
    modules: dict[str, IRModule] = {}
    keys = []
    for trace in traces:
        schedule = Schedule(mod)
        Trace.apply_json_to_schedule(trace, schedule)
        keys.append(module_key(schedule.mod))
        modules[keys[-1]] = schedule.mod
    builder = fast_measure(host_target())["builder"]
    (reference,), (error,) = _build(builder, [mod])
    if reference is None:
        raise RuntimeError(f"the layer does not build without a schedule: {error}")
    libraries, errors = _build(builder, list(modules.values()))

    rng = np.random.default_rng(0)
    shapes = [tuple(map(int, info.shape)) for info in ArgInfo.from_entry_func(mod)]
    arrays = [rng.standard_normal(shape, dtype="float32") for shape in shapes]
    expected = _call(reference, arrays)
    tolerance = 1e-5 * float(np.abs(expected).max())
    rebuilt = Rebuilt(keys, {}, {}, arrays)
    for key, library, message in zip(modules, libraries, errors, strict=True):
        if message is not None:
            rebuilt.errors[key] = message
        elif np.allclose(_call(library, arrays), expected, rtol=1e-3, atol=tolerance):
            rebuilt.libraries[key] = library
        else:
            rebuilt.errors[key] = "computes something else than the layer without a schedule"
    return rebuilt


def _call(library: Any, arrays: Sequence[np.ndarray]) -> np.ndarray:
    """The output of a kernel; the last array gives only its shape."""
    inputs = [tvm.runtime.tensor(array) for array in arrays[:-1]]
    output = tvm.runtime.tensor(np.full_like(arrays[-1], np.nan))
    library["main"](*inputs, output)
    found: np.ndarray = output.numpy()
    return found


def _time_in_turns(
    timers: dict[str, Any], arrays: Sequence[np.ndarray], rounds: int
) -> dict[str, list[float]]:
    samples: dict[str, list[float]] = {key: [] for key in timers}
    order = list(timers)
    kept = []
    for turn in range(rounds + 1):
        # Buffers of earlier rounds stay allocated, so that this round's lie elsewhere.
        kept.append([tvm.runtime.tensor(array) for array in arrays])
        for key in order:
            secs = timers[key](*kept[-1]).mean
            if turn > 0:
                samples[key].append(secs)
        order = order[1:] + order[:1]
    return samples


def _kernel(error: str | None, samples: Sequence[float] | None) -> dict[str, Any]:
    if error is not None or not samples:
        return {"error": error or "was not timed", "median": None, "quartiles": None}
    low, median, high = np.percentile(samples, [25, 50, 75]).tolist()
    return {"error": None, "median": median, "quartiles": [low, high]}


def _build(builder: Any, mods: Sequence[IRModule]) -> tuple[list[Any], list[str | None]]:
    """Build modules for the host: the libraries and the errors, None in one or the other."""
    target = host_target()
    libraries: list[Any] = []
    errors: list[str | None] = []
    for result in builder.build([BuilderInput(mod, target) for mod in mods]):
        errors.append(None if result.error_msg is None else str(result.error_msg))
        libraries.append(None if errors[-1] else tvm.runtime.load_module(result.artifact_path))
        if errors[-1] is None:
            remove_build_dir(result.artifact_path)
    return libraries, errors


def remeasure_layer(task: Task) -> dict[str, Any]:
    """Time the winners of the runs ``settings["runs"]`` at each of ``settings["checkpoints"]``.

    Returns
    -------
    result : dict[str, Any]
        ``kernels``: for each run, in order, the kernel of each checkpoint as ``remeasure`` gives
        it; None where all trials had failed until then.
    """
    settings = task.settings
    winners = []
    for name in settings["runs"]:
        content = json.loads((task.out / f"{name}.json").read_text())
        trials = [Trial.from_json(trial) for trial in content["trials"]]
        winners += [best_trial(trials, checkpoint) for checkpoint in settings["checkpoints"]]
    mod = make_module(ALL_LAYERS[settings["layer"]])
    traces = [winner.trace for winner in winners if winner is not None]
    timed = iter(remeasure(mod, traces, settings["rounds"]))
    kernels = [None if winner is None else next(timed) for winner in winners]
    count = len(settings["checkpoints"])
    return {"kernels": [kernels[i : i + count] for i in range(0, len(kernels), count)]}


if __name__ == "__main__":
    serve(remeasure_layer)
