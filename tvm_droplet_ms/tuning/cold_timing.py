# Licensed to the Apache Software Foundation (ASF) under one
# or more contributor license agreements.  See the NOTICE file
# distributed with this work for additional information
# regarding copyright ownership.  The ASF licenses this file
# to you under the Apache License, Version 2.0 (the
# "License"); you may not use this file except in compliance
# with the License.  You may obtain a copy of the License at
#
#   http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing,
# software distributed under the License is distributed on an
# "AS IS" BASIS, WITHOUT WARRANTIES OR CONDITIONS OF ANY
# KIND, either express or implied.  See the License for the
# specific language governing permissions and limitations
# under the License.
"""Times a kernel as it runs inside a model: its input is in the caches, its weights are not.

Between two calls of a kernel the model runs all others, so that its weights come from the memory
again. Repeated calls of the kernel alone find them in the caches.
"""

import time
from statistics import median
from typing import Any

from tvm_ffi import get_global_func

from tvm.runtime import Device, Module
from tvm.s_tir.meta_schedule.runner import EvaluatorConfig

from .kept_arguments import bytes_of

MOST_CALLS, FEWEST_CALLS = 15, 3
"""Calls of a repeat; each is timed alone."""

FLUSHED_BYTES = 256 << 20
"""Bytes to flush in a repeat, beyond the fewest calls: a flush takes half a nanosecond a byte, also
of what is in no cache."""

EVICTING_BYTES = 128 << 20
"""An argument of as many bytes evicts itself and all others from the caches, and is not flushed."""

_FLUSH = "cache_flush_cpu_non_first_arg"
"""TVM's function that flushes all arguments but the first (``rpc_session.cc``)."""


def time_cold(
    module: Module, device: Device, config: EvaluatorConfig, repeated_args: list[Any]
) -> list[float]:
    """Time a kernel with cold weights; ``f_run_evaluator`` of a ``PromptRunner``.

    Parameters
    ----------
    module : Module
        The kernel.
    device : Device
        A CPU.
    config : EvaluatorConfig
        ``repeat`` repeats of ``number`` calls, at most ``MOST_CALLS``, and fewer of large
        arguments. A single call that takes ``min_repeat_ms`` by itself needs no other one before.
    repeated_args : list[Any]
        Sets of arguments, the input first.

    Returns
    -------
    secs : list[float]
        The median seconds of the calls of each repeat, for one set of arguments after the other.
    """
    is_long = config.number == 1 and config.min_repeat_ms > 0
    secs: list[float] = []
    for arguments in repeated_args:
        if not is_long:
            module[module.entry_name](*arguments)
        for _ in range(config.repeat):
            timed = _time_long if is_long else _time_calls
            secs.append(timed(module, device, config.number, arguments))
    return secs


def _time_calls(module: Module, device: Device, number: int, arguments: Any) -> float:
    sizes = [bytes_of(argument) for argument in arguments[1:]]
    affordable = max(FEWEST_CALLS, FLUSHED_BYTES // max(1, sum(sizes)))
    evaluate = module.time_evaluator(
        module.entry_name,
        dev=device,
        number=1,
        repeat=min(number, MOST_CALLS, affordable),
        min_repeat_ms=0,
        f_preproc="" if _evicts(arguments) else _FLUSH,
    )
    return float(median(evaluate(*arguments).results))


def _time_long(module: Module, device: Device, _number: int, arguments: Any) -> float:
    """The seconds of one call. TVM's evaluator would make another one before."""
    kernel = module[module.entry_name]
    if not _evicts(arguments):
        get_global_func(_FLUSH)(*arguments)
    device.sync()
    start = time.perf_counter()
    kernel(*arguments)
    device.sync()
    return time.perf_counter() - start


def _evicts(arguments: Any) -> bool:
    return any(bytes_of(argument) >= EVICTING_BYTES for argument in arguments[1:])
