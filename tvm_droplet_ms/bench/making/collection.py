# SPDX-License-Identifier: Apache-2.0
"""Builds and measures the modules of a design space, in a directory that can be resumed."""

import json
import math
import os
import random
import shutil
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from tvm_ffi import structural_hash

import tvm
from tvm.ir import IRModule
from tvm.runtime import Device
from tvm.s_tir.meta_schedule.arg_info import ArgInfo
from tvm.s_tir.meta_schedule.builder import BuilderInput
from tvm.target import Target

from ...cost_model.training_data import target_text
from ...host import host_target
from ...measure import (
    TIME_LIMIT,
    Failure,
    TaskFailed,
    WarmBuilder,
    WorkerPool,
    export_shared_library,
    is_machinery_failure,
    prepare_to_time,
)
from ...session.target import runs_on
from ..space import MeasuredModule
from ..work_directory import CollectionError, claim, read_lines

REPEAT_SECS = 0.01
"""Minimum duration of one timing, in seconds."""

Shape = tuple[tuple[int, ...], str]
"""The shape and the dtype of an argument."""

BUILD_BATCH = 64
"""Number of modules built between two progress reports."""

Progress = Callable[[str, int, int], None]
"""Called with the current step, the number of items done, and their total."""


class Collection:
    """The measurements of a design space's modules, in a directory.

    ``log.jsonl`` has a line for each built module and for each measured time. Lines are only
    appended: a stopped run loses only its current measurement. ``artifacts`` has the built modules.

    ``mod``: the unscheduled module. ``timeout_sec``: the time limit of one build and of one
    measurement, in seconds. ``seed``: seed of the inputs and of the order of each pass. Raises
    ``CollectionError`` if the directory holds other files, or measurements of another workload or
    target.
    """

    def __init__(
        self,
        directory: Path,
        mod: IRModule,
        target: Target,
        *,
        timeout_sec: float = 30.0,
        seed: int = 0,
    ) -> None:
        self._mod = mod
        self._target = target
        self._device = runs_on(target)
        self._timeout_sec = timeout_sec
        self._seed = seed
        self._artifacts = directory / "artifacts"
        claim(
            directory, {"workload": f"{structural_hash(mod):016x}", "target": target_text(target)}
        )
        self._artifacts.mkdir(exist_ok=True)
        self._reference = self._artifacts / "reference.so"
        self._log = directory / "log.jsonl"
        self.builds: dict[int, dict[str, Any]] = {}
        self.times: dict[int, dict[int, float]] = defaultdict(dict)
        self.run_secs: dict[int, list[float]] = defaultdict(list)
        self.failures: dict[int, str] = {}
        for entry in read_lines(self._log):
            self._take(entry)

    def build(self, modules: Mapping[int, Callable[[], IRModule]], progress: Progress) -> None:
        """Build the modules that are not built yet."""
        missing = [name for name in modules if name not in self.builds]
        if not missing and self._reference.exists():
            return
        builder = WarmBuilder(
            timeout_sec=self._timeout_sec, f_export=export_shared_library, target=self._target
        )
        try:
            if not self._reference.exists():
                self._build_reference(builder)
            for start in range(0, len(missing), BUILD_BATCH):
                batch = missing[start : start + BUILD_BATCH]
                self._build_batch(builder, batch, modules)
                progress("building", start + len(batch), len(missing))
        finally:
            builder.close()

    def measure(self, modules: Sequence[int], passes: Sequence[int], progress: Progress) -> None:
        """Time every module once in each pass, in an order that differs from pass to pass.

        ``modules``: their structural hashes. Known times are kept.
        """
        pool = WorkerPool(1, prepare=prepare_to_time, quiet=True)
        try:
            for number in passes:
                missing = [
                    name
                    for name in modules
                    if name not in self.failures and number not in self.times[name]
                ]
                random.Random(f"{self._seed} {number}").shuffle(missing)
                for done, name in enumerate(missing, 1):
                    self._time(pool, name, number)
                    progress(f"pass {number + 1}", done, len(missing))
        finally:
            pool.close()

    def measured(self, name: int) -> MeasuredModule:
        """The measurements of a module, by structural hash."""
        failure = self.failures.get(name)
        secs = () if failure else tuple(secs for _, secs in sorted(self.times[name].items()))
        run_secs = median(self.run_secs[name]) if self.run_secs[name] else 0.0
        return MeasuredModule(name, secs, self.builds[name]["build_secs"], run_secs, failure)

    def _path(self, name: int) -> Path:
        return self._artifacts / f"{name:016x}.so"

    def _arguments(self) -> list[Shape]:
        args_info = ArgInfo.from_entry_func(self._mod, remove_preproc=True)
        return [(tuple(int(n) for n in info.shape), str(info.dtype)) for info in args_info]

    def _build_reference(self, builder: WarmBuilder) -> None:
        # The unscheduled workload binds no GPU threads, so it runs on the CPU.
        target = self._target if self._device == "cpu" else host_target()
        (result,) = builder.build([BuilderInput(self._mod, target)])
        if result.artifact_path is None:
            raise CollectionError(f"the unscheduled workload cannot be built: {result.error_msg}")
        _move(str(result.artifact_path), self._reference)

    def _build_batch(
        self,
        builder: WarmBuilder,
        batch: Sequence[int],
        modules: Mapping[int, Callable[[], IRModule]],
    ) -> None:
        inputs = [BuilderInput(modules[name](), self._target) for name in batch]
        before = builder.stats.build_secs + builder.stats.export_secs
        results = builder.build(inputs)
        spent = builder.stats.build_secs + builder.stats.export_secs - before
        built = sum(result.artifact_path is not None for result in results)
        for name, result in zip(batch, results, strict=True):
            secs = spent / max(built, 1)
            entry: dict[str, Any] = {"module": name, "build_secs": secs, "failure": None}
            if result.artifact_path is None:
                message = str(result.error_msg)
                if is_machinery_failure(message):
                    raise _machine_failed(message)
                timed_out = TIME_LIMIT in message
                entry["failure"] = "timeout" if timed_out else "compile"
                entry["message"] = message[:500]
                entry["build_secs"] = self._timeout_sec if timed_out else 0.0
            else:
                _move(str(result.artifact_path), self._path(name))
            self._add(entry)

    def _time(self, pool: WorkerPool, name: int, number: int) -> None:
        start = time.perf_counter()
        future = pool.submit(
            self._timeout_sec,
            time_module,
            str(self._path(name)),
            str(self._reference),
            self._arguments(),
            self._seed,
            self._device,
        )
        entry: dict[str, Any] = {"module": name, "pass": number, "at": round(time.time())}
        try:
            timed: Timed = future.result()
        except TaskFailed as error:
            if Failure(error.kind, str(error)).is_machinery:
                raise _machine_failed(str(error)) from error
            entry["failure"] = "timeout" if error.kind == "timeout" else "runtime"
            entry["message"] = str(error)[:500]
        else:
            entry |= {"secs": timed.secs} if timed.is_right else {"failure": "wrong result"}
        entry["run_secs"] = time.perf_counter() - start
        self._add(entry)

    def _add(self, entry: dict[str, Any]) -> None:
        with self._log.open("a") as log:
            log.write(json.dumps(entry) + "\n")
        self._take(entry)

    def _take(self, entry: Mapping[str, Any]) -> None:
        name = entry["module"]
        if entry.get("failure"):
            self.failures[name] = entry["failure"]
        if "pass" not in entry:
            self.builds[name] = dict(entry)
            return
        self.run_secs[name].append(entry["run_secs"])
        if "secs" in entry:
            self.times[name][entry["pass"]] = entry["secs"]


def _machine_failed(message: str) -> CollectionError:
    """The error for a machine failure, which must not be recorded as the module's failure."""
    return CollectionError(
        f"the machine failed, and not a module: {message}; mend it, and the same command goes on"
    )


def _move(artifact: str, path: Path) -> None:
    """Move an artifact out of its temporary build folder, and delete the folder."""
    shutil.move(artifact, path)
    shutil.rmtree(os.path.dirname(artifact))


@dataclass(frozen=True)
class Timed:
    """One timing of a module.

    ``secs``: the time of one call in seconds. ``is_right``: True if the output matches the
    unscheduled module's.
    """

    secs: float
    is_right: bool


def time_module(
    path: str, reference: str, arguments: Sequence[Shape], seed: int, device: str = "cpu"
) -> Timed:
    """Load a module, check its output, and time it on newly allocated arguments.

    ``reference``: the library of the unscheduled module, for the CPU. ``device``: TVM's name of the
    device type to run on. The check also serves as the warm-up call. A call of at least
    ``REPEAT_SECS`` is timed alone; a shorter call is repeated for that long.
    """
    module = tvm.runtime.load_module(path)
    inputs, expected = _problem(reference, tuple(arguments), seed)
    place = tvm.runtime.device(device, 0)
    shape, dtype = arguments[-1]
    tensors = [tvm.runtime.tensor(array, place) for array in inputs]
    output = tvm.runtime.empty(shape, dtype, place)
    tensors.append(output)
    module[module.entry_name](*tensors)
    is_right = np.allclose(output.numpy(), expected, rtol=1e-3, atol=1e-3)
    secs = _call_secs(module, place, tensors, 1)
    if secs < REPEAT_SECS:
        secs = _call_secs(module, place, tensors, math.ceil(REPEAT_SECS / max(secs, 1e-9)))
    return Timed(secs, bool(is_right))


@cache
def _problem(
    reference: str, arguments: tuple[Shape, ...], seed: int
) -> tuple[list[np.ndarray], np.ndarray]:
    """Random inputs, and the output of the unscheduled module for them."""
    rng = np.random.default_rng(seed)
    inputs = [rng.uniform(-1, 1, shape).astype(dtype) for shape, dtype in arguments[:-1]]
    shape, dtype = arguments[-1]
    output = tvm.runtime.empty(shape, dtype)
    module = tvm.runtime.load_module(reference)
    module[module.entry_name](*(tvm.runtime.tensor(array) for array in inputs), output)
    return inputs, output.numpy()


def _call_secs(module: Any, place: Device, tensors: Sequence[Any], number: int) -> float:
    evaluator = module.time_evaluator(module.entry_name, place, number=number, repeat=1)
    return float(evaluator(*tensors).mean)
