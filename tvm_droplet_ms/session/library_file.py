# SPDX-License-Identifier: Apache-2.0
"""A shared library that stays what it was when it was opened, whatever becomes of its name."""

import functools
import os
import shutil
import tempfile
import weakref
from pathlib import Path
from typing import Any

import tvm_ffi

_COPIED_BYTES = 1 << 24
"""The bytes that are copied at a time."""


class LibraryFile:
    """A shared library of this machine's file system.

    The dynamic loader goes by names: for a file that has replaced one that is still loaded, it
    would give the old one. And a name may be gone, or another file's, when it is copied. So the
    file is opened once, and loaded and copied by what was opened. Raises ``OSError`` if it cannot
    be read.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = os.open(path, os.O_RDONLY)
        weakref.finalize(self, os.close, self._descriptor)

    def __reduce__(self) -> tuple[type["LibraryFile"], tuple[Path]]:
        return LibraryFile, (self._path,)

    @functools.cached_property
    def module(self) -> Any:
        """TVM's module of it, loaded when it is first asked for."""
        # tvm.runtime.load_module would follow the link, and so give the loader the old name.
        with tempfile.TemporaryDirectory(prefix="droplet_library_") as folder:
            link = Path(folder) / "library.so"
            link.symlink_to(f"/proc/self/fd/{self._descriptor}")
            return tvm_ffi.load_module(link)

    def copy(self, path: Path) -> None:
        """Write its bytes to another file."""
        # A descriptor of its own: copies of one share their position.
        with open(f"/proc/self/fd/{self._descriptor}", "rb") as file, path.open("wb") as copy:
            shutil.copyfileobj(file, copy, _COPIED_BYTES)
