# SPDX-License-Identifier: Apache-2.0
"""Child process of ``searches``: rebuilds the winners of a layer and times them in turns."""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm_ffi import structural_hash

import tvm
from tvm import IRModule
from tvm.s_tir import Schedule, Trace
from tvm.s_tir.meta_schedule.arg_info import ArgInfo
from tvm.s_tir.meta_schedule.builder import BuilderInput
from tvm.s_tir.meta_schedule.utils import remove_build_dir
from tvm.target import Target
from tvm_droplet_ms.design_space.matrix_tiles.tile_intrinsics import register_named
from tvm_droplet_ms.host import host_target
from tvm_droplet_ms.measure import fast_measure

from ..store import Task, serve
from .comparison import Trial, best_trial
from .layers import ALL_LAYERS, make_module


def remeasure(
    mod: IRModule, traces: Sequence[Any], rounds: int, target: Target
) -> list[dict[str, Any]]:
    """Rebuild winners from their traces, check their outputs, and time them in turns.

    Traces with the same module are timed once. Each round starts with another kernel and allocates
    new buffers, because some kernels take twice as long if their buffers happen to conflict in a
    cache. The first round does not count. ``traces``: the JSON of each winner's trace. ``rounds``:
    number of timings per kernel. ``target``: the target to build for. Returns, for each trace,
    ``error`` (None if its output matches the layer's) and ``median`` in seconds (None after an
    error). Raises ``RuntimeError`` if the unscheduled layer does not build.
    """
    modules: dict[int, IRModule] = {}
    keys = []
    for trace in traces:
        schedule = Schedule(mod)
        register_named(str(trace))
        Trace.apply_json_to_schedule(trace, schedule)
        keys.append(structural_hash(schedule.mod))
        modules[keys[-1]] = schedule.mod
    builder = fast_measure(target)["builder"]
    ((reference, error),) = _build(builder, target, [mod])
    if reference is None:
        raise RuntimeError(f"the layer does not build without a schedule: {error}")
    rng = np.random.default_rng(0)
    shapes = [tuple(map(int, info.shape)) for info in ArgInfo.from_entry_func(mod)]
    arrays = [rng.standard_normal(shape, dtype="float32") for shape in shapes]
    expected = _call(reference, arrays)
    tolerance = 1e-5 * float(np.abs(expected).max())
    timers, errors = {}, {}
    for key, (library, error) in zip(
        modules, _build(builder, target, list(modules.values())), strict=True
    ):
        if error is not None:
            errors[key] = error
        elif np.allclose(_call(library, arrays), expected, rtol=1e-3, atol=tolerance):
            timers[key] = library.time_evaluator("main", tvm.cpu(), number=1, min_repeat_ms=100)
        else:
            errors[key] = "computes something else than the layer without a schedule"
    secs = {key: float(np.median(found)) for key, found in time_in_turns(timers, arrays, rounds)}
    return [{"error": errors.get(key), "median": secs.get(key)} for key in keys]


def _call(library: Any, arrays: Sequence[np.ndarray]) -> np.ndarray:
    """Run a kernel and return its output; the last array only gives the output's shape."""
    inputs = [tvm.runtime.tensor(array) for array in arrays[:-1]]
    output = tvm.runtime.tensor(np.full_like(arrays[-1], np.nan))
    library["main"](*inputs, output)
    found: np.ndarray = output.numpy()
    return found


def time_in_turns(
    timers: dict[int, Any], arrays: Sequence[np.ndarray], rounds: int
) -> list[tuple[int, list[float]]]:
    """The seconds of each kernel in each round except the first."""
    samples: dict[int, list[float]] = {key: [] for key in timers}
    order = list(timers)
    kept = []
    for turn in range(rounds + 1):
        # Buffers of earlier rounds stay allocated, so that new buffers have other addresses.
        kept.append([tvm.runtime.tensor(array) for array in arrays])
        for key in order:
            secs = timers[key](*kept[-1]).mean
            if turn > 0:
                samples[key].append(secs)
        order = order[1:] + order[:1]
    return list(samples.items())


def _build(builder: Any, target: Target, mods: Sequence[IRModule]) -> list[tuple[Any, str | None]]:
    """Build modules for a target. Returns a library and an error for each, one of them None."""
    found: list[tuple[Any, str | None]] = []
    for result in builder.build([BuilderInput(mod, target) for mod in mods]):
        if result.error_msg is not None:
            found.append((None, str(result.error_msg)))
            continue
        found.append((tvm.runtime.load_module(result.artifact_path), None))
        remove_build_dir(result.artifact_path)
    return found


def remeasure_layer(task: Task) -> dict[str, Any]:
    """Time the winners of the runs ``settings["runs"]`` at each of ``settings["checkpoints"]``.

    Returns ``kernels``: for each run, in order, the result of ``remeasure`` for each checkpoint;
    None if all trials up to the checkpoint failed.
    """
    settings = task.settings
    winners = []
    for name in settings["runs"]:
        content = json.loads((task.out / f"{name}.json").read_text())
        trials = [Trial(**trial) for trial in content["trials"]]
        winners += [best_trial(trials, checkpoint) for checkpoint in settings["checkpoints"]]
    mod = make_module(ALL_LAYERS[settings["layer"]])
    traces = [winner.trace for winner in winners if winner is not None]
    timed = iter(remeasure(mod, traces, settings["rounds"], host_target(settings.get("mcpu"))))
    kernels = [None if winner is None else next(timed) for winner in winners]
    count = len(settings["checkpoints"])
    return {"kernels": [kernels[i : i + count] for i in range(0, len(kernels), count)]}


if __name__ == "__main__":
    serve(remeasure_layer)
