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
"""Ratios of latencies over layers and seeds, with bootstrap intervals. Imports no TVM."""

import math
import random
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .trials import Trial, first_within

_DRAWS = 10_000

RATIOS = Mapping[str, Sequence[float]]
"""For each layer the ratios of its seeds."""


@dataclass(frozen=True)
class Run:
    """A finished run of one method on one layer with one seed.

    Parameters
    ----------
    trials : Sequence[Trial]
        In the order of measurement.
    wall_secs : float
        The seconds of tuning.
    proposing_secs : float
        The seconds that were spent neither building, nor running, nor updating the cost model.
    environment : str
        The machine and the versions.
    """

    trials: Sequence[Trial]
    wall_secs: float
    proposing_secs: float
    environment: str

    @staticmethod
    def from_json(content: Mapping[str, Any]) -> "Run":
        """Read a result of ``tuning.tune``."""
        profile = content["profile"]
        measuring = sum(profile.get(scope, 0.0) for scope in _NOT_PROPOSING)
        return Run(
            [Trial.from_json(trial) for trial in content["trials"]],
            content["wall_secs"],
            content["wall_secs"] - measuring,
            content["environment"],
        )


_NOT_PROPOSING = (
    "SendToBuilder",
    "SendToRunner",
    "JoinRunnerFutures",
    "InitializeTask",
    "MeasureCallback/UpdateCostModel",
    "MeasureCallback/AddToDatabase",
    "MeasureCallback/PyMeasureCallback",
    "MeasureCallback/RemoveBuildArtifact",
)
"""Scopes of ``ms.Profiler``. Search strategies' scopes nest; proposing is the remaining time."""


@dataclass
class LayerResults:
    """The runs of one layer and their winners.

    Parameters
    ----------
    runs : dict
        Runs by method and seed.
    kernels : dict
        The re-measured winner by method, seed and checkpoint: ``error``, ``median`` and
        ``quartiles`` in seconds.
    """

    runs: dict[tuple[str, int], Run] = field(default_factory=dict)
    kernels: dict[tuple[str, int, int], dict[str, Any]] = field(default_factory=dict)

    def latency(self, method: str, seed: int, checkpoint: int) -> float | None:
        """The re-measured latency in seconds; None where there is none."""
        kernel = self.kernels.get((method, seed, checkpoint))
        return None if kernel is None else kernel["median"]

    def ratio(self, baseline: str, method: str, seed: int, checkpoint: int) -> float | None:
        """The latency of the baseline over that of a method with the same seed: above 1, the method
        is faster."""
        ours = self.latency(method, seed, checkpoint)
        theirs = self.latency(baseline, seed, checkpoint)
        return None if ours is None or theirs is None else theirs / ours

    def flattery(self, method: str, seed: int, checkpoint: int) -> float | None:
        """The re-measured latency of a winner over its record: above 1, the record was lucky."""
        latency = self.latency(method, seed, checkpoint)
        run = self.runs.get((method, seed))
        if latency is None or run is None:
            return None
        records = [trial.secs for trial in run.trials[:checkpoint] if trial.secs is not None]
        return latency / min(records) if records else None

    def trials_to_baseline(
        self, baseline: str, method: str, seed: int, checkpoint: int
    ) -> int | None:
        """The first trial of a method whose record is as fast as the baseline's re-measured winner
        of the same seed; None if there is none."""
        latency = self.latency(baseline, seed, checkpoint)
        run = self.runs.get((method, seed))
        return None if latency is None or run is None else first_within(run.trials, latency)


def ratios_of(
    layers: Mapping[str, LayerResults],
    baseline: str,
    method: str,
    seeds: Iterable[int],
    checkpoint: int,
) -> dict[str, list[float]]:
    """The ratios that are known, for each layer that has one."""
    found = {}
    for name, results in layers.items():
        ratios = [results.ratio(baseline, method, seed, checkpoint) for seed in seeds]
        known = [ratio for ratio in ratios if ratio is not None]
        if known:
            found[name] = known
    return found


def mean_ratio(ratios: RATIOS) -> float:
    """The geometric mean over the layers of the geometric means over their seeds."""
    return math.exp(statistics.fmean(_mean_log(seeds) for seeds in ratios.values()))


def worst_layer(ratios: RATIOS) -> tuple[str, float]:
    """The layer with the smallest geometric mean over its seeds, and this mean."""
    means = {name: math.exp(_mean_log(seeds)) for name, seeds in ratios.items()}
    name = min(means, key=lambda layer: means[layer])
    return name, means[name]


def interval(ratios: RATIOS, *, draws: int = _DRAWS) -> tuple[float, float]:
    """The 95% bootstrap interval of ``mean_ratio``: draws layers, then seeds of each.

    Parameters
    ----------
    ratios : Mapping[str, Sequence[float]]
        The ratios of each layer; not empty.
    draws : int
        Number of bootstrap samples.
    """
    logs = [[math.log(ratio) for ratio in seeds] for seeds in ratios.values()]
    generator = random.Random(0)
    means = sorted(
        statistics.fmean(
            statistics.fmean(generator.choices(of_layer, k=len(of_layer)))
            for of_layer in generator.choices(logs, k=len(logs))
        )
        for _ in range(draws)
    )
    low, high = (math.exp(means[round(share * (draws - 1))]) for share in (0.025, 0.975))
    return low, high


def _mean_log(ratios: Iterable[float]) -> float:
    return statistics.fmean(map(math.log, ratios))
