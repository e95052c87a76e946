# SPDX-License-Identifier: Apache-2.0
"""The runs of a comparison: plans them, runs them in parallel processes, and resumes them."""

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, as_completed
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from ...measure import TaskFailed, WorkerPool, fast_start
from ..definitions import trust, trusted
from ..source_digest import REPLAYING, source_digest
from ..space import SpaceError
from .replay import load_space, replay
from .results import CompareError, RunResult, RunSettings, file_digest
from .strategies import Learned, find_experiment

Run = Callable[..., RunResult]
"""Runs a strategy, given the space file, the settings, and the strategy's prior and draft files."""


@dataclass(frozen=True)
class Job:
    """A run to do."""

    space_file: Path
    settings: RunSettings
    file: Path
    learned: Learned


def plan(
    space_files: Sequence[Path],
    strategies: Sequence[str],
    directory: Path,
    *,
    trials: int,
    seeds: int,
    num_trials_per_iter: int,
    noisy: bool,
    learned: Mapping[str, Mapping[str, Path]] = {},
) -> list[Job]:
    """List the runs of a comparison: for each seed in turn, every strategy on every space.

    ``learned``: the prior and draft files, by kind and space. Raises ``CompareError`` if there is
    no space, a file is not a space or is a sample, two spaces have the same name, or a number is
    out of range.
    """
    for name, number in [
        ("trials", trials),
        ("seeds", seeds),
        ("num_trials_per_iter", num_trials_per_iter),
    ]:
        if number < 1:
            raise CompareError(f"{name} is {number}, expected at least 1")
    if not space_files:
        raise CompareError("there is no space to compare on; name one, or build one")
    files: dict[str, Path] = {}
    for path in space_files:
        try:
            loaded = load_space(path)
        except SpaceError as error:
            raise CompareError(str(error)) from error
        name = loaded.name
        if not loaded.closed:
            raise CompareError(
                f"{path} is a sample, which nothing can be searched in: it has no answer for most "
                "schedules; leave it out"
            )
        if name in files:
            raise CompareError(
                f"{path} and {files[name]} are both spaces of the name {name!r}; leave one out"
            )
        files[name] = path
    digests = {name: file_digest(path) for name, path in files.items()}
    jobs = []
    for seed in range(seeds):
        for name, path in files.items():
            for strategy in strategies:
                kinds = find_experiment(strategy).begins_with
                begins_with = {kind: learned[kind][name] for kind in kinds if kind in learned}
                settings = RunSettings(
                    space=name,
                    space_digest=digests[name],
                    strategy=strategy,
                    seed=seed,
                    trials=trials,
                    num_trials_per_iter=num_trials_per_iter,
                    noisy=noisy,
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
    jobs: Sequence[Job], *, run: Run = replay, workers: int, timeout_secs: float
) -> Iterator[tuple[Job, RunResult]]:
    """Run jobs in worker processes, and save each result to its file.

    - ``run``: the function that runs one job; picklable.
    - ``workers``: the number of processes.
    - ``timeout_secs``: time limit of a run in seconds; a longer run is killed.

    Yields jobs and results in the order of completion. A run that raises, times out or ends its
    process yields a result with an error.
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
