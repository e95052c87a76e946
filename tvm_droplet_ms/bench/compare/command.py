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
"""Compare strategies on measured spaces: run what is missing, print the tables, draw the plots."""

import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TextIO

from ...measure import available_cpus
from ..files import measured_modules
from .comparison import Comparison, incumbents
from .plots import check_matplotlib, write_plots
from .results import KINDS, CompareError, RunResult
from .runs import Run, finished, load_space, plan, replay, run_jobs
from .strategies import ABLATIONS, STRATEGIES, make_strategy
from .tables import format_report
from .transfer import learn_without_each

INTERRUPTED = 130
"""The exit status after an interruption: 128 and the number of SIGINT."""


def run_compare(
    space_files: Sequence[Path],
    strategies: Sequence[str],
    directory: Path,
    *,
    trials: int = 128,
    seeds: int = 20,
    noisy: bool = False,
    ablate: bool = False,
    num_trials_per_iter: int = 64,
    workers: int | None = None,
    timeout_secs: float = 1800.0,
    experience: Sequence[Path] = (),
    run: Run = replay,
    stream: TextIO | None = None,
) -> int:
    """Compare strategies on spaces: run what is missing, print the tables, draw the plots.

    Finished runs with the same settings are kept, so that an interrupted comparison goes on, and
    one with more spaces, strategies or seeds adds to what is there. What the settings do not know
    of is the code of the strategies: after a change to it, use another directory.

    Parameters
    ----------
    space_files : Sequence[Path]
        The spaces.
    strategies : Sequence[str]
        Names of strategies; empty for all of ``strategies.STRATEGIES``.
    directory : Path
        Where the results go: a file for each run, ``tables.md``, ``*.png`` and ``index.html``.
    trials : int
        The measurements of each run.
    seeds : int
        The runs of each strategy on each space; their seeds count from 0.
    noisy : bool
        Whether a strategy is told one of a point's recorded times rather than their median.
    ablate : bool
        Whether to add ``DropletStrategy`` and each of its versions with one part off. Without
        ``strategies``, these alone are compared.
    num_trials_per_iter : int
        The most measurements of one batch; TVM's own default.
    workers : int | None
        The number of processes; None for as many as CPUs are available.
    timeout_secs : float
        How long one run may take, in seconds.
    experience : Sequence[Path]
        Spaces that the cost models of ``strategies.KINDS`` learn from, besides those of the
        comparison. On each space they know all others.
    run : Run
        Runs a strategy on a space.
    stream : TextIO | None
        Where to print; None for the standard output.

    Returns
    -------
    status : int
        0; 1 if a run failed; 130 after an interruption.

    Raises
    ------
    CompareError
        If a file is no space, a strategy has no such name, the directory holds results of other
        settings, matplotlib or a package that a strategy needs is missing, or a number is out of
        its range.
    """
    out = stream or sys.stdout
    names = list(strategies)
    if ablate:
        names += ["droplet", *ABLATIONS]
    names = list(dict.fromkeys(names or STRATEGIES))
    for name in names:
        _check_strategy(name, trials)
    check_matplotlib()
    models = {
        kind: learn_without_each(kind, space_files, experience, directory, out)
        for kind in dict.fromkeys(KINDS[name] for name in names if name in KINDS)
    }
    jobs = plan(
        space_files,
        names,
        directory,
        trials=trials,
        seeds=seeds,
        num_trials_per_iter=num_trials_per_iter,
        noisy=noisy,
        models=models,
    )
    results = finished(jobs)
    missing = [job for job in jobs if job.file not in results]
    print(f"{len(jobs)} runs, {len(results)} of them done before; results: {directory}", file=out)
    spaces = [measured_modules(load_space(path)) for path in space_files]
    times = {space.name: space.times for space in spaces}
    sampled = frozenset(space.name for space in spaces if not space.closed)
    try:
        progress = _Progress(len(missing), times, sampled, out)
        for job, result in run_jobs(
            missing, run=run, workers=workers or len(available_cpus()), timeout_secs=timeout_secs
        ):
            results[job.file] = result
            progress.show(result)
    except KeyboardInterrupt:
        print(
            f"\nInterrupted. {len(finished(jobs))} of {len(jobs)} runs are done and kept; the same "
            "command goes on from there, and fewer --seeds show what is complete.",
            file=out,
        )
        return INTERRUPTED
    comparison = Comparison([results[job.file] for job in jobs], times, sampled)
    return _report(comparison, directory, out)


def _check_strategy(name: str, trials: int) -> None:
    try:
        make_strategy(name, trials)
    except ImportError as error:
        raise CompareError(f"{name} cannot be compared: {error}") from error


class _Progress:
    """Prints a line for each run that ends: which, what it found, and how long the rest takes."""

    def __init__(
        self,
        total: int,
        times: Mapping[str, Sequence[float]],
        sampled: frozenset[str],
        out: TextIO,
    ) -> None:
        self._start = time.monotonic()
        self._total = total
        self._done = 0
        self._times = times
        self._sampled = sampled
        self._out = out

    def show(self, result: RunResult) -> None:
        self._done += 1
        passed = time.monotonic() - self._start
        left = passed / self._done * (self._total - self._done)
        settings = result.settings
        if result.error is None:
            fraction = min(self._times[settings.space]) / incumbents(result)[-1]
            best = "sample's best" if settings.space in self._sampled else "optimum"
            outcome = f"{fraction:6.1%} of the {best}"
        else:
            outcome = "FAILED"
        print(
            f"[{passed:6.1f} s] {self._done}/{self._total}  {settings.space}, "
            f"{settings.strategy}, seed {settings.seed}: {outcome}; about {left / 60:.1f} min left",
            file=self._out,
            flush=True,
        )


def _report(comparison: Comparison, directory: Path, out: TextIO) -> int:
    report = format_report(comparison)
    (directory / "tables.md").write_text(report + "\n")
    page, *_ = write_plots(comparison, report, directory)
    print(f"\n{report}\n\nplots: {page}", file=out)
    failed = comparison.failed
    if failed:
        print(
            f"{len(failed)} of {len(comparison.runs)} runs failed; their files under {directory} "
            "have the tracebacks, and the same command runs them again",
            file=out,
        )
    return 1 if failed else 0
