# SPDX-License-Identifier: Apache-2.0
"""A builder with long-lived worker processes."""

import contextlib
import os
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import psutil

from tvm.ir import IRModule
from tvm.ir.utils import derived_object
from tvm.runtime import Module, Tensor, load_param_dict, save_param_dict
from tvm.s_tir.meta_schedule.builder import BuilderInput, BuilderResult, PyBuilder
from tvm.s_tir.meta_schedule.utils import get_global_func_with_default_on_worker
from tvm.target import Target

from ..compat.flags import check_flag
from .build import build_scheduled, export_tar, prepare_to_build
from .failures import Failure, failure_path
from .functions import check_functions
from .pool import TaskFailed, WorkerPool, available_cpus, require_linux
from .task_signature import task_signature, write_task

BuildFunction = Callable[[IRModule, Target, "dict[str, Tensor] | None"], Module]
ExportFunction = Callable[[Module], str]

_MEMORY_FOLDER = "/dev/shm"
"""An in-memory file system, which has room for a folder when the disk is full."""


@dataclass
class BuildStats:
    """Counts and seconds of a builder.

    Parameters
    ----------
    builds : int
        Candidates that the builder received.
    retries : int
        Candidates that it tried once more after a machinery failure.
    failures : Counter[str]
        Candidates that failed in the end, by kind: "error", "timeout", "crash", or for machinery
        failures "machinery" and "closed".
    build_secs, export_secs : float
        Seconds that the workers spent building and exporting the successful candidates.
    wall_secs : float
        Seconds that TVM waited for builds.
    """

    builds: int = 0
    retries: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    build_secs: float = 0.0
    export_secs: float = 0.0
    wall_secs: float = 0.0


@dataclass(frozen=True)
class _Built:
    path: str
    build_secs: float
    export_secs: float


@dataclass(frozen=True)
class _Pending:
    """A started build and its folder; an empty folder means that the build has failed."""

    build_input: BuilderInput
    folder: str
    future: "Future[_Built]"


@dataclass(frozen=True)
class WorkerLimits:
    """What the workers of a builder may use.

    - ``max_builds``: the number of builds after which a worker is replaced; 0 for never.
    - ``max_growth_mb``: the memory growth in MiB at which a worker is replaced.
    - ``memory_limit_mb``: the address space limit of a worker, in MiB. Defaults to the machine's
      memory divided by the number of workers, but at least 4096.
    - ``cpus``: the CPUs that builds may run on; None for all.
    """

    max_builds: int = 256
    max_growth_mb: int = 512
    memory_limit_mb: int | None = None
    cpus: frozenset[int] | None = None


@derived_object
class WarmBuilder(PyBuilder):
    """A builder whose worker processes start once and keep running.

    TVM's ``LocalBuilder`` starts new processes for every batch. Each process imports TVM and the
    tensor intrinsics of every backend before its first build. Here a separate program imports TVM
    once, without the intrinsics, and forks the workers. If a build raises, hangs, crashes or takes
    too much memory, the candidate fails with a message, and the worker is replaced.

    A machinery failure, such as a full disk, is not the candidate's fault: the builder tries the
    candidate once more. If that fails too, the error message begins with ``MACHINERY_FAILURE``.
    TVM's database then records the candidate as failed, unless the builder is ``paired``.

    Every candidate has a private folder, which is the temporary directory of its build. TVM deletes
    the folder once the candidate is measured. The builder deletes the folder of a failed build at
    once. It deletes all folders when it ends: with ``close``, with the object, at interpreter exit,
    and when the process is killed.

    Parameters
    ----------
    max_workers : int | None
        The number of worker processes. Defaults to the number of CPUs that the workers may use.
    timeout_sec : float
        The time limit of one build in seconds, from when a worker starts it.
    f_build : str | Callable[[IRModule, Target, dict[str, Tensor] | None], Module] | None
        The build function, or the name of a global function. Defaults to ``build_scheduled``: TVM's
        ``default_build`` without its import of all tensor intrinsics.
    f_export : str | Callable[[Module], str] | None
        The export function, or the name of a global function; returns the path of the artifact. By
        default it exports a tar of object files, as TVM does. Local and RPC runners load it.
    initializer : Callable[[], None] | None
        A function that every worker calls before its first build, for example to register global
        functions.
    target : Target | None
        The target of all builds, if known in advance. Its tensor intrinsics are then imported once
        and not in every worker.
    paired : bool
        Whether the runner is a ``PromptRunner``. A machinery failure then reaches the runner as the
        path of a nonexistent artifact (``failures.py``), so that TVM's database does not record the
        candidate as failed.
    **limits
        ``max_builds``, ``max_growth_mb``, ``memory_limit_mb`` and ``cpus``; see ``WorkerLimits``.

    Raises
    ------
    TypeError
        If a function cannot be pickled for the workers.
    ValueError
        If a number is out of range, or a flag is not a bool.
    TaskFailed
        If the initializer raises or a function's name is not registered in the workers.
    RuntimeError
        If this is not Linux.
    """

    def __init__(
        self,
        *,
        max_workers: int | None = None,
        timeout_sec: float = 30.0,
        f_build: "str | BuildFunction | None" = None,
        f_export: "str | ExportFunction | None" = None,
        initializer: Callable[[], None] | None = None,
        target: Target | None = None,
        paired: bool = False,
        **limits: Any,
    ) -> None:
        require_linux("WarmBuilder")
        super().__init__()
        if timeout_sec <= 0:
            raise ValueError(f"timeout_sec = {timeout_sec}, expected a positive number of seconds")
        workers = WorkerLimits(**limits)
        if max_workers is None:
            max_workers = len(workers.cpus or available_cpus())
        self.max_workers = max_workers
        self.timeout_sec = timeout_sec
        self.f_build = f_build
        self.f_export = f_export
        self.paired = check_flag("paired", paired)
        self.stats = BuildStats()
        memory_limit_mb = workers.memory_limit_mb
        if memory_limit_mb is None:
            memory = psutil.virtual_memory().total >> 20
            memory_limit_mb = max(4096, memory // max(1, max_workers))
        self._pool = WorkerPool(
            max_workers,
            initializer=initializer,
            max_tasks=workers.max_builds,
            max_growth=workers.max_growth_mb << 20,
            memory_limit=memory_limit_mb << 20,
            cpus=workers.cpus,
            prepare=partial(prepare_to_build, target),
        )
        check_functions(self._pool, timeout_sec, initializer, [f_build, f_export])

    def build(self, build_inputs: Sequence[BuilderInput]) -> list[BuilderResult]:
        """Build a batch; the results are in the order of the inputs."""
        start = time.perf_counter()
        self.stats.builds += len(build_inputs)
        try:
            pending = [self._begin(build_input) for build_input in build_inputs]
            outcomes = [(build, _outcome(build)) for build in pending]
            # Restart all before waiting for any, so that they are built in parallel.
            pending = [self._begin_again(*pair) for pair in outcomes]
            return [self._result(build) for build in pending]
        except KeyboardInterrupt:
            self.close()
            raise
        finally:
            self.stats.wall_secs += time.perf_counter() - start

    def end_by(self, moment: float) -> None:
        """Set a deadline for builds that start from now on; see ``WorkerPool.end_by``."""
        self._pool.end_by(moment)

    def close(self) -> None:
        """End the workers and delete all artifacts. Another batch starts the workers again."""
        self._pool.close()

    def _begin(self, build_input: BuilderInput, folder: str = "") -> _Pending:
        """Submit a build to the workers; if that raises, the build fails."""
        future: Future[_Built] = Future()
        params = build_input.params
        try:
            folder = self._empty_folder(folder)
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
        except TypeError as error:
            future.set_exception(TaskFailed("error", str(error)))
        except Exception as error:
            message = f"the build cannot be begun: {type(error).__name__}: {error}"
            future.set_exception(TaskFailed("machinery", message))
        return _Pending(build_input, folder, future)

    def _begin_again(self, pending: _Pending, outcome: _Built | Failure) -> _Pending:
        """Restart a build if the machinery failed; otherwise leave it unchanged."""
        if not isinstance(outcome, Failure) or outcome.kind != "machinery":
            return pending
        self.stats.retries += 1
        return self._begin(pending.build_input, pending.folder)

    def _empty_folder(self, folder: str) -> str:
        """Make a new folder, or empty the folder of an earlier build."""
        directory = self._pool.directory
        os.makedirs(directory, exist_ok=True)
        if not folder:
            return tempfile.mkdtemp(dir=directory)
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(folder)
        os.mkdir(folder, mode=0o700)
        return folder

    def _result(self, pending: _Pending) -> BuilderResult:
        outcome = _outcome(pending)
        if not isinstance(outcome, Failure):
            self.stats.build_secs += outcome.build_secs
            self.stats.export_secs += outcome.export_secs
            return BuilderResult(outcome.path, None)
        self.stats.failures[outcome.kind] += 1
        outcome = Failure(outcome.kind, f"WarmBuilder: {outcome.message}")
        if self.paired and outcome.is_machinery:
            # TVM deletes the folder of each path, and raises if the folder is missing.
            folder = pending.folder if os.path.isdir(pending.folder) else _new_folder()
            if folder:
                return BuilderResult(failure_path(folder, outcome), None)
        shutil.rmtree(pending.folder, ignore_errors=True)
        return BuilderResult(None, str(outcome))


def _outcome(pending: _Pending) -> _Built | Failure:
    """Wait for a build and return its result or its failure."""
    try:
        return pending.future.result()
    except TaskFailed as error:
        return error.failure


def _new_folder() -> str:
    """Make a folder outside the builder's directory, which may be gone or full.

    TVM deletes the folder after the batch. Returns an empty string if no folder can be made.
    """
    for place in (tempfile.gettempdir(), _MEMORY_FOLDER):
        try:
            return tempfile.mkdtemp(prefix="tvm_droplet_ms_", dir=place)
        except OSError:
            pass
    return ""


def _build_and_export(
    f_build: "str | BuildFunction | None",
    f_export: "str | ExportFunction | None",
    mod: IRModule,
    target: Target,
    params: bytearray | None,
    folder: str,
) -> _Built:
    # Keep temporary files of the build and its linker in the folder, even if the build is killed.
    os.environ["TMPDIR"] = tempfile.tempdir = folder
    build = get_global_func_with_default_on_worker(f_build, build_scheduled)
    export = get_global_func_with_default_on_worker(f_export, export_tar)
    start = time.perf_counter()
    module = build(mod, target, None if params is None else load_param_dict(params))
    built = time.perf_counter()
    path = str(export(module))
    exported = time.perf_counter()
    if os.path.isdir(os.path.dirname(path)):  # The path may be on a remote device.
        write_task(os.path.dirname(path), task_signature(mod, target))
    return _Built(path, built - start, exported - built)
