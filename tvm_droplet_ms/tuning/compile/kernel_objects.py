# SPDX-License-Identifier: Apache-2.0
"""Object files of kernels: each kernel is compiled once, and several at a time."""

import itertools
import math
import os
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path

from tvm_ffi import structural_hash

import tvm
from tvm.ir import IRModule
from tvm.target import Target
from tvm.tirx import PrimFunc

from ...measure.pool import TaskFailed, WorkerPool
from ...session.errors import TooLateError

TIMEOUT_SECS = 300.0
"""The seconds that a worker may take for one kernel."""


class KernelObjects:
    """Compiles kernels to object files, and keeps them.

    ``workers``: the processes that compile. None for this process. ``deadline``: the moment of
    ``time.monotonic`` after which nothing is waited for.
    """

    def __init__(self, target: Target, workers: WorkerPool | None = None) -> None:
        self._target = target
        self._workers = workers
        # The workers delete their directory however this process ends.
        directory = workers.directory if workers is not None else None
        self._folder = tempfile.TemporaryDirectory(prefix="droplet_objects_", dir=directory)
        self._paths: dict[tuple[str, int], Path] = {}
        self._running: dict[tuple[str, int], tuple[Path, Future[None]]] = {}
        self._numbers = itertools.count()
        self.deadline = math.inf

    @property
    def folder(self) -> Path:
        """A directory that lasts as long as this object."""
        return Path(self._folder.name)

    def compile(self, functions: Mapping[str, PrimFunc]) -> dict[str, Path]:
        """Compile functions that were not compiled before.

        ``functions``: scheduled functions, by the names of their symbols. Returns the object file
        of each. Raises ``TooLateError`` if the deadline passes. What was begun goes on. Raises
        ``RuntimeError`` if the compiler ends or does not come to an end. Names the function. Errors
        of TVM are passed on.
        """
        self.begin(functions)
        found: dict[str, Path] = {}
        for name, function in functions.items():
            key = _key(name, function)
            if key not in self._paths:
                path, future = self._running[key]
                try:
                    future.exception(self._secs_left())
                except TimeoutError:
                    raise TooLateError(
                        f"the time is too short: {len(found)} of {len(functions)} kernels were "
                        "compiled; pass a larger time_budget_s (--minutes)"
                    ) from None
                del self._running[key]
                _settle(name, future, function, self._target, path)
                self._paths[key] = path
            found[name] = self._paths[key]
        return found

    def begin(self, functions: Mapping[str, PrimFunc]) -> None:
        """Begin to compile functions that ``compile`` will be asked for."""
        for name, function in functions.items():
            key = _key(name, function)
            if key not in self._paths and key not in self._running:
                path = self.folder / f"{next(self._numbers)}.o"
                mod = IRModule({name: function.with_attr("global_symbol", name)})
                self._running[key] = path, self._start(mod, path)

    def _secs_left(self) -> float | None:
        if math.isinf(self.deadline):
            return None
        return max(0.0, self.deadline - time.monotonic())

    def _start(self, mod: IRModule, path: Path) -> "Future[None]":
        if self._workers is not None:
            return self._workers.submit(
                TIMEOUT_SECS, compile_object, mod, self._target, os.fspath(path)
            )
        future: Future[None] = Future()
        compile_object(mod, self._target, os.fspath(path))
        future.set_result(None)
        return future


def _key(name: str, function: PrimFunc) -> tuple[str, int]:
    return name, structural_hash(function.with_attr("global_symbol", name))


def _settle(
    name: str, future: "Future[None]", function: PrimFunc, target: Target, path: Path
) -> None:
    try:
        future.result()
    except TaskFailed as failure:
        if failure.kind in ("crash", "timeout"):
            raise RuntimeError(f"the kernel {name} cannot be compiled: {failure}") from failure
        # An error of TVM is raised here again as it is; what failed for want of a process, not.
        mod = IRModule({name: function.with_attr("global_symbol", name)})
        compile_object(mod, target, os.fspath(path))


def compile_object(mod: IRModule, target: Target, path: str) -> None:
    """Compile a module to an object file.

    ``mod``: scheduled functions with their global symbols. ``path``: where to write the object
    file. It appears when it is complete.
    """
    part = f"{path}.part.o"
    tvm.tirx.build(mod, target=target).write_to_file(part)
    os.replace(part, path)
