# SPDX-License-Identifier: Apache-2.0
"""Runs of a live comparison, and the ratios of their latencies. Imports no TVM."""

import csv
import math
import random
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_DRAWS = 10_000
"""Number of bootstrap samples for an interval."""

_LATENCY = "us_at_"
"""The name prefix of latency columns."""

RATIOS = Mapping[str, Sequence[float]]
"""The ratios of each layer, one per seed."""


@dataclass(frozen=True)
class Trial:
    """One measured candidate.

    - ``secs``: the recorded time in seconds: the mean of the repeats, by which TVM's database ranks
      schedules; None for a failure.
    - ``elapsed``: the seconds from the start of tuning until the result of the trial's batch
      arrived.
    - ``error``: the error of a failure.
    - ``trace``: the JSON of the trace if the trial was faster than all earlier trials, else None.
    """

    secs: float | None
    elapsed: float
    error: str | None = None
    trace: Any = None

    @property
    def rank(self) -> float:
        """The recorded time in seconds; infinity for a failure."""
        return math.inf if self.secs is None else self.secs


def best_trial(trials: Sequence[Trial], checkpoint: int) -> Trial | None:
    """The fastest of the first `checkpoint` trials by record; None if all of them failed."""
    best = min(trials[:checkpoint], key=lambda trial: trial.rank, default=None)
    return best if best is not None and best.secs is not None else None


@dataclass(frozen=True)
class Run:
    """A finished run of one method on one layer with one seed.

    - ``trials``: the trials in the order of measurement.
    - ``proposing_secs``: the tuning seconds outside the scopes ``_NOT_PROPOSING``, such as
      building, running and updating the cost model.
    - ``environment``: the machine and the versions.
    """

    trials: Sequence[Trial]
    wall_secs: float
    proposing_secs: float
    environment: str

    @staticmethod
    def from_json(content: Mapping[str, Any]) -> "Run":
        """Read a result of ``tuning.tune``."""
        measuring = sum(content["profile"].get(scope, 0.0) for scope in _NOT_PROPOSING)
        return Run(
            [Trial(**trial) for trial in content["trials"]],
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
"""Scopes of ``ms.Profiler`` that do not count as proposing. Proposing is the remaining time,
because the scopes of search strategies nest."""


@dataclass
class LayerResults:
    """The runs of one layer and their winners.

    ``runs``: the runs by method and seed. ``latencies``: the re-measured latency of each winner in
    seconds, by method, seed and checkpoint.
    """

    runs: dict[tuple[str, int], Run] = field(default_factory=dict)
    latencies: dict[tuple[str, int, int], float] = field(default_factory=dict)

    def ratio(
        self, baseline: str, method: str, seed: int, checkpoint: int, beside: int | None = None
    ) -> float | None:
        """The ratio of the baseline's latency to the method's with the same seed. Above 1, the
        method is faster. ``beside``: the baseline's checkpoint; None for the same checkpoint."""
        ours = self.latencies.get((method, seed, checkpoint))
        theirs = self.latencies.get((baseline, seed, beside or checkpoint))
        return None if ours is None or theirs is None else theirs / ours

    def flattery(self, method: str, seed: int, checkpoint: int) -> float | None:
        """A winner's re-measured latency divided by its record. Above 1, the record was lucky."""
        latency, run = self.latencies.get((method, seed, checkpoint)), self.runs.get((method, seed))
        best = None if run is None else best_trial(run.trials, checkpoint)
        return None if latency is None or best is None else latency / best.rank

    def trials_to_baseline(
        self, baseline: str, method: str, seed: int, checkpoint: int
    ) -> int | None:
        """The number of the method's first trial whose record is as fast as the baseline's
        re-measured winner with the same seed; None if there is none."""
        latency, run = self.latencies.get((baseline, seed, checkpoint)), self.runs[method, seed]
        if latency is None:
            return None
        reached = (n for n, trial in enumerate(run.trials, 1) if trial.rank <= latency)
        return next(reached, None)


def ratios_of(
    layers: Mapping[str, LayerResults],
    baseline: str,
    method: str,
    seeds: Iterable[int],
    checkpoint: int,
    beside: int | None = None,
) -> dict[str, list[float]]:
    """The known ratios of each layer that has any; see ``LayerResults.ratio``."""
    found = {}
    for name, results in layers.items():
        ratios = [results.ratio(baseline, method, seed, checkpoint, beside) for seed in seeds]
        known = [ratio for ratio in ratios if ratio is not None]
        if known:
            found[name] = known
    return found


def mean_ratio(ratios: RATIOS) -> float:
    """The geometric mean over the layers of each layer's geometric mean over its seeds."""
    return statistics.geometric_mean(map(statistics.geometric_mean, ratios.values()))


def worst_layer(ratios: RATIOS) -> tuple[str, float]:
    """The layer with the smallest geometric mean over its seeds, and this mean."""
    means = {name: statistics.geometric_mean(seeds) for name, seeds in ratios.items()}
    name = min(means, key=means.__getitem__)
    return name, means[name]


def interval(ratios: RATIOS) -> tuple[float, float]:
    """The 95% bootstrap interval of ``mean_ratio``: resamples layers, then seeds of each layer."""
    logs = [[math.log(ratio) for ratio in seeds] for seeds in ratios.values()]
    generator = random.Random(0)
    means = sorted(
        statistics.fmean(
            statistics.fmean(generator.choices(of_layer, k=len(of_layer)))
            for of_layer in generator.choices(logs, k=len(logs))
        )
        for _ in range(_DRAWS)
    )
    low, high = (math.exp(means[round(share * (_DRAWS - 1))]) for share in (0.025, 0.975))
    return low, high


def write_records(
    path: Path, layers: Mapping[str, LayerResults], checkpoints: Sequence[int]
) -> None:
    """Write a CSV row for each run: its latencies in microseconds and its tuning seconds."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        latencies = [f"{_LATENCY}{checkpoint}" for checkpoint in checkpoints]
        writer.writerow(["layer", "method", "seed", *latencies, "seconds"])
        for name, results in layers.items():
            for (method, seed), run in results.runs.items():
                secs = [results.latencies.get((method, seed, number)) for number in checkpoints]
                cells = ["" if latency is None else f"{1e6 * latency:.1f}" for latency in secs]
                writer.writerow([name, method, seed, *cells, f"{run.wall_secs:.0f}"])


def read_records(path: Path) -> tuple[dict[str, LayerResults], list[int]]:
    """Read the layers and the checkpoints written by ``write_records``."""
    layers: dict[str, LayerResults] = {}
    with path.open(newline="") as file:
        reader = csv.DictReader(file)
        names = [name for name in reader.fieldnames or () if name.startswith(_LATENCY)]
        checkpoints = [int(name.removeprefix(_LATENCY)) for name in names]
        for row in reader:
            results = layers.setdefault(row["layer"], LayerResults())
            method, seed = row["method"], int(row["seed"])
            results.runs[method, seed] = Run([], float(row["seconds"]), 0.0, "")
            for name, checkpoint in zip(names, checkpoints, strict=True):
                if row[name]:
                    results.latencies[method, seed, checkpoint] = 1e-6 * float(row[name])
    return layers, checkpoints
