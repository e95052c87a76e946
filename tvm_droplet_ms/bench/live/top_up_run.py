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
"""Child process of ``cached --top-up``: rebuild the leaders of a layer and time them in turns."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import tvm

from .cached_measure import process_name
from .environment import this_machine
from .layers import ALL_LAYERS, make_module
from .modules import module_key
from .remeasuring import rebuild
from .store import Task, serve
from .timed_passes import TimedPass
from .timing_cache import Measurement, TimingCache

REPEATS = 5
"""Repeats of a pass, each on new buffers: as many as ``PromptRunner`` gives to a candidate near the
best."""

_REPEAT_MS = 20
"""Milliseconds of a repeat, as of ``fast_measure``."""


def top_up(task: Task) -> dict[str, Any]:
    """Add ``settings["passes"]`` passes of each of ``settings["modules"]`` to the cache.

    A module that cannot be made again, or computes something else than the layer, is marked.

    Returns
    -------
    result : dict[str, Any]
        ``timed``, the number of modules timed, and ``faults`` by module.
    """
    settings = task.settings
    layer, modules = settings["layer"], settings["modules"]
    mod = make_module(ALL_LAYERS[layer])
    with TimingCache(settings["cache"], this_machine()) as cache:
        traces = cache.traces(modules)
        rebuilt = rebuild(mod, [traces[module] for module in modules])
        faults = dict(rebuilt.errors)
        for module, remade in zip(modules, rebuilt.modules, strict=True):
            if module != remade:
                faults[module] = f"its trace gives another module, {remade}"
        for module, fault in faults.items():
            cache.set_fault(module, fault)
        timers = {
            module: rebuilt.libraries[module].time_evaluator(
                "main", tvm.cpu(), number=1, repeat=1, min_repeat_ms=_REPEAT_MS
            )
            for module in modules
            if module not in faults
        }
        kept = [[_new_buffers(rebuilt.arrays)]]
        # A first round does not count: the process and its kernels are cold.
        _time_in_turns(timers, kept[0], 0)
        for number in range(settings["passes"]):
            # Buffers of earlier passes stay allocated, so that this one's lie elsewhere.
            kept.append([_new_buffers(rebuilt.arrays) for _ in range(REPEATS)])
            passes = _time_in_turns(timers, kept[-1], number)
            measured = [Measurement(key, traces[key], timed) for key, timed in passes.items()]
            cache.add(module_key(mod), layer, measured)
    return {"timed": len(timers), "faults": faults}


def _new_buffers(arrays: Sequence[np.ndarray]) -> list[Any]:
    return [tvm.runtime.tensor(array) for array in arrays]


def _time_in_turns(
    timers: Mapping[str, Any], buffers: Sequence[Sequence[Any]], first: int
) -> dict[str, TimedPass]:
    """A pass of each kernel with a repeat on each set of buffers; each pass begins with another."""
    order = list(timers)
    start = first % max(1, len(order))
    passes = {}
    for module in order[start:] + order[:start]:
        secs = tuple(float(timers[module](*arguments).mean) for arguments in buffers)
        passes[module] = TimedPass(secs, process_name(), time.time(), "top-up")
    return passes


if __name__ == "__main__":
    serve(top_up)
