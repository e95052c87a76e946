# SPDX-License-Identifier: Apache-2.0
"""Object files of kernels. Each kernel is compiled once, and several in parallel."""

import itertools
import math
import os
import shutil
import tempfile
import time
import weakref
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from pathlib import Path

from tvm_ffi import structural_hash

import tvm
from tvm.ir import IRModule
from tvm.target import Target
from tvm.tirx import PrimFunc

from ...compat.loop_vectorizer import without_loop_vectorizer
from ...measure.pool import TaskFailed, ThisProcess, WorkerPool
from ...session.errors import LateKernelsError, TooLateError

TIMEOUT_SECS = 300.0
"""The maximum seconds of a worker for one kernel."""

PATIENCE, LEAST_PATIENCE_SECS = 0.3, 4.0
"""The limit for one kernel that can be left out: a share of the remaining time, but at least
``LEAST_PATIENCE_SECS``."""


class KernelObjects:
    """Compiles kernels to object files and caches these.

    ``workers``: the compiling processes; None for this process. ``folder``: a directory with the
    lifetime of this object. ``deadline``: when to stop waiting, in the time of ``time.monotonic``.
    """

    def __init__(self, target: Target, workers: WorkerPool | ThisProcess | None = None) -> None:
        self._target = target
        self._workers = workers or ThisProcess()
        # The workers delete their directory regardless of how this process ends.
        self.folder = Path(tempfile.mkdtemp(prefix="droplet_objects_", dir=self._workers.directory))
        weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)
        self._paths: dict[tuple[str, int], Path] = {}
        self._running: dict[tuple[str, int], tuple[Path, Future[None]]] = {}
        self._numbers = itertools.count()
        self.deadline = math.inf

    def compile(
        self, functions: Mapping[str, PrimFunc], late_at: float = math.inf
    ) -> dict[str, Path]:
        """Compile functions that are not compiled yet; return the object files by symbol.

        Raises ``LateKernelsError`` for functions that are not compiled at ``late_at``, in the time
        of ``time.monotonic``, or that take a large share of the time until then, or that the
        compiler refuses: LLVM has no code for some schedules. Raises ``TooLateError`` after the
        deadline; running compilations continue. Without ``late_at``, raises ``RuntimeError`` with
        the function's name if the compiler crashes or times out; TVM's own errors propagate.
        """
        self.begin(functions, late_at)
        found: dict[str, Path] = {}
        late: list[str] = []
        for name, function in functions.items():
            key = _key(name, function)
            if key not in self._paths:
                path, future = self._running[key]
                try:
                    future.exception(_secs_until(min(self.deadline, late_at)))
                except TimeoutError:
                    message = _too_short(len(found), len(functions))
                    if late_at < self.deadline:
                        late += self._forget(lambda future: not future.done())
                        late += self._forget(_has_failed)
                        self._workers.drop_tasks()
                        # The awaited function may have finished in the meantime.
                        raise LateKernelsError(late or [name], message) from None
                    raise TooLateError(message) from None
                del self._running[key]
                if not math.isinf(late_at) and _has_failed(future):
                    late.append(name)
                    continue
                _settle(name, future, function, self._target, path)
                self._paths[key] = path
            found[name] = self._paths[key]
        if late:
            late += self._forget(_has_failed)
            raise LateKernelsError(late, _too_short(len(found), len(functions)))
        return found

    def begin(self, functions: Mapping[str, PrimFunc], late_at: float = math.inf) -> None:
        """Start compiling functions ahead of ``compile``."""
        patience = TIMEOUT_SECS
        if not math.isinf(late_at):
            secs = PATIENCE * (late_at - time.monotonic())
            patience = min(TIMEOUT_SECS, max(LEAST_PATIENCE_SECS, secs))
        for name, function in functions.items():
            key = _key(name, function)
            if key not in self._paths and key not in self._running:
                path = self.folder / f"{next(self._numbers)}.o"
                mod = IRModule({name: function.with_attr("global_symbol", name)})
                future = self._workers.submit(
                    patience, compile_object, mod, self._target, os.fspath(path)
                )
                self._running[key] = path, future

    def _forget(self, is_over: Callable[["Future[None]"], bool]) -> list[str]:
        """Forget matching compilations, so that they may restart; return the function names."""
        keys = [key for key, (_, future) in self._running.items() if is_over(future)]
        for key in keys:
            del self._running[key]
        return [name for name, _ in keys]


def _key(name: str, function: PrimFunc) -> tuple[str, int]:
    return name, structural_hash(function.with_attr("global_symbol", name))


def _secs_until(moment: float) -> float | None:
    return None if math.isinf(moment) else max(0.0, moment - time.monotonic())


def _too_short(count: int, total: int) -> str:
    return (
        f"the time is too short: {count} of {total} kernels were compiled; pass a larger "
        "time_budget_s (--minutes)"
    )


def _has_failed(future: "Future[None]") -> bool:
    """Return whether the compiler took too long, crashed, or refused the code."""
    failure = future.exception()
    return isinstance(failure, TaskFailed) and not failure.failure.is_machinery


def _settle(
    name: str, future: "Future[None]", function: PrimFunc, target: Target, path: Path
) -> None:
    try:
        future.result()
    except TaskFailed as failure:
        if failure.kind in ("crash", "timeout"):
            raise RuntimeError(f"the kernel {name} cannot be compiled: {failure}") from failure
        # Compiling here raises TVM's error unchanged, or succeeds if only the worker had failed.
        mod = IRModule({name: function.with_attr("global_symbol", name)})
        compile_object(mod, target, os.fspath(path))


def compile_object(mod: IRModule, target: Target, path: str) -> None:
    """Compile scheduled functions to an object file, which appears only when complete."""
    part = f"{path}.part.o"
    tvm.tirx.build(mod, target=without_loop_vectorizer(target)).write_to_file(part)
    os.replace(part, path)
