# SPDX-License-Identifier: Apache-2.0
"""A model whose kernels are object files: run in memory, or written as one library.

``export_library`` copies the constants of a model about eight times, and LLVM compiles them. Here,
TVM serializes the model with short marks as constants, and each mark is replaced by its constant.
"""

import errno
import functools
import logging
import os
import shutil
import struct
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import tvm_ffi

import tvm
from tvm import relax
from tvm.ir import GenericConst, IRModule
from tvm.runtime import Tensor
from tvm.support import cc
from tvm.target import Target
from tvm.tirx import PrimFunc

from ...model.bindings import array_of
from ...model.rewriting import replace_constants

logger = logging.getLogger(__name__)

_INCLUDE = """
    .section {section}, "a", %progbits
    .globl {symbol}
    .balign 64
{symbol}:
    .incbin "{data}"
    .section .note.GNU-stack, ""
"""
"""A GNU assembly program that places a file's bytes under a symbol."""

_NEAR = 1 << 30
"""Data of at least this size goes to the section that x86-64 places after the others: code reaches
only 2 GiB around itself."""

LEAST_BYTES = 1024
"""Smaller constants are left to TVM."""

_MAGIC = 0xDD5E40F096B4A13F
"""``kTVMTensorMagic`` (``tvm/runtime/tensor.h``)."""

_SIZE = struct.Struct("<Q")

Marks = dict[bytes, Tensor]


class FormatError(Exception):
    """Raised if TVM serializes a model in an unexpected format."""


def with_marks(mod: IRModule) -> tuple[IRModule, Marks]:
    """Replace a lowered module's constants with short marks; return also the tensors by mark."""
    marks: dict[int, tuple[np.ndarray, Tensor]] = {}

    def marked(op: GenericConst) -> GenericConst:
        array = array_of(op)
        if array is None or array.nbytes < LEAST_BYTES:
            return op
        # TVM serializes a constant with several uses once.
        known = marks.get(array.ctypes.data)
        mark = known[0] if known else np.frombuffer(f"mark {len(marks):11}".encode(), "uint8")
        marks[array.ctypes.data] = mark, op.value
        return GenericConst(tvm.runtime.tensor(mark), op.ty)

    changed = replace_constants(mod, marked)
    return changed, {mark.tobytes(): tensor for mark, tensor in marks.values()}


def serialized(module: tvm.runtime.Module, marks: Mapping[bytes, Tensor]) -> list[memoryview]:
    """Return the bytes that a module's library holds under ``library_symbol``.

    Raises ``FormatError`` if TVM's serialized bytes have an unexpected format.
    """
    pack = tvm_ffi.get_global_func("runtime.ModulePackImportsToTensor")
    packed = bytearray(np.from_dlpack(pack(module)).tobytes())
    places = []
    for mark, tensor in marks.items():
        record = _record(tvm.runtime.tensor(np.frombuffer(mark, "uint8"))) + mark
        if packed.count(record) != 1:
            raise FormatError(f"TVM writes a tensor {packed.count(record)} times: expected once")
        places.append((packed.index(record), len(record), tensor))
    growth = sum(
        len(_record(tensor)) + _bytes_of(tensor).nbytes - size for _, size, tensor in places
    )
    _grow(packed, module.kind, growth)
    pieces: list[memoryview] = []
    start = 0
    for place, size, tensor in sorted(places, key=lambda entry: entry[0]):
        pieces.append(memoryview(packed)[start:place])
        pieces.append(memoryview(_record(tensor)))
        pieces.append(_bytes_of(tensor))
        start = place + size
    return [*pieces, memoryview(packed)[start:]]


def library_symbol() -> str:
    """Return the symbol under which a library holds its serialized modules."""
    return str(tvm_ffi.get_global_func("runtime.ModuleImportsBlobName")())


def _bytes_of(tensor: Tensor) -> memoryview:
    return np.from_dlpack(tensor).reshape(-1).view("uint8").data


def _record(tensor: Tensor) -> bytes:
    """Return the header of a serialized tensor (``SaveDLTensor``, ``tvm/runtime/tensor.h``)."""
    kind = tvm_ffi.dtype(str(tensor.dtype))
    shape = [int(extent) for extent in tensor.shape]
    return struct.pack(
        f"<QQiiiBBH{len(shape)}qq",
        _MAGIC,
        0,
        1,  # The device type: CPU.
        0,  # The device index.
        len(shape),
        kind.type_code,
        kind.bits,
        kind.lanes,
        *shape,
        _bytes_of(tensor).nbytes,
    )


def _grow(packed: bytearray, kind: str, growth: int) -> None:
    """Update the total size and the size of the model in the header (``target/codegen.cc``)."""
    name = _SIZE.pack(len(kind)) + kind.encode()
    place = packed.index(name) + len(name)
    (everything,) = _SIZE.unpack_from(packed)
    (model,) = _SIZE.unpack_from(packed, place)
    rest = packed[place + _SIZE.size + model :]
    if everything != len(packed) - _SIZE.size or rest != _SIZE.pack(4) + b"_lib":
        raise FormatError(f"a serialized {kind} is not as expected: {bytes(rest[:40])!r}")
    _SIZE.pack_into(packed, 0, everything + growth)
    _SIZE.pack_into(packed, place, model + growth)


def _link(library: Path, parts: Iterable[Path]) -> None:
    """Link a shared library. Raises ``OSError`` if a disk is full, which TVM reports as text."""
    try:
        cc.create_shared(str(library), list(map(str, parts)))
    except RuntimeError as error:
        for code in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            if os.strerror(code) in str(error):
                raise OSError(code, os.strerror(code), str(library)) from error
        raise


class LinkedModel:
    """A model after all passes, with the object files of its kernels by symbol.

    ``folder``: the directory of the object files; it lives at least as long as ``owner``.
    ``kernels``: the functions that the object files were compiled from.
    """

    def __init__(
        self,
        mod: IRModule,
        paths: Mapping[str, Path],
        folder: Path,
        target: Target,
        kernels: Mapping[str, PrimFunc],
        owner: object = None,
    ) -> None:
        self.mod = mod
        self.kernels = dict(kernels)
        self.paths = dict(paths)
        self._directory, self._owner = folder, owner
        self._target = target

    @functools.cached_property
    def module(self) -> tvm.runtime.Module:
        """The module for ``relax.VirtualMachine``; it shares the constants of `mod`."""
        kernels = []
        if self.paths:
            with self._folder() as folder:
                library = Path(folder) / "kernels.so"
                _link(library, self.paths.values())
                kernels = [tvm.runtime.load_module(str(library))]
        return self._build(self.mod, kernels).mod

    def copied_to(self, folder: Path) -> "LinkedModel":
        """Return the same model with its object files copied to another directory."""
        paths = {name: folder / f"{name}.o" for name in self.paths}
        for name, path in paths.items():
            shutil.copyfile(self.paths[name], path)
        return LinkedModel(self.mod, paths, folder, self._target, self.kernels)

    def executable(self) -> relax.VMExecutable:
        """Return the executable for ``export_library``."""
        return self._build(self.mod, self._static_libraries())

    def write(self, path: Path) -> None:
        """Write the model as a shared library, with the constants straight from memory.

        If TVM's format is unexpected, ``export_library`` writes the library.
        """
        with self._folder() as folder:
            try:
                self._write(path, Path(folder))
            except FormatError as error:
                logger.info("the library is written by TVM: %s", error)
                self.executable().export_library(str(path), workspace_dir=folder)

    def _write(self, path: Path, folder: Path) -> None:
        marked, marks = with_marks(self.mod)
        pieces = serialized(self._build(marked, self._static_libraries()).mod, marks)
        source, data = folder / "data.S", folder / "data"
        with data.open("wb") as file:
            for piece in pieces:
                file.write(piece)
        section = ".rodata" if data.stat().st_size < _NEAR else ".lrodata"
        quoted = str(data).replace("\\", "\\\\").replace('"', '\\"')
        text = _INCLUDE.format(section=section, symbol=library_symbol(), data=quoted)
        source.write_text(text, encoding="utf-8", errors="surrogateescape")
        _link(path, [*self.paths.values(), source])

    def _static_libraries(self) -> list[tvm.runtime.Module]:
        return [
            tvm.runtime.load_static_library(str(path), [name]) for name, path in self.paths.items()
        ]

    def _build(self, mod: IRModule, libraries: list[tvm.runtime.Module]) -> relax.VMExecutable:
        mod = mod.with_attr("external_mods", libraries)
        return relax.build(mod, self._target, relax_pipeline=None)

    def _folder(self) -> "tempfile.TemporaryDirectory[str]":
        """Make a directory inside that of the objects, so that it is deleted even after a kill."""
        return tempfile.TemporaryDirectory(dir=self._directory)
