# SPDX-License-Identifier: Apache-2.0
"""Compare strategies on measured spaces: do missing runs, print the tables."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from ...display.displays import on_standard_error
from ...display.steps import console_steps
from ...measure import available_cpus
from .replay import load_space, replay
from .results import RunResult
from .runs import Run, finished, plan, run_jobs
from .strategies import STRATEGIES, find_experiment
from .tables import Comparison, format_report
from .transfer import learn_without_each

INTERRUPTED = 130
"""The exit status after an interruption: 128 + SIGINT."""


def run_compare(
    space_files: Sequence[Path],
    strategies: Sequence[str],
    directory: Path,
    *,
    trials: int = 128,
    seeds: int = 20,
    noisy: bool = False,
    num_trials_per_iter: int = 64,
    workers: int | None = None,
    timeout_secs: float = 1800.0,
    samples: Sequence[Path] = (),
    run: Run = replay,
    stream: TextIO | None = None,
) -> int:
    """Compare strategies on spaces: do missing runs, print the tables.

    Finished runs with the same settings are reused. An interrupted comparison thus continues, and a
    comparison with more spaces, strategies or seeds adds to the results. Results belong to the code
    that made them (``source_digest``). Results of other code are kept but not used.

    - ``strategies``: names of strategies; empty for all of ``strategies.STRATEGIES``.
    - ``directory``: directory of the results: a file for each run, and ``tables.md``.
    - ``trials``: the number of measurements in each run.
    - ``seeds``: the number of runs of each strategy on each space; their seeds count from 0.
    - ``noisy``: True if a measurement is one of the recorded times rather than their median.
    - ``num_trials_per_iter``: the maximum number of measurements in a batch; TVM's default is 64.
    - ``workers``: the number of processes; None for the number of available CPUs.
    - ``timeout_secs``: time limit of one run, in seconds.
    - ``samples``: spaces and samples to train the priors on, besides the spaces of the comparison.
      The prior of a run is trained on all of them except the run's own workload.
    - ``stream``: stream to print to; None for the standard output.

    Returns 0 for success, 1 if a run failed, and 130 after an interruption. Raises ``CompareError``
    if a file is not a space, a strategy name is unknown, the directory holds results of other
    settings, or a number is out of its range.
    """
    out = stream or sys.stdout
    names = list(dict.fromkeys(strategies or STRATEGIES))
    kinds = dict.fromkeys(kind for name in names for kind in find_experiment(name).begins_with)
    learned = {
        kind: learn_without_each(space_files, samples, directory, out, kind=kind) for kind in kinds
    }
    jobs = plan(
        space_files,
        names,
        directory,
        trials=trials,
        seeds=seeds,
        num_trials_per_iter=num_trials_per_iter,
        noisy=noisy,
        learned=learned,
    )
    results = finished(jobs)
    missing = [job for job in jobs if job.file not in results]
    print(f"{len(jobs)} runs, {len(results)} of them done before; results: {directory}", file=out)
    optima = {space.name: space.optimum for space in map(load_space, space_files)}
    try:
        with console_steps("compare") as progress:
            ended = run_jobs(
                missing,
                run=run,
                workers=workers or len(available_cpus()),
                timeout_secs=timeout_secs,
            )
            for number, (job, result) in enumerate(ended, 1):
                results[job.file] = result
                progress("runs", number, len(missing))
                if result.error is not None:
                    on_standard_error(f"compare: failed: {_name_of(result)}; see {job.file}")
    except KeyboardInterrupt:
        print(
            f"\nInterrupted. {len(finished(jobs))} of {len(jobs)} runs are done and kept; the same "
            "command resumes from there, and fewer --seeds show the complete part.",
            file=out,
        )
        return INTERRUPTED
    return _report(Comparison([results[job.file] for job in jobs], optima), directory, out)


def _name_of(result: RunResult) -> str:
    settings = result.settings
    return f"{settings.space}, {settings.strategy}, seed {settings.seed}"


def _report(comparison: Comparison, directory: Path, out: TextIO) -> int:
    report = format_report(comparison)
    (directory / "tables.md").write_text(report + "\n")
    print(f"\n{report}", file=out)
    failed = comparison.failed
    if failed:
        print(
            f"{len(failed)} of {len(comparison.runs)} runs failed; their files under {directory} "
            "have the tracebacks, and the same command runs them again",
            file=out,
        )
    return 1 if failed else 0
