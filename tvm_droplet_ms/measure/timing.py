# SPDX-License-Identifier: Apache-2.0
"""Times a candidate, in the runner's worker."""

import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import tvm
from tvm.runtime import Device, Module
from tvm.s_tir.meta_schedule.runner import EvaluatorConfig
from tvm.s_tir.meta_schedule.runner.local_runner import default_cleanup, default_run_evaluator
from tvm.s_tir.meta_schedule.utils import get_global_func_with_default_on_worker

from .allocation import allocate_safely

Allocate = Callable[[Device, Any, int], list[Any]]
Evaluate = Callable[[Module, Device, EvaluatorConfig, list[Any]], list[float]]

_COLD_START_SECS = 0.01
"""Extra seconds of a kernel's first call: pages to map, threads to start."""

_CLOCK_SECS = 2e-5
"""Extra seconds of a call that is timed alone: reading the clock, launching a kernel."""

_NUMBER_MARGIN = 1.1
"""Factor of extra calls in a repeat: TVM restarts repeats shorter than ``min_repeat_ms``."""


@dataclass(frozen=True)
class TimingConfig:
    """Settings of a runner.

    Parameters
    ----------
    evaluator : EvaluatorConfig
        How to time a candidate.
    timeout_sec : float
        The time limit of one candidate, in seconds; see ``CandidateTimer.time_limit``.
    cooldown_sec : float
        The seconds to wait after each candidate.
    alloc_repeat : int
        The number of times to allocate the arguments of each candidate.
    hopeless : float
        Give up a candidate if one call takes more than this many times the best time; infinity for
        never.
    near_best : float
        Repeat a candidate if its time is at most this many times the best time.
    near_best_repeats : int
        Minimum number of repeats of a candidate near the best. A noise estimate needs two.
    f_alloc_argument, f_run_evaluator, f_cleanup : str | Callable | None
        A function, or the name of a global function, as in TVM's runners. ``f_run_evaluator`` is
        called several times for a candidate, with different numbers of calls and repeats.

    Raises
    ------
    ValueError
        If a number is out of range.
    """

    evaluator: EvaluatorConfig
    timeout_sec: float = 30.0
    cooldown_sec: float = 0.0
    alloc_repeat: int = 1
    hopeless: float = 3.0
    near_best: float = 1.1
    near_best_repeats: int = 5
    f_alloc_argument: str | Callable[..., list[Any]] | None = None
    f_run_evaluator: str | Callable[..., list[float]] | None = None
    f_cleanup: str | Callable[[], None] | None = None

    def __post_init__(self) -> None:
        for name, below in (("timeout_sec", 0), ("hopeless", 1), ("near_best", 0)):
            if not getattr(self, name) > below:
                raise ValueError(
                    f"{name} = {getattr(self, name)}, expected a number greater than {below}"
                )
        for name, least in (("cooldown_sec", 0), ("alloc_repeat", 1), ("near_best_repeats", 1)):
            if not getattr(self, name) >= least:
                raise ValueError(f"{name} = {getattr(self, name)}, expected at least {least}")


@dataclass(frozen=True)
class Timing:
    """The times of a candidate.

    - ``secs``: the seconds of each repeat.
    - ``verdict``: "hopeless" if the candidate was given up after one call, "near best" if it got
      more repeats than the evaluator's configuration asks for, and "timed" otherwise.
    - ``load_secs``, ``timing_secs``: the seconds to load the candidate, and to fill its arguments
      and run it.
    - ``process``: the id of the process that ran the candidate.
    """

    secs: list[float]
    verdict: str
    load_secs: float
    timing_secs: float
    process: int


def prepare_to_time() -> None:
    """Make the worker server import TVM, by importing this file, before it forks."""


def time_candidate(
    config: TimingConfig, path: str, device_type: str, args_info: Any, best: float
) -> Timing:
    """Load a candidate and time it, with an early end for slow ones; see ``time_loaded``."""
    cleanup = get_global_func_with_default_on_worker(config.f_cleanup, default_cleanup)
    start = time.perf_counter()
    try:
        module = tvm.runtime.load_module(path)
        loaded = time.perf_counter()
        device = tvm.runtime.device(device_type, 0)
        secs, verdict = time_loaded(
            config,
            module,
            device,
            args_info,
            best,
            get_global_func_with_default_on_worker(config.f_alloc_argument, allocate_safely),
            get_global_func_with_default_on_worker(config.f_run_evaluator, default_run_evaluator),
            # On other devices the first call may load the kernel, which takes much longer than a
            # run.
            has_wall_clock=config.f_run_evaluator is None and device_type == "cpu",
        )
        end = time.perf_counter()
    finally:
        cleanup()
    time.sleep(config.cooldown_sec)
    return Timing(secs, verdict, loaded - start, end - loaded, os.getpid())


def time_loaded(
    config: TimingConfig,
    module: Module,
    device: Device,
    args_info: Any,
    best: float,
    allocate: Allocate,
    run_evaluator: Evaluate,
    *,
    has_wall_clock: bool,
) -> tuple[list[float], str]:
    """Time a loaded module, with an early end for slow ones.

    - ``args_info``: the shapes and types of the arguments, in the format of ``ArgInfo.as_json``.
    - ``best``: the best time of the task so far, in seconds; infinity if there is none.
    - ``has_wall_clock``: whether the wall clock of this process can time the first call.

    Returns ``secs`` and ``verdict`` of ``Timing``.
    """

    def evaluate(evaluator: EvaluatorConfig, arguments: list[Any]) -> list[float]:
        return [float(secs) for secs in run_evaluator(module, device, evaluator, arguments)]

    limit = config.hopeless * best
    arguments = allocate(device, args_info, config.alloc_repeat)
    if has_wall_clock:
        first = _first_call(module, device, arguments[0])
        if first > limit + _COLD_START_SECS:
            return [first], "hopeless"
    call = evaluate(config.evaluator._replace(number=1, repeat=1, min_repeat_ms=0), arguments[:1])
    if not call or call[0] > limit + _CLOCK_SECS:
        return call, "hopeless"
    evaluator = _with_number(config.evaluator, call[0])
    secs = evaluate(evaluator, arguments)
    is_enough = len(secs) >= config.near_best_repeats
    if not secs or is_enough or fmean(secs) > config.near_best * best:
        return secs, "timed"
    while len(secs) < config.near_best_repeats:
        # Allocate new arguments before freeing the old ones, so that their addresses differ: some
        # kernels are twice as fast at some addresses, which repeats at the same address would hide.
        arguments = allocate(device, args_info, 1)
        repeat = evaluate(evaluator._replace(repeat=1), arguments)
        if not repeat:
            return repeat, "near best"
        secs += repeat
    return secs, "near best"


def _first_call(module: Module, device: Device, arguments: Any) -> float:
    """Return the seconds of the first call, by the wall clock."""
    device.sync()
    start = time.perf_counter()
    module[module.entry_name](*arguments)
    device.sync()
    return time.perf_counter() - start


def _with_number(evaluator: EvaluatorConfig, call_secs: float) -> EvaluatorConfig:
    """Set the number of calls for ``min_repeat_ms``, which TVM would find by trial runs."""
    if evaluator.enable_cpu_cache_flush or not call_secs > 0.0:
        return evaluator
    number = math.ceil(_NUMBER_MARGIN * evaluator.min_repeat_ms / 1e3 / max(call_secs, 1e-9))
    return evaluator._replace(number=max(evaluator.number, number))
