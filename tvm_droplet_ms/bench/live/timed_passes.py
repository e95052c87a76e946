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
"""Timings of modules: which one a run sees, and what they say together. Imports no TVM.

A pass is one measurement of a module, with its repeats. The truth of a module is the median of the
means of its passes, as soon as there are enough passes of enough processes: some kernels are twice
as fast in one process as in the next.
"""

import hashlib
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

ENOUGH_PASSES = 9
"""Passes of a module whose truth is settled."""

ENOUGH_PROCESSES = 3
"""Processes that they come from."""

NEAR_BEST = 1.05
"""A module that takes at most this many times a layer's best is among its leaders."""


@dataclass(frozen=True)
class TimedPass:
    """One measurement of a module.

    Parameters
    ----------
    run_secs : tuple[float, ...]
        The seconds of each repeat; at least one.
    process : str
        The process that timed it.
    taken : float
        When it was taken, as ``time.time()`` gives it.
    source : str
        "search" for a trial, "top-up" for a leader that was timed again.
    """

    run_secs: tuple[float, ...]
    process: str
    taken: float
    source: str = "search"

    @property
    def secs(self) -> float:
        """The mean of the repeats, by which TVM's database ranks."""
        return statistics.fmean(self.run_secs)


@dataclass(frozen=True)
class StoredFailure:
    """The failure of a module that cannot be measured.

    Parameters
    ----------
    kind : str
        "build", or the ``FailureKind`` of the runner.
    message : str
        The error message of the result.
    """

    kind: str
    message: str


Outcome = TimedPass | StoredFailure


def choose_pass(seed: int, module: str, count: int) -> int:
    """The number of the pass that all runs with a seed get for a module.

    Parameters
    ----------
    seed : int
        The seed of the run.
    module : str
        The key of the module.
    count : int
        The number of passes; at least 1.

    Returns
    -------
    number : int
        From 0 to ``count - 1``, alike for all to be drawn.
    """
    digest = hashlib.sha256(f"{seed} {module}".encode()).digest()
    return int.from_bytes(digest[:8], "big") % count


def truth(passes: Sequence[TimedPass]) -> float:
    """The median over the passes of the means of their repeats, in seconds."""
    return statistics.median(timed.secs for timed in passes)


def is_settled(passes: Sequence[TimedPass]) -> bool:
    """Whether there are enough passes of enough processes."""
    processes = {timed.process for timed in passes}
    return len(passes) >= ENOUGH_PASSES and len(processes) >= ENOUGH_PROCESSES


def leaders(winners: Iterable[str], passes: Mapping[str, Sequence[TimedPass]]) -> list[str]:
    """The modules of a layer whose truth matters.

    Parameters
    ----------
    winners : Iterable[str]
        The best module of each run at each checkpoint.
    passes : Mapping[str, Sequence[TimedPass]]
        The passes of each module of the layer that counts; modules that compute something else
        are left out.

    Returns
    -------
    modules : list[str]
        The winners that count, and all modules within ``NEAR_BEST`` of the best; sorted.
    """
    times = {module: truth(of_module) for module, of_module in passes.items()}
    limit = NEAR_BEST * min(times.values(), default=0.0)
    near = {module for module, secs in times.items() if secs <= limit}
    return sorted(near | (set(winners) & times.keys()))


def unsettled(winners: Iterable[str], passes: Mapping[str, Sequence[TimedPass]]) -> list[str]:
    """The leaders that have to be timed again."""
    return [module for module in leaders(winners, passes) if not is_settled(passes[module])]


def best_truth(passes: Mapping[str, Sequence[TimedPass]]) -> float | None:
    """The smallest truth of a layer's modules, of the settled ones if there are any.

    The fastest of many single timings is a lucky one, so that those count only for want of better.
    """
    settled = [of_module for of_module in passes.values() if is_settled(of_module)]
    return min(map(truth, settled or passes.values()), default=None)
