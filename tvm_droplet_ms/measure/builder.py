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
"""A builder whose workers stay up."""

import os
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

import psutil

from tvm.ir import IRModule
from tvm.ir.utils import derived_object
from tvm.runtime import Module, Tensor, load_param_dict, save_param_dict
from tvm.s_tir.meta_schedule.builder import BuilderInput, BuilderResult, PyBuilder
from tvm.s_tir.meta_schedule.utils import get_global_func_with_default_on_worker
from tvm.target import Target

from .build import build_scheduled, export_tar, prepare_to_build
from .link import TaskFailed
from .pool import WorkerPool, available_cpus, check_functions
from .task import task_signature, write_task

BuildFunction = Callable[[IRModule, Target, "dict[str, Tensor] | None"], Module]
ExportFunction = Callable[[Module], str]


@dataclass
class BuildStats:
    """What a builder did.

    Parameters
    ----------
    builds : int
        The candidates that it was given.
    failures : Counter[str]
        Those that failed, by kind: "error", "timeout" and "crash".
    build_secs, export_secs : float
        The seconds that the workers spent building and exporting what did not fail.
    wall_secs : float
        The seconds for which TVM waited for builds.
    """

    builds: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    build_secs: float = 0.0
    export_secs: float = 0.0
    wall_secs: float = 0.0


@dataclass(frozen=True)
class _Built:
    path: str
    build_secs: float
    export_secs: float


@derived_object
class WarmBuilder(PyBuilder):
    """A builder whose workers are started once and stay up.

    TVM's ``LocalBuilder`` starts new processes for every batch, and each of them imports TVM and
    the tensor intrinsics of every backend before its first build. Here a program of its own imports
    TVM once, without those, and forks the workers. A build that raises, hangs, crashes or takes
    too much memory costs that candidate a worded failure, and its worker is replaced.

    Every candidate has a private folder, which is the temporary directory of its build; TVM deletes
    the folder once the candidate is measured. A folder whose build fails is deleted at once, and
    all of them when the builder ends: with ``close``, with the object, at the interpreter's exit,
    and when the process is killed.

    Parameters
    ----------
    max_workers : int | None
        The number of worker processes. Defaults to the number of CPUs that they may use.
    timeout_sec : float
        The seconds that one build may take, from when a worker begins it.
    f_build : str | Callable[[IRModule, Target, dict[str, Tensor] | None], Module] | None
        The build function or the name of a global one. Defaults to what TVM's ``default_build``
        does, without its import of all tensor intrinsics.
    f_export : str | Callable[[Module], str] | None
        The export function or the name of a global one; returns the path of the artefact. Defaults
        to a tar of object files, as TVM's does, which both local and RPC runners load.
    initializer : Callable[[], None] | None
        What every worker calls before its first build: registers global functions, for one.
    max_builds : int
        After how many builds a worker is replaced; 0 for never.
    max_growth_mb : int
        By how many MiB a worker may grow before it is replaced.
    memory_limit_mb : int | None
        The address space that a worker may use, in MiB. Defaults to the machine's memory divided by
        the workers, and at least 4096.
    cpus : frozenset[int] | None
        The CPUs that builds may run on; None for all.
    overlap : bool
        Return before the builds are done, for a ``PromptRunner`` that was given this builder and
        waits for each as it needs it. A failed build then counts as a failed run.

    Raises
    ------
    TypeError
        If a function cannot be pickled for the workers.
    ValueError
        If a number is out of range.
    TaskFailed
        If the initializer raises or a function's name is not registered in the workers.
    """

    def __init__(
        self,
        *,
        max_workers: int | None = None,
        timeout_sec: float = 30.0,
        f_build: "str | BuildFunction | None" = None,
        f_export: "str | ExportFunction | None" = None,
        initializer: Callable[[], None] | None = None,
        max_builds: int = 256,
        max_growth_mb: int = 512,
        memory_limit_mb: int | None = None,
        cpus: frozenset[int] | None = None,
        overlap: bool = False,
    ) -> None:
        super().__init__()
        if timeout_sec <= 0:
            raise ValueError(f"timeout_sec = {timeout_sec}, expected a positive number of seconds")
        self.max_workers = len(cpus or available_cpus()) if max_workers is None else max_workers
        self.timeout_sec = timeout_sec
        self.f_build = f_build
        self.f_export = f_export
        self.overlap = overlap
        self.stats = BuildStats()
        self._promises: dict[str, Future[_Built]] = {}
        if memory_limit_mb is None:
            memory = psutil.virtual_memory().total >> 20
            memory_limit_mb = max(4096, memory // max(1, self.max_workers))
        self._pool = WorkerPool(
            self.max_workers,
            initializer=initializer,
            max_tasks=max_builds,
            max_growth=max_growth_mb << 20,
            memory_limit=memory_limit_mb << 20,
            cpus=cpus,
            prepare=prepare_to_build,
        )
        check_functions(self._pool, timeout_sec, initializer, [f_build, f_export])

    def build(self, build_inputs: Sequence[BuilderInput]) -> list[BuilderResult]:
        """Build a batch.

        Parameters
        ----------
        build_inputs : Sequence[BuilderInput]
            The modules, their targets and parameters.

        Returns
        -------
        results : list[BuilderResult]
            In the order of the inputs: the path of the artefact, or why there is none.
        """
        start = time.perf_counter()
        self.stats.builds += len(build_inputs)
        try:
            submitted = [self._submit(build_input) for build_input in build_inputs]
            if self.overlap:
                return [self._promise(*pair) for pair in submitted]
            return [self._result(*pair) for pair in submitted]
        except KeyboardInterrupt:
            self.close()
            raise
        finally:
            self.stats.wall_secs += time.perf_counter() - start

    def artifact(self, path: str) -> str:
        """Wait for an artefact that ``build`` promised.

        Parameters
        ----------
        path : str
            The path in the builder's result.

        Returns
        -------
        path : str
            The path of the artefact; the same one where nothing was promised.

        Raises
        ------
        TaskFailed
            If it was not built.
        """
        promise = self._promises.pop(path, None)
        return path if promise is None else self._collect(promise, os.path.dirname(path)).path

    def close(self) -> None:
        """End the workers and delete what was not measured. Another batch starts them again."""
        self._pool.close()

    def _submit(self, build_input: BuilderInput) -> "tuple[Future[_Built], str]":
        params = build_input.params
        try:
            folder = tempfile.mkdtemp(dir=self._pool.directory)
        except OSError as error:
            failed: Future[_Built] = Future()
            failed.set_exception(TaskFailed("error", f"no folder for the artefact: {error}"))
            return failed, ""
        future = self._pool.submit(
            self.timeout_sec,
            _build_and_export,
            self.f_build,
            self.f_export,
            build_input.mod,
            build_input.target,
            None if params is None else save_param_dict(params),
            folder,
        )
        return future, folder

    def _promise(self, future: "Future[_Built]", folder: str) -> BuilderResult:
        if not folder:
            return self._result(future, folder)
        path = os.path.join(folder, "promised")
        self._promises[path] = future
        return BuilderResult(path, None)

    def _result(self, future: "Future[_Built]", folder: str) -> BuilderResult:
        try:
            return BuilderResult(self._collect(future, folder).path, None)
        except TaskFailed as error:
            return BuilderResult(None, str(error))

    def _collect(self, future: "Future[_Built]", folder: str) -> _Built:
        try:
            built = future.result()
        except TaskFailed as error:
            # TVM deletes the folder of a candidate that it was promised, and fails without one.
            if not self.overlap:
                shutil.rmtree(folder, ignore_errors=True)
            self.stats.failures[error.kind] += 1
            raise TaskFailed(error.kind, f"WarmBuilder: {error}") from error
        self.stats.build_secs += built.build_secs
        self.stats.export_secs += built.export_secs
        return built


def _build_and_export(
    f_build: "str | BuildFunction | None",
    f_export: "str | ExportFunction | None",
    mod: IRModule,
    target: Target,
    params: bytearray | None,
    folder: str,
) -> _Built:
    # Whatever a build leaves behind when it is killed, its linker's files too, is in the folder.
    os.environ["TMPDIR"] = tempfile.tempdir = folder
    build = get_global_func_with_default_on_worker(f_build, build_scheduled)
    export = get_global_func_with_default_on_worker(f_export, export_tar)
    start = time.perf_counter()
    module = build(mod, target, None if params is None else load_param_dict(params))
    built = time.perf_counter()
    path = str(export(module))
    exported = time.perf_counter()
    if os.path.isdir(os.path.dirname(path)):  # It may be a path on a remote device.
        write_task(os.path.dirname(path), task_signature(mod, target))
    return _Built(path, built - start, exported - built)
