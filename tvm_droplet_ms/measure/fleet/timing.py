# SPDX-License-Identifier: Apache-2.0
"""Timing of a candidate on a server, from a worker of this machine."""

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
    """Time a candidate, with an early end for slow ones; see ``time_candidate``.

    - ``path``: the artefact, on this machine.
    - ``device_type``: TVM's name of the device's type.
    - ``args_info``: the shapes and types of the arguments, as ``ArgInfo.as_json`` gives them.
    - ``best``: the best time of the task so far, in seconds; infinity if there is none.
    - ``threads``: the threads of kernels; None for those of the server.

    Returns the repeats that were taken.
    """
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
        has_wall_clock=False,  # It would time the network too.
    )
    end = time.perf_counter()
    time.sleep(config.cooldown_sec)
    return Timing(secs, verdict, loaded - start, end - loaded, os.getpid())
