# SPDX-License-Identifier: Apache-2.0
"""Loads a library and starts its virtual machine. Imports TVM only where a library needs it."""

import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .errors import SessionError
from .library_file import LibraryFile
from .library_info import read_info
from .tvm_runtime import tvm_runtime

_POOLED_CPU = (1, 0, 2)
"""The arguments of ``vm_initialization``: CPU, device 0, ``VirtualMachine.POOLED_ALLOCATOR``."""

_PYTHON_FUNCTION = re.compile(r"relax\.run\.\w+")
"""The names of functions that TVM's Python package registers, such as that of NonZero."""


@contextmanager
def file_of(source: str | os.PathLike[str] | bytes) -> Iterator[str | os.PathLike[str]]:
    """The path of a library; one that is given as bytes has a file until it is loaded."""
    if not isinstance(source, bytes | bytearray | memoryview):
        yield source
        return
    with tempfile.NamedTemporaryFile(prefix="droplet_library_", suffix=".so") as file:
        file.write(source)
        file.flush()
        yield file.name


def load_library(path: str | os.PathLike[str]) -> LibraryFile:
    """Load a library. Raises ``SessionError`` if the dynamic loader or TVM refuses it."""
    tvm_runtime()
    try:
        library = LibraryFile(Path(path))
        _ = library.module
        return library
    except (OSError, RuntimeError) as error:
        raise SessionError(
            f"{os.fspath(path)!r} cannot be loaded ({_last(error)}): expected a library of this "
            "machine's processor and of TVM 0.27"
        ) from error


def start_machine(module: Any) -> Any:
    """Start the virtual machine of a library, which owns the memory of its functions."""
    machine = module["vm_load_executable"]()
    machine["vm_initialization"](*_POOLED_CPU)
    return machine


def check_alone(path: str | os.PathLike[str]) -> None:
    """Raise ``SessionError`` if a library needs more than TVM's runtime."""
    read_info(path)
    try:
        start_machine(load_library(path).module)
    except RuntimeError as error:
        raise SessionError(_needs_tvm(path, error)) from error


def check_python_functions(path: str | os.PathLike[str], error: RuntimeError) -> None:
    """Import TVM if a machine did not start for want of its functions in Python.

    Raises ``SessionError`` if it is not installed, or if the machine needs something else.
    """
    missing = _PYTHON_FUNCTION.search(str(error))
    try:
        import tvm.relax  # noqa: F401
    except ImportError:
        missing = None
    if missing is None:
        raise SessionError(_needs_tvm(path, error)) from error


def _needs_tvm(path: str | os.PathLike[str], error: RuntimeError) -> str:
    found = _PYTHON_FUNCTION.search(str(error))
    return (
        f"{os.fspath(path)!r} calls {found.group() if found else _last(error)}, which TVM's "
        "runtime alone does not have: expected the package apache-tvm in the same process, or a "
        "model without the operator"
    )


def _last(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[-1]
