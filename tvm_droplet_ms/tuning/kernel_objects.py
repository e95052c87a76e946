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
"""Object files of kernels: each kernel is compiled once, and several at a time."""

import os
import tempfile
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path

from tvm_ffi import structural_hash

import tvm
from tvm.ir import IRModule
from tvm.target import Target
from tvm.tirx import PrimFunc

from ..measure.pool import TaskFailed, WorkerPool

TIMEOUT_SECS = 300.0
"""The seconds that a worker may take for one kernel."""


class KernelObjects:
    """Compiles kernels to object files, and keeps them.

    Parameters
    ----------
    target : Target
        The target.
    workers : WorkerPool | None
        The processes that compile. None for this process.
    """

    def __init__(self, target: Target, workers: WorkerPool | None = None) -> None:
        self._target = target
        self._workers = workers
        # The workers delete their directory however this process ends.
        directory = workers.directory if workers is not None else None
        self._folder = tempfile.TemporaryDirectory(prefix="droplet_objects_", dir=directory)
        self._paths: dict[tuple[str, int], Path] = {}

    @property
    def folder(self) -> Path:
        """A directory that lasts as long as this object."""
        return Path(self._folder.name)

    def compile(self, functions: Mapping[str, PrimFunc]) -> dict[str, Path]:
        """Compile functions that were not compiled before.

        Parameters
        ----------
        functions : Mapping[str, PrimFunc]
            Scheduled functions, by the names of their symbols.

        Returns
        -------
        paths : dict[str, Path]
            The object file of each.

        Raises
        ------
        RuntimeError
            If the compiler ends or does not come to an end. Names the function. Errors of TVM are
            passed on.
        """
        found: dict[str, Path] = {}
        running: dict[str, tuple[tuple[str, int], Path, Future[None]]] = {}
        for name, function in functions.items():
            key = name, structural_hash(function)
            known = self._paths.get(key)
            if known is not None:
                found[name] = known
                continue
            path = self.folder / f"{len(self._paths) + len(running)}.o"
            mod = IRModule({name: function.with_attr("global_symbol", name)})
            running[name] = key, path, self._start(mod, path)
        for name, (key, path, future) in running.items():
            _settle(name, future, functions[name], self._target, path)
            found[name] = self._paths[key] = path
        return found

    def _start(self, mod: IRModule, path: Path) -> "Future[None]":
        if self._workers is not None:
            return self._workers.submit(
                TIMEOUT_SECS, compile_object, mod, self._target, os.fspath(path)
            )
        future: Future[None] = Future()
        compile_object(mod, self._target, os.fspath(path))
        future.set_result(None)
        return future


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

    Parameters
    ----------
    mod : IRModule
        Scheduled functions with their global symbols.
    target : Target
        The target.
    path : str
        Where to write the object file. It appears when it is complete.
    """
    part = f"{path}.part.o"
    tvm.tirx.build(mod, target=target).write_to_file(part)
    os.replace(part, path)
