# SPDX-License-Identifier: Apache-2.0
"""A compiled model: run it, and time its kernels inside it."""

import copy
import os
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import tvm
from tvm import relax

from ...compat.quiet import without_lines
from ...frontends.imported import Arrays
from ...runtime.library_file import LibraryFile
from ...runtime.library_info import LibraryInfo, append_info
from ...runtime.tensors import array_of, flat, tensor_from
from ...session.archive import replacing
from .linked_model import LinkedModel

_BUILTIN = "vm.builtin."
"""The name prefix of the virtual machine's own functions."""


class CompiledModel:
    """A model that runs on this machine's CPU.

    A ``LinkedModel`` runs from memory. A ``VMExecutable`` is exported as a library, which is
    loaded: a newly compiled one has no machine code yet. TVM generates the code for the library,
    and would generate it again to run the executable from memory.
    """

    def __init__(self, model: LinkedModel | relax.VMExecutable) -> None:
        self._entry = "main"
        self.linked = model if isinstance(model, LinkedModel) else None
        if isinstance(model, LinkedModel):
            self.executable = relax.VMExecutable(model.module)
            self._start()
            return
        with tempfile.TemporaryDirectory(prefix="droplet_model_") as folder:
            library = Path(folder) / "model.so"
            # TVM prints a line for each constant on a virtual device (``executable.cc``).
            with without_lines("Scope Saving"):
                model.export_library(str(library), workspace_dir=folder)
            self._open(library)

    @classmethod
    def load(cls, library: Path) -> "CompiledModel":
        """Load a library that ``export`` wrote."""
        model = cls.__new__(cls)
        model.linked, model._entry = None, "main"
        model._open(library)
        return model

    def entry(self, name: str) -> "CompiledModel":
        """Return a model that runs another function of the same library."""
        model = copy.copy(self)
        model._entry = name
        model._start()
        return model

    def _open(self, library: Path) -> None:
        self._library = LibraryFile(library)
        self._load()

    def _load(self) -> None:
        with without_lines("Scope Loaded"):
            self.executable = relax.VMExecutable(self._library.module)
        self._start()
        self._library.release_pages()

    def shed(self, library: Path) -> None:
        """Run from the file that ``export`` wrote, and drop the copy of the weights in memory.

        The file is loaded when the model runs the next time.
        """
        self._library, self.linked = LibraryFile(library), None
        for name in ("executable", "_machine", "_main"):
            self.__dict__.pop(name, None)

    def __getattr__(self, name: str) -> Any:
        """Load a model that was shed."""
        if name not in ("executable", "_machine", "_main") or "_library" not in self.__dict__:
            raise AttributeError(name)
        self._load()
        return self.__dict__[name]

    def _start(self) -> None:
        self._machine = relax.VirtualMachine(self.executable.mod, tvm.cpu())
        self._main = self._machine[self._entry]

    def __call__(self, inputs: Sequence[np.ndarray]) -> Arrays:
        """Run the model; nested tuples of outputs are flattened."""
        # The tensors themselves may be inputs, or constants.
        return [array_of(tensor).copy() for tensor in flat(self._main(*_tensors(inputs)))]

    def timer(self, inputs: Sequence[np.ndarray]) -> Callable[[], float]:
        """Return a function that runs the model once on these inputs and returns the seconds."""
        tensors = _tensors(inputs)

        def run() -> float:
            start = time.perf_counter()
            self._main(*tensors)
            return time.perf_counter() - start

        return run

    def output_memory(
        self, inputs: Sequence[np.ndarray]
    ) -> tuple[list[tuple[tuple[int, ...], str]], tuple[tuple[int, int | None], ...]]:
        """Run the model twice to see where its outputs lie.

        Returns the shape and type of each output, and the outputs whose memory is that of an
        input, with the input's index, or of a constant or an earlier output, with None.
        """
        tensors = _tensors(inputs)
        sources = {tensor.data_ptr(): place for place, tensor in enumerate(tensors)}
        # The first outputs are kept, so that their memory is not used again.
        first, second = (flat(self._main(*tensors)) for _ in range(2))
        aliases: list[tuple[int, int | None]] = []
        seen: set[int] = set()
        for place, (one, other) in enumerate(zip(first, second, strict=True)):
            address = one.data_ptr()
            if address == other.data_ptr() or address in seen:
                aliases.append((place, sources.get(address)))
            seen.add(address)
        kinds = [(tuple(int(n) for n in each.shape), str(each.dtype)) for each in first]
        return kinds, tuple(aliases)

    def export(self, path: str | os.PathLike[str], info: LibraryInfo | None = None) -> None:
        """Write the executable as a shared library. The file appears only when complete.

        ``info``: the description to write into it; None for that of the library it came from.
        """
        with replacing(path) as partial:
            if self.linked is not None:
                self.linked.write(partial)
            else:
                self._library.copy(partial)
            if info is not None:
                append_info(partial, info)

    def kernel_secs(self, inputs: Sequence[np.ndarray], runs: int) -> dict[str, list[float]]:
        """Return the total seconds of each function in each run, after a warm-up run."""
        tensors = _tensors(inputs)
        totals: list[dict[str, float]] = []
        started = 0.0

        def instrument(_function: Any, symbol: Any, before: Any, _result: Any, *_args: Any) -> None:
            nonlocal started
            if before:
                started = time.perf_counter()
            else:
                totals[-1][str(symbol)] += time.perf_counter() - started

        self._main(*tensors)
        self._machine.set_instrument(instrument)
        try:
            for _ in range(runs):
                totals.append(defaultdict(float))
                self._main(*tensors)
        finally:
            # A virtual machine cannot remove its instrument.
            self._start()
        names = {name for run in totals for name in run if not name.startswith(_BUILTIN)}
        return {name: [run.get(name, 0.0) for run in totals] for name in sorted(names)}

    def watch(self, inputs: Sequence[np.ndarray], after: Callable[[str, list[Any]], None]) -> None:
        """Run the model, and call ``after`` with the name and tensors of each finished kernel."""

        def instrument(_function: Any, symbol: Any, before: Any, _result: Any, *args: Any) -> None:
            if not before and not str(symbol).startswith(_BUILTIN):
                after(str(symbol), [each for each in args if isinstance(each, tvm.runtime.Tensor)])

        self._machine.set_instrument(instrument)
        try:
            self._main(*_tensors(inputs))
        finally:
            self._start()


def _tensors(inputs: Sequence[np.ndarray]) -> list[tvm.runtime.Tensor]:
    return [tensor_from(np.asarray(array)) for array in inputs]
