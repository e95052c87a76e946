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
"""Times the leaders of a comparison again until their truth is settled. Imports no TVM."""

import time
from collections.abc import Sequence
from pathlib import Path

from .cached_results import CachedRun, winners_of
from .store import ResultError, ResultStore
from .timed_passes import ENOUGH_PASSES, ENOUGH_PROCESSES, unsettled
from .timing_cache import TimingCache

PASSES = -(-ENOUGH_PASSES // ENOUGH_PROCESSES)
"""Passes that one process takes of each leader."""


def top_up_all(
    cache_path: Path, out: Path, runs: Sequence[CachedRun], checkpoints: Sequence[int]
) -> None:
    """Time all leaders that have too few passes, one process after the other.

    A module that was lucky once falls back when it is timed again. Then others are within reach of
    the best, and are timed too.

    Parameters
    ----------
    cache_path : Path
        The file of timings.
    out : Path
        The directory of the results; the processes' logs are in ``top_up`` there.
    runs : Sequence[CachedRun]
        The runs of all variants.
    checkpoints : Sequence[int]
        The trials at which a run's best module is a leader.

    Raises
    ------
    ResultError
        If a process failed.
    """
    winners = winners_of(runs, checkpoints)
    layers = {run.workload: run.layer for run in runs}
    with TimingCache(cache_path) as cache:
        for workload, layer in layers.items():
            while lacking := unsettled(winners[workload], cache.passes(workload)):
                print(f"{layer}: {len(lacking)} leaders to time", flush=True)
                _time(cache_path, out / "top_up", layer, lacking)


def _time(cache_path: Path, out: Path, layer: str, modules: Sequence[str]) -> None:
    settings = {
        "layer": layer,
        "cache": str(cache_path.resolve()),
        "modules": list(modules),
        "passes": PASSES,
        "begun": time.time(),
    }
    name = f"{layer}-{time.time_ns()}"
    if ResultStore(out).get(name, "top_up_run", settings) is None:
        raise ResultError(f"the leaders of {layer} were not timed, see {out / name}.log")
