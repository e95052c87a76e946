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
"""The tables of ``compare``: results in, text out. Imports no TVM."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .comparison import LayerResults, interval, mean_ratio, ratios_of, worst_layer
from .layers import ALL_LAYERS
from .tables import format_table, last_line, spread

BOUNDS = (0.9, 0.8)
"""Ratios of single runs that are counted: far behind the baseline."""

LEGEND = """\
- ratio: the latency of the baseline over that of the method with the same seed and as many trials;
  above 1 the method is faster. The geometric mean over layers and seeds, with its 95% bootstrap
  interval (layers are drawn, then seeds of each), and the worst layer's geometric mean.
- latency: the winner of the first trials by its record, rebuilt and timed together with all other
  winners of the layer, in alternation and on new buffers in each round: the median, with the
  interquartile range in % of it.
- time over record: the re-measured latency of the last winner over the time of its record, the
  median over runs and the largest: above 1 the record was lucky.
- trials to the baseline: the first trial whose record is as fast as the baseline's last winner of
  the same seed, the median over runs; a record is one timing, which flatters.
- seconds: of tuning, without the start of Python and TVM; proposing is what is spent neither
  building, running, training the cost model nor writing."""


@dataclass(frozen=True)
class Columns:
    """Contents of the tables.

    Parameters
    ----------
    baseline : str
        The method that the others are compared with.
    methods : Sequence[str]
        The methods, in the order of the rows.
    seeds, checkpoints : Sequence[int]
        Seeds and checkpoints of the runs.
    markdown : bool
        Whether tables are in Markdown.
    has_prior : bool
        Whether a method begins with the cost model that comes with the package.
    """

    baseline: str
    methods: Sequence[str]
    seeds: Sequence[int]
    checkpoints: Sequence[int]
    markdown: bool
    has_prior: bool = False


def summary(layers: Mapping[str, LayerResults], columns: Columns) -> str:
    """Tables of the ratios, of how single runs fare, and of the cost of the runs."""
    return "\n\n".join(
        [
            ratio_report(layers, columns),
            _title("Single runs", columns),
            _single_run_table(layers, columns),
            _title("Cost", columns),
            _cost_table(layers, columns),
        ]
    )


def ratio_report(layers: Mapping[str, LayerResults], columns: Columns) -> str:
    """The ratios over all layers, over those that the shipped cost model has not seen, and layer by
    layer."""
    parts = [_title("All layers", columns), _ratio_table(layers, columns)]
    seen = [name for name in layers if ALL_LAYERS[name].training_space]
    unseen = {name: results for name, results in layers.items() if name not in seen}
    if seen and unseen and columns.has_prior:
        title = f"Without {', '.join(seen)}, which the shipped cost model learned from"
        parts += [_title(title, columns), _ratio_table(unseen, columns)]
    parts += [_title("Layer by layer", columns), _layer_table(layers, columns)]
    return "\n\n".join(parts)


def _title(text: str, columns: Columns) -> str:
    return f"### {text}" if columns.markdown else text


def _ratio_table(layers: Mapping[str, LayerResults], columns: Columns) -> str:
    rows = []
    for method in columns.methods:
        row = [method]
        for checkpoint in columns.checkpoints:
            ratios = ratios_of(layers, columns.baseline, method, columns.seeds, checkpoint)
            if not ratios:
                row.append("-")
            elif method == columns.baseline:
                row.append("1")
            else:
                low, high = interval(ratios)
                name, worst = worst_layer(ratios)
                row.append(
                    f"{mean_ratio(ratios):.3f} ({low:.3f} to {high:.3f}), {name} {worst:.2f}"
                )
        rows.append(row)
    header = ["ratio", *(f"at {checkpoint}" for checkpoint in columns.checkpoints)]
    return format_table(header, rows, columns.markdown)


def _layer_table(layers: Mapping[str, LayerResults], columns: Columns) -> str:
    """The ratios of each layer: the geometric mean over the seeds, the smallest and the largest."""
    rows = []
    for name in layers:
        for method in columns.methods:
            if method == columns.baseline:
                continue
            row = [ALL_LAYERS[name].description, method]
            for checkpoint in columns.checkpoints:
                ratios = ratios_of(layers, columns.baseline, method, columns.seeds, checkpoint)
                row.append(spread(ratios[name]) if name in ratios else "-")
            rows.append(row)
    header = ["layer", "method", *(f"at {checkpoint}" for checkpoint in columns.checkpoints)]
    return format_table(header, rows, columns.markdown)


def _single_run_table(layers: Mapping[str, LayerResults], columns: Columns) -> str:
    """Runs far below the baseline, and how far records flatter."""
    rows = []
    for method in columns.methods:
        row = [method]
        for checkpoint in columns.checkpoints:
            ratios = ratios_of(layers, columns.baseline, method, columns.seeds, checkpoint)
            known = [ratio for seeds in ratios.values() for ratio in seeds]
            below = [sum(ratio < bound for ratio in known) for bound in BOUNDS]
            row.append(f"{', '.join(map(str, below))} of {len(known)}" if known else "-")
        flattery = [
            found
            for results in layers.values()
            for seed in columns.seeds
            if (found := results.flattery(method, seed, columns.checkpoints[-1])) is not None
        ]
        if flattery:
            row.append(f"{statistics.median(flattery):.3f}, {max(flattery):.2f}")
        rows.append([*row, *["-"] * (not flattery)])
    bounds = " and ".join(f"{bound:.2f}" for bound in BOUNDS)
    header = [f"runs below {bounds}", *(f"at {number}" for number in columns.checkpoints)]
    return format_table([*header, "time over record"], rows, columns.markdown)


def _cost_table(layers: Mapping[str, LayerResults], columns: Columns) -> str:
    rows = []
    for method in columns.methods:
        pairs = [(results, seed) for results in layers.values() for seed in columns.seeds]
        pairs = [(results, seed) for results, seed in pairs if (method, seed) in results.runs]
        if not pairs:
            continue
        runs = [results.runs[method, seed] for results, seed in pairs]
        to_baseline = [
            results.trials_to_baseline(columns.baseline, method, seed, columns.checkpoints[-1])
            for results, seed in pairs
        ]
        reached = [math.inf if trials is None else trials for trials in to_baseline]
        middle = statistics.median_high(reached)
        rows.append(
            [
                method,
                str(len(runs)),
                str(sum(trial.secs is None for run in runs for trial in run.trials)),
                "never" if middle == math.inf else f"{middle:.0f}",
                f"{sum(trials is not None for trials in to_baseline)} of {len(runs)}",
                f"{sum(run.wall_secs for run in runs):.0f}",
                f"{sum(run.proposing_secs for run in runs):.0f}",
            ]
        )
    header = ["method", "runs", "failed trials", "trials to the baseline", "reached it"]
    return format_table([*header, "seconds", "of them proposing"], rows, columns.markdown)


def layer_report(name: str, results: LayerResults, columns: Columns) -> str:
    """The latencies and the ratios of one layer, a row for each run."""
    rows, notes = [], []
    for method in columns.methods:
        for seed in columns.seeds:
            run = results.runs.get((method, seed))
            if run is None:
                continue
            row = [method, str(seed), str(len(run.trials))]
            row += [_latency(results, method, seed, number) for number in columns.checkpoints]
            ratios = [
                results.ratio(columns.baseline, method, seed, number)
                for number in columns.checkpoints
            ]
            row += ["-" if ratio is None else f"{ratio:.3f}" for ratio in ratios]
            rows.append([*row, f"{run.wall_secs:.0f}"])
            errors = [trial.error for trial in run.trials if trial.error]
            if errors:
                notes.append(f"- {method}, seed {seed}: {len(errors)} failed: {errors[0]}")
    header = ["method", "seed", "trials", *(f"us at {number}" for number in columns.checkpoints)]
    header += [*(f"ratio at {number}" for number in columns.checkpoints), "seconds"]
    title = _title(f"{name}: {ALL_LAYERS[name].description}", columns)
    notes += [
        f"- {method}, seed {seed}, winner at {checkpoint}: {last_line(kernel['error'])}"
        for (method, seed, checkpoint), kernel in results.kernels.items()
        if kernel["error"]
    ]
    table = format_table(header, rows, columns.markdown)
    return "\n\n".join([title, table, *(["\n".join(notes)] if notes else [])])


def _latency(results: LayerResults, method: str, seed: int, checkpoint: int) -> str:
    kernel = results.kernels.get((method, seed, checkpoint))
    if kernel is None or kernel["median"] is None:
        return "-"
    low, high = kernel["quartiles"]
    return f"{1e6 * kernel['median']:.1f} ({100 * (high - low) / kernel['median']:.1f})"
