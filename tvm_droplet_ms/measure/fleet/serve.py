# SPDX-License-Identifier: Apache-2.0
"""Starts an RPC server of TVM that outlives kernel crashes.

When the process of a session ends with an error, TVM's server stops listening and leaves its
tracker, but its program keeps running (``_serving`` and ``_listen_loop`` in ``rpc/server.py``). So
one crashing kernel takes a machine out of the fleet.
"""

import os
import re
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

from tvm import rpc
from tvm.rpc import server as tvm_server

from .session import CRASHED
from .tracker import Tracker

PORTS = (9090, 9199)
"""The range of ports to try; the end is excluded."""

_ORPHAN_SECS = 1.0
"""Seconds between checks that the other process, the command or the listener, is alive."""


def serve(
    tracker: str,
    key: str,
    *,
    host: str = "127.0.0.1",
    port: int | None = None,
    threads: int | None = None,
    on_start: Callable[[str], None] = print,
) -> None:
    """Serve until SIGINT or SIGTERM.

    A server runs any code that it receives, as the user who started it, for anyone who can reach
    its port: expose it to trusted networks only.

    - ``tracker``: ``HOST:PORT`` of the tracker.
    - ``key``: the key to register under.
    - ``host``: the address to listen on.
    - ``port``: the port; None for a free one of ``PORTS``.
    - ``threads``: maximum number of threads of a kernel; None for TVM's default, half of the
      logical CPUs.
    - ``on_start``: called with the server's address.

    Raises ``FleetError`` if the tracker does not answer. Raises ``OSError``, ``ValueError``,
    ``RuntimeError`` if the port is taken or the server cannot be started.
    """
    known = Tracker(tracker)
    known.servers(key)
    if threads is not None:
        os.environ["TVM_NUM_THREADS"] = str(threads)
    first, last = PORTS if port is None else (port, port + 1)
    process = os.getpid()
    server = rpc.Server(
        host,
        first,
        last,
        key=key,
        tracker_addr=known.host_and_port,
        server_init_callback=_Outliving(process),
    )
    end = threading.Event()

    def stop(_number: int, _frame: FrameType | None) -> None:
        end.set()

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        on_start(f"{host}:{server.port}")
        while not end.wait(_ORPHAN_SECS) and server.proc.is_alive():
            pass
    finally:
        server.terminate()
        for number, handler in before.items():
            signal.signal(number, handler)


class _Outliving:
    """Prepares the listening process, before it listens, to outlive crashed sessions."""

    def __init__(self, parent: int) -> None:
        self._parent = parent

    def __call__(self) -> None:
        # The command handles Ctrl-C.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        threading.Thread(target=self._end_with_parent, daemon=True).start()
        serve_session = tvm_server._serving

        def serving(sock: Any, address: Any, options: Any, load_library: Any) -> None:
            directory = os.getcwd()
            try:
                serve_session(sock, address, options, load_library)
            except RuntimeError as error:  # The process of the session ended with an error.
                words = _describe(str(error))
                tvm_server.logger.warning("the session of %s: %s", address, words)
                tvm_server._ffi_api.ReturnException(sock.fileno(), f"{CRASHED}{words}")
            finally:
                os.chdir(directory)
                sock.close()

        tvm_server._serving = serving

    def _end_with_parent(self) -> None:
        while os.getppid() == self._parent:
            time.sleep(_ORPHAN_SECS)
        os._exit(1)


def _describe(error: str) -> str:
    """Name the signal or exit status in TVM's message about an ended process."""
    found = re.search(r"error code (-?\d+)", error)
    if found is None:
        return error
    code = int(found.group(1))
    if -code in set(signal.Signals):
        return f"its process was ended by {signal.Signals(-code).name}"
    return f"its process ended with status {code}"
