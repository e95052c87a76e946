# SPDX-License-Identifier: Apache-2.0
"""Compares strategies on measured spaces: plans the runs, does the missing ones, prints tables."""

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, as_completed
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from ...display.displays import console_steps, on_standard_error
from ...measure import TaskFailed, WorkerPool, available_cpus, fast_start
from ..definition import trust, trusted
from ..source_digest import REPLAYING, source_digest
from ..space import SpaceError
from .replay import STRATEGIES, Learned, find_experiment, load_space, replay
from .results import CompareError, RunResult, RunSettings, file_digest
from .tables import Comparison, format_report
from .transfer import learn_without_each

INTERRUPTED = 130
"""The exit status after an interruption: 128 + SIGINT."""

Run = Callable[..., RunResult]
"""Runs a strategy, given the space file, the settings, and the strategy's prior and draft files."""


@dataclass(frozen=True)
class Rules:
    """The numbers that all runs of a comparison share.

    - ``trials``: the number of measurements in each run.
    - ``seeds``: the number of runs of each strategy on each space; their seeds count from 0.
    - ``num_trials_per_iter``: the maximum number of measurements in a batch; TVM's default is 64.
    - ``noisy``: True if a measurement is one of the recorded times rather than their median.

    Raises ``CompareError`` if a number is out of range.
    """

    trials: int = 128
    seeds: int = 20
    num_trials_per_iter: int = 64
    noisy: bool = False

    def __post_init__(self) -> None:
        for name in ("trials", "seeds", "num_trials_per_iter"):
            if (number := getattr(self, name)) < 1:
                raise CompareError(f"{name} is {number}, expected at least 1")


@dataclass(frozen=True)
class Job:
    """A run to do."""

    space_file: Path
    settings: RunSettings
    file: Path
    learned: Learned


def run_compare(
    space_files: Sequence[Path],
    strategies: Sequence[str],
    directory: Path,
    rules: Rules,
    *,
    workers: int | None = None,
    timeout_secs: float = 1800.0,
    samples: Sequence[Path] = (),
    run: Run = replay,
) -> int:
    """Compare strategies on spaces: do missing runs, print the tables.

    Finished runs with the same settings are reused. An interrupted comparison thus continues, and a
    comparison with more spaces, strategies or seeds adds to the results. Results belong to the code
    that made them (``source_digest``). Results of other code are kept but not used.

    - ``strategies``: names of strategies; empty for all of ``replay.STRATEGIES``.
    - ``directory``: directory of the results: a file for each run, and ``tables.md``.
    - ``workers``: the number of processes; None for the number of available CPUs.
    - ``timeout_secs``: time limit of one run, in seconds.
    - ``samples``: spaces and samples to train the priors on, besides the spaces of the comparison.
      The prior of a run is trained on all of them except the run's own workload.

    Returns 0 for success, 1 if a run failed, and 130 after an interruption. Raises ``CompareError``
    if a file is not a space, a strategy name is unknown, or the directory holds results of other
    settings.
    """
    names = list(dict.fromkeys(strategies or STRATEGIES))
    kinds = dict.fromkeys(kind for name in names for kind in find_experiment(name).begins_with)
    learned = {
        kind: learn_without_each(space_files, samples, directory, kind=kind) for kind in kinds
    }
    jobs = plan(space_files, names, directory, rules, learned)
    results = finished(jobs)
    missing = [job for job in jobs if job.file not in results]
    print(f"{len(jobs)} runs, {len(results)} of them done before; results: {directory}")
    optima = {space.name: space.optimum for space in map(load_space, space_files)}
    try:
        with console_steps("compare") as progress:
            ended = run_jobs(missing, run, workers or len(available_cpus()), timeout_secs)
            for number, (job, result) in enumerate(ended, 1):
                results[job.file] = result
                progress("runs", number, len(missing))
                if result.error is not None:
                    settings = result.settings
                    on_standard_error(
                        f"compare: failed: {settings.space}, {settings.strategy}, "
                        f"seed {settings.seed}; see {job.file}"
                    )
    except KeyboardInterrupt:
        print(
            f"\nInterrupted. {len(finished(jobs))} of {len(jobs)} runs are done and kept; the same "
            "command resumes from there, and fewer --seeds show the complete part."
        )
        return INTERRUPTED
    comparison = Comparison([results[job.file] for job in jobs], optima)
    report = format_report(comparison)
    (directory / "tables.md").write_text(report + "\n")
    print(f"\n{report}")
    if failed := comparison.failed:
        print(
            f"{len(failed)} of {len(jobs)} runs failed; their files under {directory} have the "
            "tracebacks, and the same command runs them again"
        )
    return 1 if failed else 0


def plan(
    space_files: Sequence[Path],
    strategies: Sequence[str],
    directory: Path,
    rules: Rules,
    learned: Mapping[str, Mapping[str, Path]] = {},
) -> list[Job]:
    """List the runs of a comparison: for each seed in turn, every strategy on every space.

    ``learned``: the prior and draft files, by kind and space. Raises ``CompareError`` if there is
    no space, a file is not a space or is a sample, or two spaces have the same name.
    """
    if not space_files:
        raise CompareError("there is no space to compare on; name one, or build one")
    files: dict[str, Path] = {}
    for path in space_files:
        try:
            space = load_space(path)
        except SpaceError as error:
            raise CompareError(str(error)) from error
        if not space.closed:
            raise CompareError(
                f"{path} is a sample, which nothing can be searched in: it has no answer for most "
                "schedules; leave it out"
            )
        if space.name in files:
            raise CompareError(
                f"{path} and {files[space.name]} are both spaces of the name {space.name!r}; leave "
                "one out"
            )
        files[space.name] = path
    digests = {name: file_digest(path) for name, path in files.items()}
    jobs = []
    for seed in range(rules.seeds):
        for name, path in files.items():
            for strategy in strategies:
                kinds = find_experiment(strategy).begins_with
                begins_with = {kind: learned[kind][name] for kind in kinds if kind in learned}
                settings = RunSettings(
                    space=name,
                    space_digest=digests[name],
                    strategy=strategy,
                    seed=seed,
                    trials=rules.trials,
                    num_trials_per_iter=rules.num_trials_per_iter,
                    noisy=rules.noisy,
                    version=version("apache-tvm"),
                    code=source_digest(REPLAYING),
                    learned="".join(map(file_digest, begins_with.values())),
                )
                jobs.append(Job(path, settings, settings.file(directory), begins_with))
    return jobs


def finished(jobs: Sequence[Job]) -> dict[Path, RunResult]:
    """Load existing results by file, except failed results, which are run again.

    Raises ``CompareError`` if an existing file cannot be read or holds the result of other
    settings.
    """
    results = {}
    for job in jobs:
        if not job.file.exists():
            continue
        result = RunResult.load(job.file)
        expected, found = vars(job.settings), vars(result.settings)
        other = [name for name in expected if expected[name] != found[name]]
        if other:
            differences = ", ".join(f"{n} {found[n]!r} instead of {expected[n]!r}" for n in other)
            raise CompareError(
                f"{job.file} is the result of a run of other settings: {differences}; choose "
                "another directory, or delete this one"
            )
        if result.error is None:
            results[job.file] = result
    return results


def run_jobs(
    jobs: Sequence[Job], run: Run, workers: int, timeout_secs: float
) -> Iterator[tuple[Job, RunResult]]:
    """Run jobs in worker processes, and save each result to its file.

    ``run``: the function that runs one job; picklable. ``timeout_secs``: time limit of a run in
    seconds; a longer run is killed. Yields jobs and results in the order of completion. A run that
    raises, times out or ends its process yields a result with an error.
    """
    if not jobs:
        return
    pool = WorkerPool(workers, prepare=_prepare, max_growth=512 << 20)
    try:
        begun: dict[Future[RunResult], Job] = {
            pool.submit(timeout_secs, _run_job, run, job, trusted()): job for job in jobs
        }
        for future in as_completed(begun):
            job = begun.pop(future)
            try:
                result = future.result()
            except TaskFailed as error:
                result = RunResult(job.settings, (), f"{error.kind}: {error}")
            result.save(job.file)
            yield job, result
    finally:
        pool.close()


def _run_job(run: Run, job: Job, trusted_names: Sequence[str]) -> RunResult:
    """Run a job in a worker, with the trusted functions of this process."""
    trust(*trusted_names)
    return run(job.space_file, job.settings, job.learned)


def _prepare() -> None:
    """Import shared modules before the workers are forked."""
    fast_start()
    importlib.import_module("xgboost")
