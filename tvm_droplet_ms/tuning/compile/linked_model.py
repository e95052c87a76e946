# SPDX-License-Identifier: Apache-2.0
"""A model whose kernels are object files: run in memory, or written as one library."""

import functools
import logging
import tempfile
from collections.abc import Mapping
from pathlib import Path

import tvm
from tvm import relax
from tvm.ir import IRModule
from tvm.support import cc
from tvm.target import Target

from .kernel_objects import KernelObjects
from .serialized_model import FormatError, library_symbol, serialized, with_marks

logger = logging.getLogger(__name__)

_INCLUDE = """
    .section .rodata
    .globl {symbol}
    .balign 64
{symbol}:
    .incbin "{data}"
    .section .note.GNU-stack, ""
"""
"""The program, in GNU's assembly language, that has a file's bytes under a symbol."""


def _quoted(path: Path) -> str:
    """A path within the quotes of a string of the assembly language."""
    return str(path).replace("\\", "\\\\").replace('"', '\\"')


class LinkedModel:
    """A model after all passes, with the object files of its kernels.

    ``mod``: Relax functions that call kernels by their symbols, with the constants. ``paths``: the
    object file of each kernel, by its symbol. ``objects``: what they belong to: it keeps them.
    """

    def __init__(
        self, mod: IRModule, paths: Mapping[str, Path], objects: KernelObjects, target: Target
    ) -> None:
        self._mod = mod
        self._paths = dict(paths)
        self._objects = objects
        self._target = target

    @functools.cached_property
    def module(self) -> tvm.runtime.Module:
        """The module for ``relax.VirtualMachine``: its constants are those of `mod`, not copies."""
        kernels = []
        if self._paths:
            with self._folder() as folder:
                library = Path(folder) / "kernels.so"
                cc.create_shared(str(library), [str(path) for path in self._paths.values()])
                kernels = [tvm.runtime.load_module(str(library))]
        return self._build(self._mod, kernels).mod

    def executable(self) -> relax.VMExecutable:
        """The executable for ``export_library``."""
        return self._build(self._mod, self._static_libraries())

    def write(self, path: Path) -> None:
        """Write the model as a shared library, the constants straight from memory.

        Where TVM's format is another one, ``export_library`` writes it. ``path``: the file.
        """
        with self._folder() as folder:
            try:
                self._write(path, Path(folder))
            except FormatError as error:
                logger.info("the library is written by TVM: %s", error)
                self.executable().export_library(str(path), workspace_dir=folder)

    def _write(self, path: Path, folder: Path) -> None:
        marked, marks = with_marks(self._mod)
        pieces = serialized(self._build(marked, self._static_libraries()).mod, marks)
        source, data = folder / "data.S", folder / "data"
        with data.open("wb") as file:
            for piece in pieces:
                file.write(piece)
        text = _INCLUDE.format(symbol=library_symbol(), data=_quoted(data))
        source.write_text(text, encoding="utf-8", errors="surrogateescape")
        cc.create_shared(str(path), [*map(str, self._paths.values()), str(source)])

    def _static_libraries(self) -> list[tvm.runtime.Module]:
        return [
            tvm.runtime.load_static_library(str(path), [name]) for name, path in self._paths.items()
        ]

    def _build(self, mod: IRModule, libraries: list[tvm.runtime.Module]) -> relax.VMExecutable:
        mod = mod.with_attr("external_mods", libraries)
        return relax.build(mod, self._target, relax_pipeline=None)

    def _folder(self) -> "tempfile.TemporaryDirectory[str]":
        """A directory that is gone after a kill as well, where the objects' is."""
        return tempfile.TemporaryDirectory(dir=self._objects.folder)
