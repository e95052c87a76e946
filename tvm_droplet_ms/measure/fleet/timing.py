# SPDX-License-Identifier: Apache-2.0
"""Times a candidate on a server, from a worker of this machine."""

import os
import time
from functools import partial
from typing import Any

from tvm.rpc import RPCSession
from tvm.s_tir.meta_schedule.runner.rpc_runner import default_run_evaluator
from tvm.s_tir.meta_schedule.utils import get_global_func_with_default_on_worker

from ..allocation import allocate_safely_on_server
from ..timing import Timing, TimingConfig, time_loaded
from .session import set_threads, upload


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
