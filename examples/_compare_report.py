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
"""The tables of compare_live.py: results in, text out. Imports no TVM."""

import math
import random
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

BASELINE = "evolutionary"
BEFORE = "droplet-before"
"""DropletStrategy of another checkout."""

TRANSFER = "droplet-transfer"
"""DropletStrategy with a cost model that was trained on other workloads."""

XGB_TRANSFER = "evolutionary-transfer"
"""The baseline with TVM's cost model as it was saved after other workloads."""

LEGEND = """\
- us at N: the best of the first N trials by its record, re-measured together with all other winners
  of the layer: the median in microseconds (interquartile range, % of it).
- speed at N: latency of `evolutionary` at N with the same seed over this latency, so above 1 is
  faster than `evolutionary`; over several runs the geometric mean [smallest-largest], and over all
  layers (its 95% bootstrap interval, drawing layers and then seeds of each). Until PostOpt
  begins, `tvm-droplet` is evolutionary search too: how far it is from 1 there is chance.
- to 5%: the first trial whose record is within 5% of the layer's best re-measured latency, and the
  seconds of tuning until its batch was measured; over several runs the median, "never" counted as
  more than any.
- to baseline: the first trial whose record is at least as fast as the last winner of `evolutionary`
  with the same seed, re-measured; over several runs the median, "never" counted as more than any.
- wall s: tuning alone, without the start of Python and TVM. Where it went: `propose` is all that is
  none of the others (design space, evolution, replay, prediction), `model` the update of the cost
  model, `other` the start of the task, the database and the recording."""

_DRAWS = 10_000

_SCOPES = {
    "build": ("SendToBuilder",),
    "run": ("SendToRunner", "JoinRunnerFutures"),
    "model": ("MeasureCallback/UpdateCostModel",),
    "other": (
        "InitializeTask",
        "MeasureCallback/AddToDatabase",
        "MeasureCallback/PyMeasureCallback",
        "MeasureCallback/RemoveBuildArtifact",
    ),
}

_OWN_SCOPES = {"Generate": 1, "Notify": 1, "Explore": -1, "Replay": -1, "Model": -1, "Predict": -1}
"""DropletStrategy's profiler scopes. Those that are taken off (evolution, replay with
postprocessors, the models) lie within the first."""


@dataclass
class Results:
    """All that is known of one layer.

    Attributes
    ----------
    runs : dict
        The run of a (method, seed), as compare_live.py writes it.
    kernels : dict
        The re-measured winner of a (method, seed, checkpoint), as compare_live.py writes it.
    """

    runs: dict[tuple[str, int], dict[str, Any]] = field(default_factory=dict)
    kernels: dict[tuple[str, int, int], dict[str, Any]] = field(default_factory=dict)

    def latency(self, method: str, seed: int, checkpoint: int) -> float | None:
        """The re-measured latency in seconds; None where there is none."""
        kernel = self.kernels.get((method, seed, checkpoint))
        return kernel["median"] if kernel and kernel["error"] is None else None

    def speed(self, method: str, seed: int, checkpoint: int) -> float | None:
        """How many times as fast as the baseline; None where either has no latency."""
        ours = self.latency(method, seed, checkpoint)
        baseline = self.latency(BASELINE, seed, checkpoint)
        return None if ours is None or baseline is None else baseline / ours

    def trials_to_baseline(self, method: str, seed: int, checkpoint: int) -> float | None:
        """After how many trials the baseline's latency was reached; infinite if never."""
        baseline = self.latency(BASELINE, seed, checkpoint)
        if baseline is None or (method, seed) not in self.runs:
            return None
        return _first_within(self.runs[method, seed]["trials"], baseline)

    def secs_to_best(self, method: str, seed: int) -> float | None:
        """After how many seconds a record was within 5% of the best latency; infinite if never."""
        run = self.runs.get((method, seed))
        if run is None or not self.kernels:
            return None
        trial = _first_within(run["trials"], self.nearly_best)
        return math.inf if trial == math.inf else float(run["trials"][int(trial) - 1]["elapsed"])

    @property
    def nearly_best(self) -> float:
        """5% more than the best re-measured latency, in seconds."""
        latencies = [one["median"] for one in self.kernels.values() if one["error"] is None]
        return 1.05 * min(latencies, default=0.0)


def _first_within(trials: Sequence[dict[str, Any]], secs: float) -> float:
    reached = (float(i) for i, trial in enumerate(trials, 1) if trial_secs(trial) <= secs)
    return next(reached, math.inf)


def _count(trials: float | None) -> str:
    if trials is None:
        return "-"
    return f"{trials:.0f}" if trials < math.inf else "never"


def _median_count(counts: Iterable[float | None]) -> str:
    known = [count for count in counts if count is not None]
    return _count(statistics.median_high(known) if known else None)


def trial_secs(trial: dict[str, Any]) -> float:
    """The recorded time of a trial as the database ranks it: the mean; infinite if it failed."""
    secs = trial["run_secs"]
    mean = statistics.fmean(secs) if secs else math.inf
    return mean if mean > 0 else math.inf


def best_trial(trials: Sequence[dict[str, Any]], checkpoint: int) -> dict[str, Any] | None:
    """The fastest of the first trials by its record; None if all of them failed."""
    best = min(trials[:checkpoint], key=trial_secs, default=None)
    return best if best and trial_secs(best) < math.inf else None


def time_shares(profile: dict[str, float]) -> dict[str, float]:
    """Where the time of a run went, in shares of it: `propose`, `build`, `run`, `model`, `other`.

    The scopes of strategies nest (DropletStrategy composes evolution), so that proposing is what
    the scopes of the scheduler leave.
    """
    total = profile["Total"]
    shares = {
        group: sum(profile.get(scope, 0.0) for scope in scopes) / total
        for group, scopes in _SCOPES.items()
    }
    return {"propose": 1.0 - sum(shares.values()), **shares}


def layer_report(
    name: str,
    description: str,
    results: Results,
    methods: Sequence[str],
    seeds: Sequence[int],
    checkpoints: Sequence[int],
    markdown: bool,
) -> str:
    """The table of one layer, and what there is to say below it."""
    header = ["method", "seed", "trials"]
    header += [f"us at {c}" for c in checkpoints]
    header += [f"speed at {c}" for c in checkpoints]
    header += [
        "to 5%",
        "s to 5%",
        "to baseline",
        "wall s",
        "propose",
        "build",
        "run",
        "model",
        "other",
    ]
    rows = []
    notes = []
    for method in methods:
        for seed in seeds:
            rows.append(_run_row(results, method, seed, checkpoints))
            notes += _run_notes(results, method, seed, checkpoints)
        if len(seeds) > 1:
            rows.append(_seeds_row(results, method, seeds, checkpoints))
    title = f"{'### ' if markdown else ''}{name}: {description}"
    parts = [title, format_table(header, rows, markdown)]
    if notes:
        parts.append("\n".join(f"- {note}" for note in notes))
    return "\n\n".join(parts)


def _run_row(results: Results, method: str, seed: int, checkpoints: Sequence[int]) -> list[str]:
    run = results.runs.get((method, seed))
    if run is None:
        return [method, str(seed)]
    row = [method, str(seed), str(len(run["trials"]))]
    for checkpoint in checkpoints:
        secs = results.latency(method, seed, checkpoint)
        if secs is None:
            row.append("none")
        else:
            quartiles = results.kernels[method, seed, checkpoint]["quartiles"]
            row.append(f"{secs * 1e6:.1f} ({100 * (quartiles[1] - quartiles[0]) / secs:.1f})")
    speeds = [results.speed(method, seed, checkpoint) for checkpoint in checkpoints]
    row += ["-" if speed is None else f"{speed:.3f}" for speed in speeds]
    row.append(_count(_first_within(run["trials"], results.nearly_best)))
    row.append(_count(results.secs_to_best(method, seed)))
    row.append(_count(results.trials_to_baseline(method, seed, checkpoints[-1])))
    row.append(f"{run['wall_secs']:.0f}")
    return row + [f"{100 * share:.0f}%" for share in time_shares(run["profile"]).values()]


def _seeds_row(
    results: Results, method: str, seeds: Sequence[int], checkpoints: Sequence[int]
) -> list[str]:
    row = [method, "all", ""]
    for checkpoint in checkpoints:
        values = [results.latency(method, seed, checkpoint) for seed in seeds]
        known = [secs for secs in values if secs is not None]
        row.append(f"{statistics.median(known) * 1e6:.1f}" if known else "-")
    for checkpoint in checkpoints:
        row.append(_spread(results.speed(method, seed, checkpoint) for seed in seeds))
    counts = [results.trials_to_baseline(method, seed, checkpoints[-1]) for seed in seeds]
    secs = [results.secs_to_best(method, seed) for seed in seeds]
    return [*row, "-", _median_count(secs), _median_count(counts)]


def _run_notes(
    results: Results, method: str, seed: int, checkpoints: Sequence[int]
) -> Iterable[str]:
    run = results.runs.get((method, seed))
    if run is None:
        return
    failed = [trial for trial in run["trials"] if trial["run_secs"] is None]
    if failed:
        error = _last_line(failed[0]["error"])
        yield f"{method}, seed {seed}: {len(failed)} trials failed, the first with: {error}"
    for checkpoint in checkpoints:
        kernel = results.kernels.get((method, seed, checkpoint))
        if kernel and kernel["error"]:
            yield f"{method}, seed {seed}, winner at {checkpoint}: {_last_line(kernel['error'])}"
    if method in ("droplet", BEFORE, TRANSFER):
        profile = run["profile"]
        parts = {f"Droplet/{name}": sign for name, sign in _OWN_SCOPES.items()}
        own = sum(sign * profile.get(name, 0.0) for name, sign in parts.items())
        scopes = (f"{name} {profile.get(name, 0.0):.2f} s" for name in parts)
        yield (
            f"{method}, seed {seed}: its own code took {own:.2f} s, "
            f"{100 * own / profile['Total']:.2f}% of the run ({', '.join(scopes)})"
        )


def _last_line(error: str) -> str:
    """TVM's errors end in what went wrong, after the stack."""
    return error.strip().splitlines()[-1]


def summary_report(
    layers: dict[str, Results],
    methods: Sequence[str],
    seeds: Sequence[int],
    checkpoints: Sequence[int],
    markdown: bool,
) -> str:
    """All layers in one table: the geometric mean of the speeds, and the wall time."""
    rows = []
    for method in methods:
        row = [method]
        for checkpoint in checkpoints:
            speeds = [
                [results.speed(method, seed, checkpoint) for seed in seeds]
                for results in layers.values()
            ]
            row.append(f"{_spread(s for of_layer in speeds for s in of_layer)}{_interval(speeds)}")
        runs = [
            results.runs[method, seed]
            for results in layers.values()
            for seed in seeds
            if (method, seed) in results.runs
        ]
        counts = [
            results.trials_to_baseline(method, seed, checkpoints[-1])
            for results in layers.values()
            for seed in seeds
        ]
        wall_secs = sum(run["wall_secs"] for run in runs)
        secs = [results.secs_to_best(method, seed) for results in layers.values() for seed in seeds]
        reached = sum(one is not None and one < math.inf for one in secs)
        rows.append(
            [
                *row,
                f"{_median_count(secs)} ({reached} of {len(runs)})",
                _median_count(counts),
                str(len(runs)),
                f"{wall_secs:.0f}",
            ]
        )
    header = ["method", *(f"speed at {c}" for c in checkpoints)]
    header += ["s to 5%", "to baseline", "runs", "wall s"]
    title = f"{'### ' if markdown else ''}All layers and seeds"
    return "\n".join([title, "", format_table(header, rows, markdown)])


def _spread(speeds: Iterable[float | None]) -> str:
    known = [speed for speed in speeds if speed is not None]
    if not known:
        return "-"
    return f"{statistics.geometric_mean(known):.3f} [{min(known):.2f}-{max(known):.2f}]"


def _interval(speeds: Sequence[Sequence[float | None]]) -> str:
    """The 95% bootstrap interval of the geometric mean, drawing layers, then seeds of each."""
    logs = [[math.log(s) for s in of_layer if s is not None] for of_layer in speeds]
    logs = [of_layer for of_layer in logs if of_layer]
    if not logs:
        return ""
    generator = random.Random(0)
    means = sorted(
        statistics.fmean(
            statistics.fmean(generator.choices(of_layer, k=len(of_layer)))
            for of_layer in generator.choices(logs, k=len(logs))
        )
        for _ in range(_DRAWS)
    )
    low, high = (math.exp(means[round(q * (_DRAWS - 1))]) for q in (0.025, 0.975))
    return f" ({low:.3f} to {high:.3f})"


def as_shipped_report(run: dict[str, Any]) -> str:
    """What TVM's droplet measured as it ships."""
    trials = run["trials"][run["explore_trials"] :]
    failed = [trial for trial in trials if trial["run_secs"] is None]
    waited = trials[-1]["elapsed"] - run["trials"][run["explore_trials"] - 1]["elapsed"]
    lines = [
        f"post_optimization=True as it ships, on {run['layer']} after {run['explore_trials']} "
        f"evolutionary trials: {len(trials)} candidates sent to its builder, "
        f"{len(trials) - len(failed)} measured, {len(failed)} failed, {waited:.0f} s."
    ]
    errors = [_last_line(trial["error"]) for trial in failed]
    lines += [f"- {errors.count(error)} x {error}" for error in dict.fromkeys(errors)]
    lines.append(
        "- Its builder's timeout is 10 s. Importing tvm.s_tir.tensor_intrin, which each new worker "
        f"does in its first build, took this run's own process {run['import_secs']:.0f} s."
    )
    return "\n".join(lines)


def format_table(header: Sequence[str], rows: Sequence[Sequence[str]], markdown: bool) -> str:
    """Align the columns, the first to the left; rows that are too short end in ``-``."""
    cells = [list(header)]
    cells += [[*row, *["-"] * (len(header) - len(row))] for row in rows]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    lines = [
        [cell.rjust(width) if i else cell.ljust(width) for i, (cell, width) in pairs]
        for pairs in (enumerate(zip(row, widths, strict=True)) for row in cells)
    ]
    if not markdown:
        return "\n".join("  ".join(line).rstrip() for line in lines)
    rule = ["-" * width if i == 0 else "-" * (width - 1) + ":" for i, width in enumerate(widths)]
    return "\n".join(f"| {' | '.join(line)} |" for line in [lines[0], rule, *lines[1:]])
