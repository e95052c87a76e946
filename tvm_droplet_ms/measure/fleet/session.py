# SPDX-License-Identifier: Apache-2.0
"""A session on a server, held by a worker process of this machine.

TVM's client blocks in C++ while a server is silent, so it runs in a process that can be killed.
"""

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from tvm import rpc
from tvm.error import RPCError, RPCSessionTimeoutError
from tvm.rpc import RPCSession
from tvm.s_tir.meta_schedule.runner.rpc_runner import default_run_evaluator
from tvm.s_tir.meta_schedule.utils import get_global_func_with_default_on_worker

from ..allocation import allocate_safely_on_server
from ..failures import TIME_LIMIT, Failure
from ..timing import Timing, TimingConfig, time_loaded
from .tracker import Lease

CONNECT_SECS = 10.0
"""Maximum seconds for a server to answer a connection."""

CRASHED = "its session ended: "
"""Prefix of the error from a ``droplet-ms serve`` server whose kernel ended its process."""


@dataclass(frozen=True)
class Lost:
    """A session that ended without an answer.

    ``was_reached``: whether the session was opened. ``message``: the client's error.
    """

    was_reached: bool
    message: str


class ServerFault(RuntimeError):
    """A server failed an operation independent of the candidate, such as taking a file."""


def call_on_server(
    lease: Lease, limit: float, function: Callable[..., Any], arguments: tuple[Any, ...]
) -> Any:
    """Open a session and call a function with it, in a worker; see ``Remote.call``.

    Returns the function's result, or a ``Failure`` or ``Lost`` if there is none.
    """
    session = _connect(lease, limit)
    if isinstance(session, Lost):
        return session
    try:
        return function(session, *arguments)
    except RPCSessionTimeoutError:
        return Failure("timeout", f"killed after {limit:g} s, {TIME_LIMIT}")
    except ServerFault as error:
        return Failure("machinery", f"the server {lease}: {error}")
    except RPCError as error:
        message = str(error).removeprefix("RPCError: Error caught from RPC call:\n")
        return Failure("crash" if CRASHED in message else "error", message)
    except Exception as error:
        if _answers(session):
            return Failure("error", f"{type(error).__name__}: {error}")
        return Lost(True, str(error))


def _connect(lease: Lease, limit: float) -> RPCSession | Lost:
    found: list[RPCSession | Lost] = []

    def connect() -> None:
        try:
            found.append(rpc.connect(lease.host, lease.port, lease.match_key, limit))
        except Exception as error:
            found.append(Lost(False, str(error)))

    # Connecting to a machine that is off fails only after minutes.
    thread = threading.Thread(target=connect, daemon=True)
    thread.start()
    thread.join(CONNECT_SECS)
    return found[0] if found else Lost(False, f"no answer within {CONNECT_SECS:g} s")


def _answers(session: RPCSession) -> bool:
    """True if a session still takes calls."""
    try:
        session.get_function("tvm.rpc.server.workpath")
    except RPCError:
        return True
    except Exception:
        return False
    return True


def upload(session: RPCSession, path: str, name: str) -> None:
    """Send a file to a session's directory.

    Raises ``ServerFault`` if the server cannot write the file, or does not take it within the
    session's time limit.
    """
    try:
        session.upload(path, name)
    except RPCError as error:
        raise ServerFault(f"it did not take {name}: {error}") from error


def set_threads(session: RPCSession, threads: int) -> None:
    """Set the number of threads that kernels use on the server.

    Raises ``ServerFault`` if the server has fewer threads.
    """
    count = session.get_function("runtime.NumThreads")
    if count() != threads:
        session.get_function("runtime.config_threadpool")(1, threads)
    if count() != threads:
        raise ServerFault(
            f"it has {count()} threads, and {threads} are asked for: start it with "
            f"TVM_NUM_THREADS={threads}"
        )


def time_on_server(
    session: RPCSession,
    config: TimingConfig,
    path: str,
    device_type: str,
    args_info: Any,
    best: float,
    threads: int | None,
) -> Timing:
    """Upload a candidate and time it as ``time_candidate`` does; ``threads`` is None for all."""
    allocate = get_global_func_with_default_on_worker(
        config.f_alloc_argument, allocate_safely_on_server
    )
    evaluate = get_global_func_with_default_on_worker(config.f_run_evaluator, default_run_evaluator)
    start = time.perf_counter()
    if threads is not None:
        set_threads(session, threads)
    name = os.path.basename(path)
    upload(session, path, name)
    module = session.load_module(name)
    loaded = time.perf_counter()
    device = session.device(device_type, 0)
    secs, verdict = time_loaded(
        config,
        module,
        device,
        args_info,
        best,
        partial(allocate, session),
        partial(evaluate, session),
        has_wall_clock=False,  # The wall clock would include the network.
    )
    end = time.perf_counter()
    time.sleep(config.cooldown_sec)
    return Timing(secs, verdict, loaded - start, end - loaded, os.getpid())
