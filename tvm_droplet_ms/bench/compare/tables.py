# SPDX-License-Identifier: Apache-2.0
"""The tables of a comparison: results in, text out."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ...display.tables import align
from .results import RunResult

Floats = NDArray[np.float64]

TRIALS = (8, 16, 32, 64, 128)
"""Numbers of trials at which the fraction of the optimum is reported."""

FRACTIONS = (0.90, 0.95)
"""Fractions of the optimum for which the trials to reach them are reported."""

NONE = "-"
"""Table cell for a missing value."""

RESAMPLES = 1000
"""Number of bootstrap resamples for an interval."""


def incumbents(run: RunResult) -> Floats:
    """Best-estimate time, in seconds, of the module that a run would return after each trial.

    The run returns the trial with the lowest reported time. With noise, this is not always the
    fastest module measured. The time is infinite before the first success.
    """
    times, best, lowest = [], np.inf, np.inf
    for trial in run.trials:
        if trial.secs < lowest:
            best, lowest = trial.best_estimate, trial.secs
        times.append(best)
    return np.array(times)


@dataclass(frozen=True)
class Comparison:
    """Results to compare.

    ``runs``: the results, including failures. ``optima``: the minimum time of each space, in
    seconds.
    """

    runs: Sequence[RunResult]
    optima: Mapping[str, float]

    @cached_property
    def strategies(self) -> list[str]:
        """The strategies, in the order of the results."""
        return list(dict.fromkeys(run.settings.strategy for run in self.runs))

    @cached_property
    def spaces(self) -> list[str]:
        """The spaces, in the order of the results."""
        return list(dict.fromkeys(run.settings.space for run in self.runs))

    @property
    def trials(self) -> int:
        """The maximum number of trials of a run."""
        return max(run.settings.trials for run in self.runs)

    @property
    def counts(self) -> list[int]:
        """The numbers in ``TRIALS`` below the runs' number of trials, and that number."""
        return sorted({count for count in TRIALS if count < self.trials} | {self.trials})

    @property
    def failed(self) -> list[RunResult]:
        """The runs that failed."""
        return [run for run in self.runs if run.error is not None]

    def finished(self, strategy: str, space: str | None = None) -> list[RunResult]:
        """The finished runs of a strategy, on one space or on all."""
        return [
            run
            for run in self.runs
            if run.error is None
            and run.settings.strategy == strategy
            and space in (None, run.settings.space)
        ]

    def fractions(self, strategy: str, space: str) -> Floats:
        """The optimum divided by the incumbent of each finished run: shape (seeds, trials).

        The ratio is 1 at the optimum and 0 before the first success. A run that ended early keeps
        its last incumbent.
        """
        runs = self.finished(strategy, space)
        curves = np.full((len(runs), self.trials), np.inf)
        for row, run in zip(curves, runs, strict=True):
            found = incumbents(run)[: self.trials]
            row[: len(found)] = found
            row[len(found) :] = found[-1]
        return self.optima[space] / curves

    def is_complete(self, strategy: str) -> bool:
        """True if a strategy has a finished run on every space."""
        return all(self.finished(strategy, space) for space in self.spaces)


def bootstrap(
    samples: Sequence[Floats], statistic: Callable[[Sequence[Floats]], float]
) -> tuple[float, float, float]:
    """A statistic and its 95% bootstrap percentile interval over the seeds of each space.

    ``samples``: an array for each space; its first axis is the seeds. ``statistic``: a function of
    the resampled arrays.
    """
    random = np.random.default_rng(0)
    drawn = [
        statistic([array[random.integers(len(array), size=len(array))] for array in samples])
        for _ in range(RESAMPLES)
    ]
    low, high = np.quantile(drawn, [0.025, 0.975])
    return float(statistic(samples)), float(low), float(high)


def format_report(comparison: Comparison) -> str:
    """All tables in Markdown, and the failed runs."""
    reference, *others = comparison.strategies
    parts = ["## Fraction of the optimum, and trials to reach it", format_summary(comparison)]
    parts.append(
        "In parentheses: the 95% bootstrap interval over seeds; for trials, the share of runs that "
        "got there, of which the geometric mean is taken."
    )
    if others:
        parts.append(f"## Difference from {reference}, the runs paired by seed")
        parts.append(format_differences(comparison))
    parts.append(f"## Fraction of the optimum after {comparison.trials} trials, mean over seeds")
    parts.append(format_spaces(comparison))
    if failed := comparison.failed:
        parts += [f"## {len(failed)} runs failed", *map(_describe_failure, failed)]
    return "\n\n".join(parts)


def format_summary(comparison: Comparison) -> str:
    """A table of fractions at fixed numbers of trials, and of trials to fixed fractions.

    A strategy without a finished run on each space has no values, because its means would cover
    different spaces.
    """
    header = ["strategy", "runs", *(f"at {count}" for count in comparison.counts)]
    header += [f"trials to {fraction:.0%}" for fraction in FRACTIONS]
    lines = [header]
    for strategy in comparison.strategies:
        finished = len(comparison.finished(strategy))
        planned = sum(run.settings.strategy == strategy for run in comparison.runs)
        line = [strategy, str(finished) if finished == planned else f"{finished} of {planned}"]
        if comparison.is_complete(strategy):
            samples = [comparison.fractions(strategy, space) for space in comparison.spaces]
            line += [_mean([sample[:, n - 1] for sample in samples]) for n in comparison.counts]
            line += [_trials_to(samples, fraction) for fraction in FRACTIONS]
        lines.append(line + [NONE] * (len(header) - len(line)))
    return align(lines)


def format_differences(comparison: Comparison) -> str:
    """A table of the other strategies' fractions minus the first strategy's fractions.

    The runs are paired by seed, and the intervals are 95% bootstrap intervals over the pairs. A
    strategy with a failed run has no values.
    """
    counts, (reference, *others) = comparison.counts, comparison.strategies
    lines = [["strategy", *(f"at {count}" for count in counts)]]
    failed = {run.settings.strategy for run in comparison.failed}
    for strategy in others:
        if failed & {strategy, reference}:
            lines.append([strategy, *[NONE] * len(counts)])
            continue
        gains = [
            comparison.fractions(strategy, space) - comparison.fractions(reference, space)
            for space in comparison.spaces
        ]
        lines.append([strategy, *(_mean([gain[:, n - 1] for gain in gains]) for n in counts)])
    return align(lines)


def format_spaces(comparison: Comparison) -> str:
    """A table of the mean final fraction of the optimum, by space and strategy."""
    lines = [["space", *comparison.strategies]]
    for space in comparison.spaces:
        line = [space]
        for strategy in comparison.strategies:
            at_end = comparison.fractions(strategy, space)[:, -1]
            line.append(f"{at_end.mean():.3f}" if len(at_end) else NONE)
        lines.append(line)
    return align(lines)


def _mean(samples: Sequence[Floats]) -> str:
    """The mean over seeds, then over spaces, and its interval."""
    value, low, high = bootstrap(
        samples, lambda drawn: float(np.mean([sample.mean() for sample in drawn]))
    )
    return f"{value:.3f} ({low:.3f} to {high:.3f})"


def _trials_to(fractions: Sequence[Floats], fraction: float) -> str:
    """The geometric mean of the trials to a fraction, over the runs that reach it; their share."""
    runs = [run >= fraction for of_space in fractions for run in of_space]
    reached = [int(run.argmax()) + 1 for run in runs if run.any()]
    if not reached:
        return "none"
    mean = float(np.exp(np.mean(np.log(reached))))
    return f"{mean:.1f} ({len(reached) / len(runs):.0%})"


def _describe_failure(run: RunResult) -> str:
    settings = run.settings
    reason = (run.error or "").strip().splitlines()[-1]
    return f"- {settings.strategy} on {settings.space}, seed {settings.seed}: {reason}"
