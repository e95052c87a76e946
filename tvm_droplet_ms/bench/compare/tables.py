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
"""The tables of a comparison: results in, text out."""

from collections.abc import Sequence

import numpy as np

from ...report import align
from ..quality import FRACTIONS, TRIALS, Interval, bootstrap, trials_to_fraction
from ..score import Floats, ranks_of
from .comparison import CUTOFF, Comparison
from .cost_tables import NONE, QUALITY, format_losses, format_profile, format_seconds
from .results import RunResult

CATCHING_UP = (64, 128)
"""Trial counts of the run without a prior whose result the run with a prior must reach."""

WITHOUT_PRIOR = {"droplet": "droplet without prior", "evolutionary with prior": "evolutionary"}
"""Strategies with a prior, each with the same strategy without one."""

_REFERENCE = "droplet"


def format_report(comparison: Comparison) -> str:
    """All tables in Markdown, with explanations and the failed runs.

    Parameters
    ----------
    comparison : Comparison
        The results; at least one.

    Returns
    -------
    report : str
        Without a newline at the end.
    """
    caught_up = [
        part
        for strategy, reference in WITHOUT_PRIOR.items()
        if {strategy, reference} <= set(comparison.strategies)
        for part in _catching_up(comparison, reference, strategy)
    ]
    parts = [
        "## Score, fraction of the optimum, and trials to reach it",
        format_summary(comparison),
        _explain_summary(comparison),
        *_differences(comparison),
        *caught_up,
        f"## Fraction of the optimum after {comparison.trials} trials, mean over seeds",
        format_spaces(comparison),
        f"## Simulated seconds to {QUALITY:.0%} of the optimum",
        format_seconds(comparison),
        "A trial is charged what proposing it took here, and its recorded build and run time. "
        "Medians over all runs; a run that did not get there counts as later than all others.",
        f"## Seconds of a replayed run of {comparison.trials} trials, and where they go",
        format_profile(comparison),
        "Mean over the runs. Other: time that the profiler does not name.",
        "## Failed trials, and dropped proposals",
        format_losses(comparison),
        "Mean over the runs. A proposal that cannot be replayed is dropped and is no trial. Only "
        "the strategies with a number there count them. Evolution does not: where it explores for "
        "DropletStrategy, the number is that of the descent alone.",
    ]
    if failed := comparison.failed:
        parts += [f"## {len(failed)} runs failed", *map(_describe_failure, failed)]
    return "\n\n".join(parts)


def _differences(comparison: Comparison) -> list[str]:
    if _REFERENCE not in comparison.strategies or len(comparison.strategies) == 1:
        return []
    heading = f"## Difference from {_REFERENCE}, the runs paired by seed"
    return [heading, format_differences(comparison, _REFERENCE)]


def format_summary(comparison: Comparison) -> str:
    """The score, fractions at fixed numbers of trials, and trials to fixed fractions.

    Each strategy has a line. Intervals are bootstrap intervals over seeds (95%). A strategy
    without a finished run on each space has no values: its means would be over other spaces.
    """
    counts = _counts(comparison)
    header = ["strategy", "runs", "score", *(f"at {count}" for count in counts)]
    header += [f"trials to {fraction:.0%}" for fraction in FRACTIONS]
    lines = [header]
    for strategy in comparison.strategies:
        line = [strategy, _run_count(comparison, strategy)]
        if comparison.is_complete(strategy):
            line.append(_score(comparison, strategy))
            samples = [comparison.fractions(strategy, space) for space in comparison.spaces]
            line += [_interval(_mean_interval([s[:, n - 1] for s in samples])) for n in counts]
            line += [_trials_to(comparison, strategy, fraction) for fraction in FRACTIONS]
        lines.append(line + [NONE] * (len(header) - len(line)))
    return align(lines)


def format_differences(comparison: Comparison, reference: str) -> str:
    """Difference of the score and the fractions of the others from those of one strategy.

    The runs are paired by seed: intervals are bootstrap intervals over pairs (95%). A strategy
    that lacks a run has no values.

    Parameters
    ----------
    comparison : Comparison
        The results.
    reference : str
        The strategy that the others are compared with.
    """
    counts = _counts(comparison)
    lines = [["strategy", "score", *(f"at {count}" for count in counts)]]
    failed = {run.settings.strategy for run in comparison.failed}
    for strategy in comparison.strategies:
        if strategy == reference:
            continue
        if failed & {strategy, reference}:
            lines.append([strategy, *[NONE] * (1 + len(counts))])
            continue
        line = [strategy, NONE]
        if comparison.scores:
            ranks = _pairs(_ranks(comparison, strategy), _ranks(comparison, reference))
            line[1] = _interval(
                bootstrap(
                    ranks,
                    lambda drawn: (
                        _mean_score(comparison, [pair[:, 0] for pair in drawn])
                        - _mean_score(comparison, [pair[:, 1] for pair in drawn])
                    ),
                )
            )
        ours, theirs = (
            [comparison.fractions(name, space) for space in comparison.spaces]
            for name in (strategy, reference)
        )
        gains = [a - b for a, b in zip(ours, theirs, strict=True)]
        line += [_interval(_mean_interval([gain[:, n - 1] for gain in gains])) for n in counts]
        lines.append(line)
    return align(lines)


def _catching_up(comparison: Comparison, reference: str, strategy: str) -> list[str]:
    return [
        f"## Trials of {strategy} to the result of {reference}",
        format_catching_up(comparison, reference, strategy),
        f"Mean fraction of the optimum of {reference} over the seeds after so many trials, and the "
        "trials after which the other's mean is as high. The last line has the geometric mean of "
        "the ratio of trials; a space where it is never as high counts as 1 / 2.",
    ]


def format_catching_up(comparison: Comparison, reference: str, strategy: str) -> str:
    """Trials after which a strategy has reached the result of another, by space.

    Parameters
    ----------
    comparison : Comparison
        With finished runs of both.
    reference : str
        The strategy to catch up with.
    strategy : str
        The other.
    """
    counts = [count for count in CATCHING_UP if count <= comparison.trials]
    lines = [["space", *(text for count in counts for text in (f"at {count}", "trials", "ratio"))]]
    ratios: list[list[float]] = [[] for _ in counts]
    for space in comparison.spaces:
        theirs, ours = (comparison.fractions(name, space) for name in (reference, strategy))
        line = [space]
        for count, of_count in zip(counts, ratios, strict=True):
            if not len(theirs) or not len(ours):
                line += [NONE] * 3
                continue
            wanted = float(theirs.mean(axis=0)[count - 1])
            reached = ours.mean(axis=0) >= wanted
            trials = int(reached.argmax()) + 1
            of_count.append(count / trials if reached.any() else 0.5)
            shown = [str(trials), f"{count / trials:.1f}"] if reached.any() else ["never", NONE]
            line += [f"{wanted:.3f}", *shown]
        lines.append(line)
    means = [
        f"{np.exp(np.mean(np.log(of_count))):.1f}" if of_count else NONE for of_count in ratios
    ]
    lines.append(["geometric mean", *(text for mean in means for text in ("", "", mean))])
    return align(lines)


def format_spaces(comparison: Comparison) -> str:
    """The mean fraction of the optimum at the end, by space and strategy."""
    lines = [["space", *comparison.strategies]]
    for space in comparison.spaces:
        line = [space]
        for strategy in comparison.strategies:
            at_end = comparison.fractions(strategy, space)[:, -1]
            line.append(f"{at_end.mean():.3f}" if len(at_end) else NONE)
        lines.append(line)
    return align(lines)


def _counts(comparison: Comparison) -> list[int]:
    """The fixed numbers of trials that the runs have, and their last."""
    return sorted({count for count in TRIALS if count < comparison.trials} | {comparison.trials})


def _run_count(comparison: Comparison, strategy: str) -> str:
    finished = len(comparison.finished(strategy))
    planned = sum(run.settings.strategy == strategy for run in comparison.runs)
    return str(finished) if finished == planned else f"{finished} of {planned}"


def _score(comparison: Comparison, strategy: str) -> str:
    if not comparison.scores:
        return NONE
    ranks = _ranks(comparison, strategy)
    return _interval(bootstrap(ranks, lambda drawn: _mean_score(comparison, drawn)))


def _ranks(comparison: Comparison, strategy: str) -> list[Floats]:
    """The rank of each run's incumbent at the trials that count, by space that has a score."""
    ranks = []
    for name, space in comparison.scores.items():
        trials = np.minimum(space.trials, comparison.trials)
        ranks.append(ranks_of(space.valid, comparison.curves(strategy, name)[:, trials - 1]))
    return ranks


def _mean_score(comparison: Comparison, ranks: Sequence[Floats]) -> float:
    spaces = comparison.scores.values()
    return float(np.mean([space.curve(r).mean() for space, r in zip(spaces, ranks, strict=True)]))


def _pairs(ours: Sequence[Floats], theirs: Sequence[Floats]) -> list[Floats]:
    """The runs of two strategies side by side: arrays of shape (seeds, 2, ...)."""
    return [np.stack(both, axis=1) for both in zip(ours, theirs, strict=True)]


def _mean_interval(samples: Sequence[Floats]) -> Interval:
    """The mean over seeds, then over spaces."""
    return bootstrap(samples, lambda drawn: float(np.mean([sample.mean() for sample in drawn])))


def _interval(interval: Interval) -> str:
    return f"{interval.value:.3f} ({interval.low:.3f} to {interval.high:.3f})"


def _trials_to(comparison: Comparison, strategy: str, fraction: float) -> str:
    """The geometric mean over the runs that got there, and their share."""
    trials: list[int | None] = []
    for space in comparison.spaces:
        curves = comparison.curves(strategy, space)
        trials += trials_to_fraction(comparison.optimum(space), curves, fraction)
    reached = [count for count in trials if count is not None]
    if not reached:
        return "none"
    mean = float(np.exp(np.mean(np.log(reached))))
    return f"{mean:.1f} ({len(reached) / len(trials):.0%})"


def _explain_summary(comparison: Comparison) -> str:
    budgets = {name: score.trials for name, score in comparison.scores.items()}
    listed = ", ".join(f"{name} {trials[0]}-{trials[-1]}" for name, trials in budgets.items())
    text = (
        f"Score: 0 is random search over the distinct modules, 1 the optimum at once; the mean "
        f"over the trials that count (cutoff {CUTOFF}) and over the spaces: {listed or 'none'}."
    )
    longer = [name for name, trials in budgets.items() if trials[-1] > comparison.trials]
    if longer:
        text += (
            f" The runs end at {comparison.trials} trials and keep their result to "
            f"the end of longer budgets: {', '.join(longer)}."
        )
    unscored = [space for space in comparison.spaces if space not in budgets]
    if unscored:
        text += f" Too small or too flat to have a score: {', '.join(unscored)}."
    return text + (
        " In parentheses: the 95% bootstrap interval over seeds; for trials, the share of runs "
        "that got there, of which the geometric mean is taken."
    )


def _describe_failure(run: RunResult) -> str:
    settings = run.settings
    reason = (run.error or "").strip().splitlines()[-1]
    return f"- {settings.strategy} on {settings.space}, seed {settings.seed}: {reason}"
