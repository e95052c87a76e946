# SPDX-License-Identifier: Apache-2.0
"""A shared library that keeps the content it had when opened. Imports no TVM."""

import contextlib
import ctypes
import functools
import os
import shutil
import tempfile
import threading
import weakref
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from .tvm_runtime import tvm_runtime

_COPIED_BYTES = 1 << 24
"""Number of bytes copied at a time."""

_LARGE, _RELEASE_SECS = 1 << 26, 0.02
"""The pages of a file of at least this many bytes are given back while it loads, at this pace."""

_ADVISE_KERNEL, PAGE_OUT, UNMAP = ctypes.CDLL(None).madvise, 21, 4
"""Linux's call about pages, and its advices ``MADV_PAGEOUT`` and ``MADV_DONTNEED``.

Pages that differ from the file, such as relocated addresses, keep their content after the first and
lose it after the second, which leaves the others in the kernel's cache of files."""


class LibraryFile:
    """A shared library on this machine's file system.

    The dynamic loader identifies libraries by name: if a new file replaces a library that is still
    loaded, the loader returns the old library. And a file may be removed or replaced before it is
    copied. So the file is opened once, and loaded and copied through its descriptor. Raises
    ``OSError`` if the file cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = os.open(path, os.O_RDONLY)
        weakref.finalize(self, os.close, self._descriptor)

    def __reduce__(self) -> tuple[type["LibraryFile"], tuple[Path]]:
        return LibraryFile, (self._path,)

    @functools.cached_property
    def module(self) -> Any:
        """The TVM module of the library, loaded on first use."""
        # tvm.runtime.load_module would resolve the link, and pass the old name to the loader.
        with tempfile.TemporaryDirectory(prefix="droplet_library_") as folder, self._releasing():
            link = Path(folder) / "library.so"
            link.symlink_to(f"/proc/self/fd/{self._descriptor}")
            return tvm_runtime().load_module(link)

    @contextlib.contextmanager
    def _releasing(self) -> Iterator[None]:
        """Give the pages of a large file back while TVM copies them: less memory at the peak."""
        if os.fstat(self._descriptor).st_size < _LARGE:
            yield
            return
        loaded = threading.Event()

        def release() -> None:
            while not loaded.wait(_RELEASE_SECS):
                self.release_pages()

        thread = threading.Thread(target=release, daemon=True)
        thread.start()
        try:
            yield
        finally:
            loaded.set()
            thread.join()

    def release_pages(self) -> None:
        """Give the memory of the file's read-only pages back; a page that is read comes again.

        TVM has copied the weights out of the file: with its pages they would be there twice.
        """
        release_pages({os.fstat(self._descriptor).st_ino: ""}, "r--p", PAGE_OUT)

    def copy(self, path: Path) -> None:
        """Write the library's bytes to another file."""
        # A new descriptor, because duplicates of one share their position.
        with open(f"/proc/self/fd/{self._descriptor}", "rb") as file, path.open("wb") as copy:
            shutil.copyfileobj(file, copy, _COPIED_BYTES)


def release_pages(files: Mapping[int, str], rights: str, advice: int) -> None:
    """Give the memory of mapped files back.

    ``files``: real paths by inode; an empty path for any. ``rights``: of the mappings, such as
    ``r--p``.
    """
    maps = Path("/proc/self/maps")
    for line in maps.read_text().splitlines() if files and maps.exists() else ():
        span, allowed, _, _, inode, *path = line.split(maxsplit=5)
        if allowed == rights and files.get(int(inode)) in ("", *path):
            start, end = (int(part, 16) for part in span.split("-"))
            _ADVISE_KERNEL(ctypes.c_void_p(start), ctypes.c_size_t(end - start), advice)
