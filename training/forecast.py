# SPDX-License-Identifier: Apache-2.0
"""The forecast of ``search_strategy/stopping.py``: the runs that it is fitted to, and the fit.

``python training/forecast.py run`` tunes ten layers with several seeds and adds a line to
``docs/data/forecast_runs.jsonl`` for each run; runs that have a line are left out, so that it goes
on where it was stopped. ``python training/forecast.py fit`` prints the constants, how often the
interval holds, and what ``stop=`` spends and keeps, each layer predicted from the nine others. Run
the first on an idle machine. ``python training/forecast.py draw`` draws forecast and gain, as
``docs/results/forecast.svg``. ``python training/forecast.py models`` holds the forecast of whole
models (``tuning/budget/outlook.py``) against the runs of ``training/models``, in their order: every
kernel counts once, and the roofline is an estimate of their machine's.
"""

import argparse
import json
import math
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import optimize

from tvm_droplet_ms.search_strategy.stopping import (
    AHEAD,
    LEAST_ROOM,
    MOST_ROOM,
    USUAL_ROOM,
)

sys.path.append(str(Path(__file__).resolve().parents[1]))  # `benchmarks` is not installed.

DATA = Path(__file__).resolve().parent.parent / "docs" / "data" / "forecast_runs.jsonl"
LAYERS = (
    *("conv2d", "dense", "softmax", "conv2d_nchw", "conv2d_1x1", "conv2d_7x7", "batch_matmul"),
    *("depthwise_56", "conv2d_c9", "matmul_1024"),
)
PICTURE = DATA.parent.parent / "results" / "forecast.svg"
MODELS = Path(__file__).resolve().parent / "models"
TRIALS = 128
"""The trials that ``stop=`` is held to; each run has ``AHEAD`` more."""

STOPS = (0.005, 0.007, 0.008, 0.01, 0.015, 0.02)


def main() -> None:
    """Tune, or fit."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("command", choices=["run", "fit", "draw", "models"])
    parser.add_argument("--seeds", type=int, default=4)
    arguments = parser.parse_args()
    if arguments.command == "fit":
        report([json.loads(line) for line in DATA.read_text().splitlines()])
        return
    if arguments.command == "draw":
        draw([json.loads(line) for line in DATA.read_text().splitlines()])
        return
    if arguments.command == "models":
        report_models()
        return
    done = {(line["layer"], line["seed"]) for line in map(json.loads, DATA.open())}
    for seed in range(arguments.seeds):
        for layer in LAYERS:
            if (layer, seed) not in done:
                with DATA.open("a") as out:
                    out.write(json.dumps(tune(layer, seed)) + "\n")
                print(layer, seed)


def tune(layer: str, seed: int) -> dict[str, Any]:
    """One run: the time of each trial in microseconds, 0 for a failure, and the roofline."""
    from benchmarks.searches.layers import ALL_LAYERS, make_module
    from benchmarks.searches.tuning import TrialLog
    from tvm.s_tir import meta_schedule as ms
    from tvm_droplet_ms import DropletStrategy
    from tvm_droplet_ms.host import host_target
    from tvm_droplet_ms.measure import fast_measure
    from tvm_droplet_ms.session.roofline import measure_machine, task_bound

    mod, target, log = make_module(ALL_LAYERS[layer]), host_target(), TrialLog()
    bound = task_bound(mod, measure_machine())
    assert bound is not None
    measure = fast_measure(target)
    with tempfile.TemporaryDirectory() as work_dir:
        ms.tune_tir(
            mod,
            target,
            work_dir,
            TRIALS + AHEAD,
            strategy=DropletStrategy(stop=None, explorer="random"),
            cost_model="none",
            seed=seed,
            measure_callbacks=[*ms.MeasureCallback.create("default"), log.callback()],
            **measure,
        )
    for part in measure.values():
        part.close()
    times = [round(1e6 * (trial.secs or 0.0), 3) for trial in log.trials]
    return {"layer": layer, "seed": seed, "bound": round(1e6 * bound, 3), "times": times}


@dataclass(frozen=True)
class State:
    """What is known before a batch, and what the next trials gained."""

    run: int
    layer: str
    trials: int
    room: float
    gain: float


def states(runs: list[dict[str, Any]]) -> Iterator[State]:
    """The states of all runs after 8 trials, and after every fourth from there on."""
    for number, run in enumerate(runs):
        best = np.minimum.accumulate([time or math.inf for time in run["times"]])
        for trials in range(8, len(best) - AHEAD + 1, 4):
            now, later = best[trials - 1], best[trials + AHEAD - 1]
            yield State(number, run["layer"], trials, 1 - run["bound"] / now, 1 - later / now)


def columns(found: list[State]) -> np.ndarray:
    """The columns of the fit: a constant, and the logarithms of the trials and of the room."""
    room = np.clip([state.room for state in found], LEAST_ROOM, MOST_ROOM) / USUAL_ROOM
    trials = np.array([state.trials for state in found]) / 32
    return np.column_stack([np.ones(len(found)), -np.log(trials), np.log(room)])


def fit(at: np.ndarray, gains: np.ndarray) -> np.ndarray:
    """Coefficients of a log-linear mean, by Poisson's quasi-likelihood."""

    def loss(weights: np.ndarray) -> tuple[float, np.ndarray]:
        logarithm = np.clip(at @ weights, -12, 3)
        means = np.exp(logarithm)
        return float((means - gains * logarithm).mean()), at.T @ (means - gains) / len(gains)

    return np.asarray(optimize.minimize(loss, np.zeros(at.shape[1]), jac=True).x)


def deviance(means: np.ndarray, gains: np.ndarray) -> float:
    """Poisson's deviance of predicted means."""
    logs = np.where(gains > 0, gains * np.log(np.maximum(gains, 1e-12) / means), 0.0)
    return float(2 * (logs - gains + means).mean())


def held_out(at: np.ndarray, gains: np.ndarray, layers: np.ndarray) -> np.ndarray:
    """The forecast of each state, fitted to the other layers."""
    means = np.zeros(len(gains))
    for layer in set(layers):
        means[layers == layer] = np.exp(
            at[layers == layer] @ fit(at[layers != layer], gains[layers != layer])
        )
    return means


def report(runs: list[dict[str, Any]]) -> None:
    """Print the constants, and how good they are on layers that they were not fitted to."""
    found = list(states(runs))
    at, gains = columns(found), np.array([state.gain for state in found])
    layers = np.array([state.layer for state in found])
    constant, by_trials, by_room = fit(at, gains)
    means = held_out(at, gains, layers)
    high = float(np.quantile(gains / means, 0.8))
    print(f"{len(runs)} runs, {len(found)} states")
    print(
        f"GAIN {math.exp(constant):.3f}, BY_TRIALS {by_trials:.2f}, BY_ROOM {by_room:.2f}, "
        f"HIGH {high:.2f}"
    )
    flat = deviance(held_out(at[:, :1], gains, layers), gains)
    for name, used in (("trials", [0, 1]), ("room", [0, 2]), ("trials and room", [0, 1, 2])):
        share = deviance(held_out(at[:, used], gains, layers), gains) / flat
        print(f"deviance with {name}: {share:.2f} of a constant's")
    trials = np.array([state.trials for state in found])
    for low, up in ((8, 16), (16, 32), (32, 64), (64, 129)):
        part = (trials >= low) & (trials < up)
        print(
            f"{low} to {up - 1} trials: forecast {means[part].mean():.2%}, gained "
            f"{gains[part].mean():.2%}, within 80%: {(gains <= high * means)[part].mean():.0%}"
        )
    held = {(state.run, state.trials): mean for state, mean in zip(found, means, strict=True)}
    for stop in STOPS:
        kept, spent = [], []
        for number, run in enumerate(runs):
            best = np.minimum.accumulate([time or math.inf for time in run["times"]])
            most = min(TRIALS, len(best))
            end = next((t for t in range(8, most, 4) if held.get((number, t), 1) < stop), most)
            kept.append(best[most - 1] / best[end - 1])
            spent.append(end / TRIALS)
        speed = math.exp(np.log(kept).mean())
        print(
            f"stop={stop}: {speed:.1%} of the speed, worst {min(kept):.1%}, "
            f"{np.mean(spent):.0%} of the trials"
        )


def draw(runs: list[dict[str, Any]]) -> None:
    """Draw what was gained against what was forecast, each layer from the nine others."""
    from matplotlib import rcParams
    from matplotlib.figure import Figure

    found = list(states(runs))
    at, gains = columns(found), np.array([state.gain for state in found])
    means = held_out(at, gains, np.array([state.layer for state in found]))
    high = float(np.quantile(gains / means, 0.8))
    rcParams["svg.fonttype"] = "none"
    rcParams["svg.hashsalt"] = "forecast"  # Otherwise two runs draw different files.
    figure = Figure(figsize=(5, 3.2), layout="constrained")
    axes = figure.subplots()
    tenths = np.array_split(np.argsort(means), 10)
    forecast = [100 * means[part].mean() for part in tenths]
    low, most = (100 * np.array([np.quantile(gains[p], q) for p in tenths]) for q in (0.1, 0.9))
    axes.fill_between(forecast, low, most, color="#dddddd", label="8 of 10")
    average = [100 * gains[part].mean() for part in tenths]
    axes.plot(forecast, average, "o-", color="#2a7ab9", label="average of a tenth of the moments")
    line = np.array([min(forecast), max(forecast)])
    axes.plot(line, line, color="black", linewidth=0.8, label="as forecast")
    axes.plot(line, high * line, "--", color="black", linewidth=0.8, label="80% are below")
    axes.set_xscale("log")
    axes.set_xticks([0.2, 0.5, 1, 2, 5, 10], ["0.2%", "0.5%", "1%", "2%", "5%", "10%"])
    axes.set_yscale("symlog", linthresh=1)
    axes.set_yticks([0, 1, 2, 5, 10, 20, 50], ["0", "1%", "2%", "5%", "10%", "20%", "50%"])
    axes.set_ylim(bottom=0)
    axes.tick_params(labelsize=7)
    axes.set_xlabel("forecast gain of the next 32 trials", fontsize=7)
    axes.set_ylabel("gained", fontsize=7)
    axes.legend(fontsize=6)
    figure.savefig(PICTURE, format="svg", metadata={"Date": None})


def report_models() -> None:
    """Print what was forecast of each archive's run at some moments, and what it gained then."""
    from tvm_droplet_ms.tuning.budget.ending import SECS_PER_TRIAL
    from tvm_droplet_ms.tuning.budget.outlook import HIGH, LOW, outlook

    pairs = []
    for archive in sorted(MODELS.glob("*-5min.tar.xz")):
        bounds, trials = recorded(archive)
        for share in (0.35, 0.5, 0.65):
            for ahead in (60, 120, 171):
                now = round(len(trials) * share)
                best, later = bests(trials[:now]), bests(trials[: now + ahead])
                if now + ahead > len(trials) or len(best) < 0.8 * len(bounds):
                    continue
                count = Counter(kernel for kernel, _ in trials[:now])
                kernels = [
                    _Recorded(secs, bounds[kernel] / secs, count[kernel])
                    for kernel, secs in best.items()
                ]
                total = sum(best.values())
                forecast = outlook(kernels, total, ahead * SECS_PER_TRIAL).gain
                gained = 1.0 - sum(later[kernel] for kernel in best) / total
                pairs.append((forecast, gained))
                print(
                    f"{archive.name.split('-5min')[0]}, {now} trials and {ahead} more: "
                    f"forecast {forecast:.2%}, gained {gained:.2%}"
                )
    means, gains = np.array(pairs).T
    low, high = np.quantile(gains / means, [0.1, 0.9])
    held = ((gains >= LOW * means) & (gains <= HIGH * means)).mean()
    print(f"{len(pairs)} moments: forecast {means.mean():.2%}, gained {gains.mean():.2%}")
    print(f"four of five gained {low:.2f} to {high:.2f} times the forecast; held: {held:.0%}")


@dataclass(frozen=True)
class _Recorded:
    """A kernel at a moment of a recorded run; see ``outlook.Kernel``."""

    secs: float
    roofline_share: float
    trials: int


def recorded(archive: Path) -> tuple[dict[int, float], list[tuple[int, float]]]:
    """The rooflines of a run's kernels in seconds, and its trials in order: kernel and seconds."""
    from tvm_ffi import structural_hash

    from tvm.s_tir.meta_schedule.database import JSONDatabase
    from tvm_droplet_ms.session.records import RECORDS, WORKLOADS
    from tvm_droplet_ms.session.roofline import MachineRates, task_bound

    rates = MachineRates(168e9, (2**17, 2**20, 2**23, 2**26), (100e9, 60e9, 30e9, 15e9))
    with tempfile.TemporaryDirectory() as directory, tarfile.open(archive) as tar:
        tar.extractall(directory, filter="data")
        (folder,) = Path(directory).iterdir()
        database = JSONDatabase(str(folder / WORKLOADS), str(folder / RECORDS))
        mods = {
            structural_hash(record.workload.mod) % 2**64: record.workload.mod
            for record in database.get_all_tuning_records()
        }
        hashes = [int(json.loads(line)[0]) % 2**64 for line in (folder / WORKLOADS).open()]
        trials = [
            (int(line[0]), float(np.mean(line[1][1])) if line[1][1] else math.inf)
            for line in map(json.loads, (folder / RECORDS).open())
        ]
    bounds = {kernel: task_bound(mods[hashes[kernel]], rates) or 0.0 for kernel, _ in trials}
    return bounds, trials


def bests(trials: list[tuple[int, float]]) -> dict[int, float]:
    """The best seconds of each kernel that has some; failures have more than a day."""
    best: dict[int, float] = {}
    for kernel, secs in trials:
        if secs < 86400.0:
            best[kernel] = min(best.get(kernel, math.inf), secs)
    return best


if __name__ == "__main__":
    main()
