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
"""Do runs that are replayed on a measured space end where live ones do?

Runs one strategy live and replayed, with the same seeds and trials, in alternation, on spaces of
this machine; judges both by the space's best estimates, and prints the distributions side by side.

    python examples/replay_against_live.py --spaces dense conv2d_nchw --seeds 8
"""

import argparse
import random
import tempfile
from dataclasses import dataclass, field
from statistics import fmean, median

import numpy as np
from scipy import stats
from tvm_ffi import structural_hash

from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.measure_callback import PyMeasureCallback
from tvm.target import Target
from tvm_droplet_ms.bench.compare.strategies import make_strategy
from tvm_droplet_ms.bench.definitions import find_definition
from tvm_droplet_ms.bench.files import load
from tvm_droplet_ms.bench.library import find_space
from tvm_droplet_ms.bench.space import Space
from tvm_droplet_ms.bench.table import ReplayTable
from tvm_droplet_ms.measure import fast_measure
from tvm_droplet_ms.progress import quieten_tvm


@dataclass
class Run:
    """The modules of one run in order of measurement, and the times that were reported."""

    modules: list[int] = field(default_factory=list)
    secs: list[float] = field(default_factory=list)

    def fractions(self, space: Space, counts: list[int]) -> list[float]:
        """The optimum over the best estimate of what the run would return after so many trials."""
        found = []
        for count in counts:
            chosen = int(np.argmin(self.secs[:count]))
            time = space.modules[space.index[self.modules[chosen]]].time
            found.append(space.optimum / time)
        return found


@derived_object
class Recorder(PyMeasureCallback):
    """Keeps what was measured."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run

    def apply(self, scheduler, task, candidates, builder_results, runner_results) -> None:
        for candidate, result in zip(candidates, runner_results, strict=True):
            secs = [float(sec) for sec in result.run_secs or ()]
            self.run.modules.append(structural_hash(candidate.sch.mod))
            self.run.secs.append(fmean(secs) if secs else float("inf"))


def tune(space: Space, strategy: str, trials: int, seed: int, measure: dict) -> Run:
    """One run, measured by a builder and a runner."""
    definition = find_definition(space.definition)
    made, cost_model, _ = make_strategy(strategy, trials, space.index)
    run = Run()
    random.seed(seed)
    np.random.seed(seed)
    quieten_tvm()
    with tempfile.TemporaryDirectory() as work_dir:
        ms.tune_tir(
            definition.mod,
            Target(dict(space.target)),
            work_dir,
            trials,
            num_trials_per_iter=16,
            database=ms.database.MemoryDatabase(),
            cost_model=cost_model,
            space=definition.make_space(),
            strategy=made,
            measure_callbacks=[Recorder(run), *ms.MeasureCallback.create("default")],
            num_tuning_cores=1,
            seed=seed,
            **measure,
        )
    return run


def compare(space: Space, strategy: str, trials: int, seeds: int) -> None:
    """Print the runs of one space."""
    counts = [count for count in (8, 16, 32, 64, 128) if count <= trials]
    live, replayed, ratios = [], [], []
    fast = fast_measure(Target(dict(space.target)))
    for seed in range(1, seeds + 1):
        run = tune(space, strategy, trials, seed, fast)
        live.append(run.fractions(space, counts))
        for name, secs in zip(run.modules, run.secs, strict=True):
            ratios.append(secs / space.modules[space.index[name]].time)
        table = ReplayTable(space, noisy=True, seed=seed)
        replayed.append(
            tune(space, strategy, trials, seed, table.measure()).fractions(space, counts)
        )
    low, high = np.quantile(ratios, (0.25, 0.75))
    print(f"\n{space.name}, {strategy}, {seeds} seeds, {trials} trials")
    print(
        f"live time over the space's: median {median(ratios):.3f}, quartiles {low:.3f}-{high:.3f}"
    )
    print("| trials | live: median [quartiles] | replayed: median [quartiles] | p |")
    print("| -----: | -----------------------: | ---------------------------: | -: |")
    for column, count in enumerate(counts):
        both = [np.array(runs)[:, column] for runs in (live, replayed)]
        cells = [
            f"{np.median(one):.3f} [{np.quantile(one, 0.25):.3f}-{np.quantile(one, 0.75):.3f}]"
            for one in both
        ]
        p_value = stats.mannwhitneyu(*both).pvalue
        print(f"| {count} | {cells[0]} | {cells[1]} | {p_value:.2f} |", flush=True)


def main() -> None:
    """Parse the arguments and compare."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--spaces", nargs="+", default=["dense", "conv2d_nchw"])
    parser.add_argument("--strategy", default="droplet")
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--seeds", type=int, default=8)
    options = parser.parse_args()
    for name in options.spaces:
        space = load(find_space(name))
        if not isinstance(space, Space):
            parser.error(f"{name} is a surrogate, expected a space with a time for every module")
        compare(space, options.strategy, options.trials, options.seeds)
    print("\np: Mann-Whitney's, two-sided, that live and replayed runs are of one distribution.")


if __name__ == "__main__":
    main()
