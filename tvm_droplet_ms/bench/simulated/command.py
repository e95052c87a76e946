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
"""Compare variants of a search on whole spaces, with times that are partly simulated.

    python -m tvm_droplet_ms.bench.simulated --out simulated --variants neither draft --draft FILE

A whole space is too large to measure, so no table has a time for all that a search proposes. Here
a program that the sample has takes the time that was measured; any other takes what trees over its
features say, times an error of its own (see ``Simulation``). Searches are real: they go through
``ms.tune_tir``, and only the builder and the runner answer from the simulation.

It decides between variants; it says nothing of how fast a kernel is. A finished run is a file, and
is not made again.
"""

import argparse
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from ...measure import fast_start
from ...measure.pool import available_cpus
from ..compare.comparison import incumbents
from ..compare.replay import load_space, run_on
from ..compare.results import CompareError, RunResult, RunSettings, file_digest
from ..compare.runs import Job, finished, run_jobs
from ..compare.source_digest import RUNNING, source_digest
from ..library import find_space
from ..live.tables import format_table
from ..pool_replay import SPACES
from .ratios import table
from .simulated_table import SimulatedTable, load_simulation, simulate_once
from .variants import VARIANTS, Beliefs, make_variant

CHECKPOINTS = (8, 16, 32, 64, 128)

SOURCES = (*RUNNING, "bench/simulated")

TIMEOUT_SECS = 1800.0
"""Time limit of a run."""

BATCH = 64
"""The most measurements of one batch; TVM's own default."""


def simulate(
    space_file: Path, settings: RunSettings, *, simulations: Path, beliefs: Beliefs
) -> RunResult:
    """Run a variant on a space, in this process.

    Parameters
    ----------
    space_file : Path
        The sample.
    settings : RunSettings
        Settings of the run.
    simulations : Path
        Directory of the simulations.
    beliefs : Beliefs
        What a variant begins with.
    """
    fast_start()
    simulation = load_simulation(simulate_once(space_file, simulations))
    strategy = make_variant(settings.strategy, beliefs)
    result = SimulatedTable(load_space(space_file), simulation)
    return run_on(result, settings, (strategy, "random"))


def plan(
    spaces: Sequence[Path],
    variants: Sequence[str],
    directory: Path,
    *,
    trials: int,
    seeds: int,
    beliefs: Beliefs,
) -> list[Job]:
    """List the runs: every variant on every space with one seed, then the next.

    Raises
    ------
    CompareError
        If a variant does not exist, or lacks a file.
    """
    for variant in variants:
        make_variant(variant, beliefs)
    files = [file for file in (beliefs.draft, beliefs.prior) if file is not None]
    digests = " ".join(map(file_digest, files)) or None
    jobs = []
    for seed in range(seeds):
        for path in spaces:
            for variant in variants:
                settings = RunSettings(
                    space=load_space(path).name,
                    space_digest=file_digest(path),
                    strategy=variant,
                    seed=seed,
                    trials=trials,
                    num_trials_per_iter=BATCH,
                    noisy=False,
                    versions={},
                    code=source_digest(SOURCES),
                    model=digests,
                )
                jobs.append(Job(path, settings, settings.file(directory)))
    return jobs


def report(results: Sequence[RunResult], baseline: str, trials: int, *, markdown: bool) -> str:
    """The tables of finished runs.

    Parameters
    ----------
    results : Sequence[RunResult]
        The runs; failed ones are counted and left out.
    baseline : str
        The variant that the others are compared with.
    trials : int
        The trials of a run.
    markdown : bool
        Whether to print tables in Markdown.
    """
    courses: dict[str, dict[tuple[str, int], list[float]]] = {}
    for result in results:
        settings = result.settings
        runs = courses.setdefault(settings.strategy, {})
        if result.error is None:
            runs[settings.space, settings.seed] = incumbents(result).tolist()
    checkpoints = [count for count in CHECKPOINTS if count <= trials] or [trials]
    texts = []
    for by_space in (False, True):
        header, *rows = table(courses, baseline, checkpoints, by_space=by_space)
        texts.append(format_table(header, rows, markdown))
    failed = [result for result in results if result.error is not None]
    texts += [
        f"failed: {one.settings.strategy}, {one.settings.space}: {one.error}" for one in failed
    ]
    return "\n\n".join(texts)


def main(argv: Sequence[str] | None = None) -> int:
    """Parse the arguments, run what is missing and print; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="where results are kept")
    parser.add_argument(
        "--variants",
        nargs="+",
        default=["neither", "draft"],
        help=f"the first is what the others are compared with; of: {', '.join(VARIANTS)}",
    )
    parser.add_argument("--spaces", nargs="+", default=list(SPACES), help="samples (default: four)")
    parser.add_argument("--trials", type=int, default=128, help="of a run (default: 128)")
    parser.add_argument("--seeds", type=int, default=4, help="how many (default: 4)")
    parser.add_argument("--draft", type=Path, help="file of a draft")
    parser.add_argument("--prior", type=Path, help="file of a model")
    parser.add_argument("--workers", type=int, help="processes (default: the CPUs)")
    parser.add_argument("--markdown", action="store_true", help="print tables in Markdown")
    args = parser.parse_args(argv)
    beliefs = Beliefs(args.draft, args.prior)
    spaces = [find_space(name) for name in args.spaces]
    try:
        jobs = plan(
            spaces, args.variants, args.out, trials=args.trials, seeds=args.seeds, beliefs=beliefs
        )
        results = finished(jobs)
    except CompareError as error:
        parser.error(str(error))
    simulations = args.out / "simulations"
    fast_start()
    for path in spaces:
        simulate_once(path, simulations)
    missing = [job for job in jobs if job.file not in results]
    print(f"{len(jobs)} runs, {len(results)} of them done before", flush=True)
    run = partial(simulate, simulations=simulations, beliefs=beliefs)
    workers = args.workers or len(available_cpus())
    for job, result in run_jobs(missing, run=run, workers=workers, timeout_secs=TIMEOUT_SECS):
        results[job.file] = result
        settings = result.settings
        outcome = "FAILED" if result.error else f"{1e6 * incumbents(result)[-1]:.1f} us"
        print(f"{settings.space}, {settings.strategy}, {settings.seed}: {outcome}", flush=True)
    done = [results[job.file] for job in jobs]
    print("\n" + report(done, args.variants[0], args.trials, markdown=args.markdown))
    return 1 if any(result.error for result in done) else 0
