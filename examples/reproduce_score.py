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
"""Kernel Tuner's strategies on its public spaces: our score beside the published tool's.

    git clone https://github.com/AutoTuningAssociation/benchmark_hub
    gunzip --keep benchmark_hub/cachefiles/*/*.json.gz

    # in an environment of its own: pip install kernel_tuner==1.5.0 autotuning_methodology==1.1.0
    python reproduce_score.py simulate --hub benchmark_hub --out runs.json

    # in the environment of this package
    python reproduce_score.py score --hub benchmark_hub --runs runs.json

The first runs Kernel Tuner in its simulation mode, once for each seed, and has
``autotuning_methodology`` score the runs; over seconds it does so 20 times, as its bagging has no
seed. The second scores the same runs with ``tvm_droplet_ms.bench``.

A run that ends before the budget keeps its best in our score over trials. The published code drops
it if it ends before the median run does, and holds the others from there on; the column "ended
dropped" is our score of the runs after that, which is what the published one must be equal to.
Over seconds both treat the runs alike, and the two must agree within the spread of the bagging:
printed is the mean over 20 draws, and their standard deviation.

A strategy can be given options: genetic_algorithm:popsize=20,method=single_point
"""

import argparse
import json
import random
import tempfile
import warnings
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any

SPACES = ["convolution_milo/A100", "convolution_milo/MI250X", "dedispersion_milo/A100"]
STRATEGIES = ["random_sample", "genetic_algorithm", "simulated_annealing"]
CUTOFF, CUTOFF_START = 0.95, 0.01
TIME_KEYS = ["compilation", "runtimes", "framework", "search_algorithm", "validation"]
SCORINGS = 20


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("simulate", "score"):
        command = commands.add_parser(name)
        command.add_argument("--hub", type=Path, required=True, help="the checkout, unpacked")
        if name == "simulate":
            command.add_argument("--spaces", nargs="+", default=SPACES, metavar="KERNEL/DEVICE")
            command.add_argument("--strategies", nargs="+", default=STRATEGIES)
            command.add_argument("--seeds", type=int, default=25)
            command.add_argument("--out", type=Path, required=True)
        else:
            command.add_argument("--runs", type=Path, nargs="+", required=True)
    return parser.parse_args()


def simulate(arguments: argparse.Namespace) -> None:
    """Run each strategy on each space and write the runs with the published tool's scores."""
    warnings.simplefilter("ignore")
    content = {
        space: {
            strategy: simulate_one(arguments, space, strategy) for strategy in arguments.strategies
        }
        for space in arguments.spaces
    }
    arguments.out.write_text(json.dumps(content))


def simulate_one(arguments: argparse.Namespace, space: str, strategy: str) -> dict[str, Any]:
    import numpy
    from autotuning_methodology.searchspace_statistics import SearchspaceStatistics
    from kernel_tuner import tune_kernel
    from kernel_tuner.file_utils import get_t4_results

    kernel, device = space.split("/")
    cache = arguments.hub / "cachefiles" / f"{space}.json"
    content = json.loads(cache.read_text())
    specification = json.loads((arguments.hub / "kernels" / f"{kernel}.json").read_text())
    conditions = specification["ConfigurationSpace"]["Conditions"]
    measured = SearchspaceStatistics(
        kernel, device, True, TIME_KEYS, ["time"], arguments.hub / "cachefiles" / f"{space}_T4.json"
    )
    _, last, _, _ = measured.cutoff_point_fevals_time_start_end(CUTOFF_START, CUTOFF)
    name, _, text = strategy.partition(":")
    options: dict[str, Any] = {"max_fevals": min(-(-last * 11 // 10), measured.size)}
    for option in filter(None, text.split(",")):
        key, value = option.split("=")
        options[key] = value if value.isidentifier() else json.loads(value)
    runs = []
    for seed in range(arguments.seeds):
        random.seed(seed)
        numpy.random.seed(seed)
        results, _ = tune_kernel(
            content["kernel_name"],
            "",
            content["problem_size"],
            [],
            content["tune_params"],
            restrictions=[condition["Expression"] for condition in conditions],
            lang="CUDA",
            cache=str(cache),
            simulation_mode=True,
            strategy=name,
            strategy_options=dict(options),
            quiet=True,
        )
        run = get_t4_results(results, content["tune_params"])["results"]
        for result in run:
            result["times"] = {
                key: [value / 1e3 for value in time] if isinstance(time, list) else time / 1e3
                for key, time in result["times"].items()
            }
        runs.append(run)
    trial_score, time_scores = published_scores(measured, strategy, runs)
    print(f"{space} {strategy}: {len(runs)} runs", flush=True)
    return {
        "times": [[time_of(result) for result in run] for run in runs],
        "secs": [[secs_of(result) for result in run] for run in runs],
        "trial_score": trial_score,
        "time_scores": time_scores,
    }


def time_of(result: dict[str, Any]) -> float | None:
    """The time of an evaluation in the unit of the cache; None if it failed."""
    value = next(m["value"] for m in result["measurements"] if m["name"] == "time")
    return value if isinstance(value, float) else None


def secs_of(result: dict[str, Any]) -> float:
    parts = (result["times"][key] for key in TIME_KEYS)
    return float(sum(sum(part) if isinstance(part, list) else part for part in parts))


def published_scores(measured: Any, strategy: str, runs: list[Any]) -> tuple[float, list[float]]:
    """The scores of ``autotuning_methodology``, over trials and over seconds."""
    import numpy
    from autotuning_methodology.baseline import RandomSearchCalculatedBaseline
    from autotuning_methodology.caching import ResultsDescription
    from autotuning_methodology.curves import StochasticOptimizationAlgorithm
    from autotuning_methodology.report_experiments import get_strategies_aggregated_performance
    from autotuning_methodology.runner import write_results

    with tempfile.TemporaryDirectory() as folder:
        description = ResultsDescription(
            Path(folder),
            measured.application_name,
            measured.device_name,
            strategy,
            strategy,
            True,
            TIME_KEYS,
            ["time"],
            True,
        )
        write_results(runs, description)
        curve = StochasticOptimizationAlgorithm(description)
    first, last, start, end = measured.cutoff_point_fevals_time_start_end(CUTOFF_START, CUTOFF)
    trials, moments = numpy.arange(first, last + 1), numpy.linspace(start, end, 1000)
    baseline = RandomSearchCalculatedBaseline(measured)
    _, _, found, _, _ = curve.get_curve_over_fevals(
        trials, measured.objective_performances_total_sorted, return_split=False
    )
    over_trials = baseline.get_standardised_curve(trials, found, "fevals")
    data = [(baseline, [curve], measured, moments, trials)]
    over_time = [get_strategies_aggregated_performance(data, 0.95)[0][0] for _ in range(SCORINGS)]
    return float(over_trials.mean()), [float(values.mean()) for values in over_time]


def without_ended(runs: list[list[float]], last: int) -> list[list[float]]:
    """The runs that count for the published code, as far as they count."""
    common = int(median([min(len(run), last) for run in runs]))
    return [run[:common] for run in runs if len(run) >= common]


def score(arguments: argparse.Namespace) -> None:
    """Score the same runs and print both."""
    from tvm_droplet_ms.bench.kernel_tuner import TunedSpace
    from tvm_droplet_ms.bench.measures import score_interval
    from tvm_droplet_ms.bench.score import SpaceScore
    from tvm_droplet_ms.bench.time_score import SpaceTimeScore

    row = "{:24s} {:20s} {:>6s}  {:>24s} {:>13s} {:>9s}  {:>18s} {:>18s}"
    over_trials = ("ours [95% over seeds]", "ended dropped", "published")
    print(row.format("space", "strategy", "trials", *over_trials, "ours over seconds", "published"))
    means: dict[str, list[tuple[float, ...]]] = {}
    for path in arguments.runs:
        for name, strategies in json.loads(path.read_text()).items():
            space = TunedSpace.load(arguments.hub / "cachefiles" / f"{name}_T4.json")
            by_trial = SpaceScore(space.times, CUTOFF, CUTOFF_START)
            by_time = [
                SpaceTimeScore(space.times, space.secs, CUTOFF, CUTOFF_START, seed=seed)
                for seed in range(SCORINGS)
            ]
            last = int(by_trial.trials[-1])
            for strategy, data in strategies.items():
                runs = [
                    [float("inf") if time is None else time for time in run]
                    for run in data["times"]
                ]
                ours = score_interval([by_trial], [runs])
                over_secs = [scored.score(runs, data["secs"]) for scored in by_time]
                published = data["time_scores"]
                print(
                    row.format(
                        name,
                        strategy.partition(":")[0],
                        str(last),
                        f"{ours.value:.4f} [{ours.low:.3f}, {ours.high:.3f}]",
                        f"{by_trial.score(without_ended(runs, last)):.4f}",
                        f"{data['trial_score']:.4f}",
                        *(f"{mean(s):.4f} ± {stdev(s):.4f}" for s in (over_secs, published)),
                    )
                )
                scores = (ours.value, mean(over_secs), mean(published))
                means.setdefault(strategy, []).append(scores)
    print("\nmean over the spaces: ours over trials, ours over seconds, published over seconds")
    for strategy, all_scores in means.items():
        values = " ".join(f"{mean(column):8.4f}" for column in zip(*all_scores, strict=True))
        print(f"{len(all_scores)} spaces {values}  {strategy}")


def main() -> None:
    arguments = parse_arguments()
    {"simulate": simulate, "score": score}[arguments.command](arguments)


if __name__ == "__main__":
    main()
