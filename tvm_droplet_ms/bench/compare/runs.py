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
"""The runs of a comparison: which there are, running them in parallel processes, resuming."""

import importlib
import random
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, as_completed
from dataclasses import dataclass
from functools import lru_cache
from importlib import metadata
from pathlib import Path

import numpy as np
import threadpoolctl

from tvm.s_tir import meta_schedule as ms
from tvm.target import Target

from ...measure import fast_start
from ...measure.link import TaskFailed
from ...measure.pool import WorkerPool
from ...progress import quieten_tvm
from ..definitions import definition_of, trust, trusted
from ..files import load, measured_modules
from ..space import Space, SpaceError
from ..surrogates.surrogate import LEAST_CORRELATION, Surrogate
from ..table import ReplayTable
from .results import KINDS, CompareError, RunResult, RunSettings, file_digest
from .strategies import LEAVES_SPACE, make_strategy

Run = Callable[..., RunResult]
"""Runs a strategy: takes the file of the space, the settings, and, where there is one, the file of
the cost model as ``model``."""


@dataclass(frozen=True)
class Job:
    """A run that is to be done.

    Parameters
    ----------
    space_file : Path
        The space.
    settings : RunSettings
        What is to be done.
    file : Path
        Where the result goes.
    model : Path | None
        The cost model that it begins with; None for one that knows nothing.
    """

    space_file: Path
    settings: RunSettings
    file: Path
    model: Path | None = None


def replay(space_file: Path, settings: RunSettings, model: Path | None = None) -> RunResult:
    """Run a strategy on a space, in this process.

    Seeds Python's and NumPy's global generators: below 100 samples TVM's ``XGBModel`` predicts
    from the latter.

    Parameters
    ----------
    space_file : Path
        The space.
    settings : RunSettings
        What to do.
    model : Path | None
        The cost model to begin with.

    Returns
    -------
    result : RunResult
        With what was measured.

    Raises
    ------
    CompareError
        If the file is not the one that the settings were made for, or nothing was measured.
    Exception
        Whatever the strategy, the space or TVM raises.
    """
    if file_digest(space_file) != settings.space_digest:
        raise CompareError(f"{space_file} has changed since the comparison began; start it again")
    fast_start()
    answers = load_space(space_file)
    space = measured_modules(answers)
    definition = definition_of(space)
    strategy, cost_model, dropped = make_strategy(
        settings.strategy, settings.trials, set(space.index) if space.closed else None, model
    )
    table = ReplayTable(
        answers,
        noisy=settings.noisy,
        seed=settings.seed,
        outside_fails=settings.strategy in LEAVES_SPACE,
    )
    random.seed(settings.seed)
    np.random.seed(settings.seed)
    quieten_tvm()
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as work_dir, threadpoolctl.threadpool_limits(1):
        with ms.Profiler() as profiler:
            ms.tune_tir(
                definition.mod,
                Target(dict(space.target)),
                work_dir,
                settings.trials,
                num_trials_per_iter=settings.num_trials_per_iter,
                database=ms.database.MemoryDatabase(),
                cost_model=cost_model,
                space=definition.make_space(),
                strategy=strategy,
                num_tuning_cores=1,
                seed=settings.seed,
                **table.measure(),
            )
        wall_secs = time.perf_counter() - start
    if not 1 <= len(table.trials) <= settings.trials:
        raise CompareError(
            f"{settings.strategy} measured {len(table.trials)} candidates on {settings.space}, "
            f"expected 1 to {settings.trials}"
        )
    scopes = {str(name): float(secs.value) for name, secs in profiler.get().items()}
    return RunResult(settings, tuple(table.trials), wall_secs, scopes, dropped=dropped)


def plan(
    space_files: Sequence[Path],
    strategies: Sequence[str],
    directory: Path,
    *,
    trials: int,
    seeds: int,
    num_trials_per_iter: int,
    noisy: bool,
    models: Mapping[str, Mapping[str, Path]] | None = None,
) -> list[Job]:
    """All runs of a comparison: first every strategy on every space with one seed, then the next.

    The cost models of strategies that begin with one are given by kind and space.

    Raises
    ------
    CompareError
        If there is no space, a file is none, two have the same name, or a number is out of range.
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
        name = measured_modules(loaded).name
        if isinstance(loaded, Surrogate) and not loaded.is_trusted:
            raise CompareError(
                f"{path} is a surrogate that ranks points held out with a correlation below "
                f"{LEAST_CORRELATION}, and decides nothing; leave it out, or sample more points"
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
                model = (models or {}).get(KINDS.get(strategy, ""), {}).get(name)
                settings = RunSettings(
                    space=name,
                    space_digest=digests[name],
                    strategy=strategy,
                    seed=seed,
                    trials=trials,
                    num_trials_per_iter=num_trials_per_iter,
                    noisy=noisy,
                    versions=_versions(),
                    model=None if model is None else file_digest(model),
                )
                jobs.append(Job(path, settings, settings.file(directory), model))
    return jobs


def finished(jobs: Sequence[Job]) -> dict[Path, RunResult]:
    """The results that are there already by file, without failed ones, which are run again.

    Raises
    ------
    CompareError
        If a file is there that holds the result of other settings, or that cannot be read.
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
    """Run jobs in worker processes, and keep each result in its file.

    Parameters
    ----------
    jobs : Sequence[Job]
        What to run, in this order.
    run : Run
        Runs one; picklable.
    workers : int
        The number of processes.
    timeout_secs : float
        How long one may take, in seconds, before it is killed.

    Yields
    ------
    done : tuple[Job, RunResult]
        In the order in which they end. What raises, takes too long or ends its process has a
        result with an error.
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
                result = RunResult(job.settings, (), 0.0, {}, f"{error.kind}: {error}")
            result.save(job.file)
            yield job, result
    finally:
        pool.close()


def _run_job(run: Run, job: Job, trusted_names: Sequence[str]) -> RunResult:
    """Run a job in a worker, which trusts what the user of this process trusts."""
    trust(*trusted_names)
    if job.model is None:
        return run(job.space_file, job.settings)
    return run(job.space_file, job.settings, model=job.model)


@lru_cache(maxsize=32)
def load_space(path: Path) -> Space | Surrogate:
    """Read a space, once in a process."""
    return load(path)


def _prepare() -> None:
    """What the workers have in common, imported before they are forked."""
    fast_start()
    importlib.import_module("xgboost")


def _versions() -> dict[str, str]:
    versions = {}
    for name in ("apache-tvm", "tvm-droplet-ms"):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = "not installed"
    return versions
