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

from statistics import median
from typing import Any

from tvm.runtime import Device, Module
from tvm.s_tir.meta_schedule.runner import EvaluatorConfig

MOST_CALLS = 15
"""Calls of a repeat; each is timed alone."""

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
        ``repeat`` repeats of ``number`` calls, at most ``MOST_CALLS``.
    repeated_args : list[Any]
        Sets of arguments, the input first.

    Returns
    -------
    secs : list[float]
        The median seconds of the calls of each repeat, for one set of arguments after the other.
    """
    secs: list[float] = []
    for arguments in repeated_args:
        module[module.entry_name](*arguments)
        for _ in range(config.repeat):
            evaluate = module.time_evaluator(
                module.entry_name,
                dev=device,
                number=1,
                repeat=min(config.number, MOST_CALLS),
                min_repeat_ms=0,
                f_preproc=_FLUSH,
            )
            secs.append(median(evaluate(*arguments).results))
    return secs
