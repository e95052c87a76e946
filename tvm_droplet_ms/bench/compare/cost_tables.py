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
"""Tables of the costs of a comparison: seconds, and lost trials."""

from collections import Counter

import numpy as np

from ...profile import breakdown
from ...report import align
from ..score import Floats
from .comparison import Comparison, incumbents
from .results import RunResult

QUALITY = 0.95
"""Fraction of the optimum to which the simulated seconds are counted."""

NONE = "-"
"""Cell of a table without a value."""


def format_seconds(comparison: Comparison) -> str:
    """The simulated time to ``QUALITY``: the median over all runs, and the share that got there."""
    lines = [["strategy", "median seconds", "share of runs", "seconds of a whole run"]]
    for strategy in comparison.strategies:
        runs = comparison.finished(strategy)
        if not runs:
            lines.append([strategy, NONE, NONE, NONE])
            continue
        secs = [_secs_to(run, comparison.optimum(run.settings.space)) for run in runs]
        median = float(np.median(secs))
        lines.append(
            [
                strategy,
                f"{median:.1f}" if np.isfinite(median) else "not reached",
                f"{np.isfinite(secs).mean():.0%}",
                f"{np.median([_clock(run)[-1] for run in runs]):.1f}",
            ]
        )
    return align(lines)


def format_profile(comparison: Comparison) -> str:
    """The real seconds of a run: the mean over the runs of a strategy, by part."""
    parts = ["proposing", "cost model", "database", "replaying", "other"]
    lines = [["strategy", "seconds", *parts]]
    for strategy in comparison.strategies:
        runs = comparison.finished(strategy)
        if not runs:
            lines.append([strategy] + [NONE] * (len(parts) + 1))
            continue
        rows = [_parts(run) for run in runs]
        means = [float(np.mean([row[part] for row in rows])) for part in parts]
        wall = float(np.mean([run.wall_secs for run in runs]))
        lines.append([strategy, *(f"{secs:.2f}" for secs in (wall, *means))])
    return align(lines)


def format_losses(comparison: Comparison) -> str:
    """Lost trials of a run: failed measurements and choices that could not be replayed."""
    lines = [["strategy", "trials", "failed", "not replayed", "reasons"]]
    for strategy in comparison.strategies:
        runs = comparison.finished(strategy)
        if not runs:
            lines.append([strategy] + [NONE] * 4)
            continue
        trials = np.mean([len(run.trials) for run in runs])
        failed = np.mean([sum(trial.failure is not None for trial in run.trials) for run in runs])
        counted = [run.dropped for run in runs if run.dropped is not None]
        reasons = sum(map(Counter, counted), Counter[str]())
        lines.append(
            [
                strategy,
                f"{trials:.1f}",
                f"{failed:.1f}",
                f"{reasons.total() / len(counted):.1f}" if counted else NONE,
                ", ".join(f"{name} ({count})" for name, count in reasons.most_common()) or NONE,
            ]
        )
    return align(lines)


def _parts(run: RunResult) -> dict[str, float]:
    parts = breakdown(
        run.scopes, start_secs=0.0, wall_secs=run.wall_secs, build=None, workers=1, run=None
    )
    removing = run.scopes.get("MeasureCallback/RemoveBuildArtifact", 0.0)
    parts["replaying"] = parts["building"] + parts["running"] + removing
    # Our strategies time themselves; the profile of a tuning run knows the scopes of one of them.
    own = [secs for name, secs in run.scopes.items() if name.endswith(("/Generate", "/Notify"))]
    proposing = sum(own) or parts["proposing"]
    parts["other"] -= removing + proposing - parts["proposing"]
    parts["proposing"] = proposing
    return parts


def _clock(run: RunResult) -> Floats:
    """The simulated seconds at the end of each trial."""
    secs = [trial.proposed_secs + trial.build_secs + trial.run_secs for trial in run.trials]
    return np.cumsum(secs)


def _secs_to(run: RunResult, optimum: float) -> float:
    reached = optimum / incumbents(run) >= QUALITY
    return float(_clock(run)[reached.argmax()]) if reached.any() else np.inf
