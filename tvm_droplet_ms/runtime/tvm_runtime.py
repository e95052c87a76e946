# SPDX-License-Identifier: Apache-2.0
"""Loads TVM's runtime without its compiler, and sets its threads. Imports no TVM."""

import ctypes
import importlib.util
import os
import sys
import threading
from functools import cache
from pathlib import Path
from typing import Any

from .errors import SessionError

_LIBRARY = "libtvm_runtime.so"

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
    # A library beside a Python of the same TVM is the same library: it is not loaded twice.
    spec = importlib.util.find_spec("tvm")
    places = [Path(place, "lib") for place in (spec and spec.submodule_search_locations) or ()]
    for folder in (_BUNDLED, *places):
        if (folder / _LIBRARY).exists():
            ctypes.CDLL(os.fspath(folder / _LIBRARY), ctypes.RTLD_GLOBAL)
            return ffi
    raise SessionError(
        f"{_LIBRARY} is neither in {_BUNDLED} nor in the package apache-tvm: "
        "pip install 'apache-tvm>=0.27,<0.28', or use `droplet-ms bundle`"
    )


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
    os.environ["TVM_NUM_THREADS"] = str(count)
    # A bound worker and a caller on the same core take turns.
    os.environ.setdefault("TVM_BIND_THREADS", "0")
    ffi.get_global_func("runtime.config_threadpool")(_BIG_CORES, count)
    running = int(ffi.get_global_func("runtime.NumThreads")())
    if running != count:
        raise SessionError(
            f"threads={count}: TVM's thread pool of this thread has started with {running}; open "
            f"the session with the most threads first, or set TVM_NUM_THREADS={count}"
        )
    _pool.threads = count
