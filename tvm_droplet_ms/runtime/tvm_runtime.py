# SPDX-License-Identifier: Apache-2.0
"""Loads TVM's runtime without its compiler, and sets its threads. Imports no TVM."""

import ctypes
import filecmp
import importlib.util
import os
import sys
import threading
from functools import cache
from pathlib import Path
from typing import Any

from .errors import SessionError

_LIBRARY, _EXTRA = "libtvm_runtime.so", "libtvm_runtime_extra.so"
"""TVM's runtime, and its functions that sort and draw."""

_THREADS = "runtime.NumThreads"
"""TVM's function that gives the number of threads."""

_BIG_CORES = 1
"""The mode kBig of TVM's ``src/runtime/threading_backend.cc``."""

_BUNDLED = Path(__file__).parents[1] / "lib"
"""Where a bundle of ``droplet-ms bundle`` has TVM's libraries."""


def _import_ffi() -> Any:
    """Import tvm_ffi, which would import PyTorch: seconds, and 200 MB that nobody asked for."""
    if "torch" in sys.modules or "tvm_ffi" in sys.modules:
        import tvm_ffi

        return tvm_ffi
    sys.modules["torch"] = None  # type: ignore[assignment]
    try:
        import tvm_ffi
    finally:
        del sys.modules["torch"]
    return tvm_ffi


@cache
def tvm_runtime() -> Any:
    """Load TVM's runtime library, once; return the module ``tvm_ffi``.

    Raises ``SessionError`` if neither apache-tvm nor a bundle beside this file has the library.
    """
    ffi = _import_ffi()
    # TVM's own package, or a program that was built with TVM, has loaded it.
    if ffi.get_global_func(_THREADS, allow_missing=True) is not None:
        return ffi
    spec = importlib.util.find_spec("tvm")
    folders = [Path(place, "lib") for place in (spec and spec.submodule_search_locations) or ()]
    found = [folder / _LIBRARY for folder in (_BUNDLED, *folders) if (folder / _LIBRARY).exists()]
    if not found:
        raise SessionError(
            f"{_LIBRARY} is neither in {_BUNDLED} nor in the package apache-tvm: "
            "pip install 'apache-tvm>=0.27,<0.28', or use `droplet-ms bundle`"
        )
    # The installed one if it is the same: the process may import TVM later, and a second copy of
    # the runtime would end it.
    same = [path for path in found[1:] if filecmp.cmp(path, found[0], shallow=False)]
    library = (same or found)[0]
    ctypes.CDLL(os.fspath(library), ctypes.RTLD_GLOBAL)
    if (extra := library.with_name(_EXTRA)).exists():
        ctypes.CDLL(os.fspath(extra), ctypes.RTLD_GLOBAL)
    return ffi


class _Pool(threading.local):
    """The threads of TVM's pool for the calling thread; 0 before the first call."""

    threads = 0


_pool = _Pool()


def use_threads(count: int) -> None:
    """Run the kernels that this thread calls on some threads of TVM's pool.

    Raises ``SessionError`` if the pool of this thread has started with fewer: it never grows.
    """
    if _pool.threads == count:
        return
    ffi = tvm_runtime()
    # The pool of a thread starts with as many, and never grows.
    if not _at_least(os.environ.get("TVM_NUM_THREADS", ""), count):
        os.environ["TVM_NUM_THREADS"] = str(count)
    # A bound worker and a caller on the same core take turns.
    os.environ.setdefault("TVM_BIND_THREADS", "0")
    ffi.get_global_func("runtime.config_threadpool")(_BIG_CORES, count)
    running = int(ffi.get_global_func(_THREADS)())
    if running != count:
        raise SessionError(
            f"threads={count}: TVM's thread pool of this thread has started with {running}; open "
            f"the session with the most threads first, or set TVM_NUM_THREADS={count} before the "
            "process starts"
        )
    _pool.threads = count


def forget_threads() -> None:
    """Note that something else has changed the threads of TVM's pool for the calling thread."""
    _pool.threads = 0


def _at_least(text: str, count: int) -> bool:
    return text.isdigit() and int(text) >= count
