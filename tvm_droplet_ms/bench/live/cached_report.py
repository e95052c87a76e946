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
"""The tables of ``cached``: a comparison in, text out. Imports no TVM."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from .cached_comparison import Comparison, Gains, ratios
from .comparison import mean_ratio
from .paired_statistics import bootstrap_interval, share_of_room, tenth_percentile
from .tables import format_table, last_line, spread

LEGEND = """\
- gain: the truth of the baseline's winner over that of the variant's, of the same layer, seed and
  number of trials; above 1 the variant is faster. The geometric mean over layers of that over
  seeds, with its 95% bootstrap interval (layers are drawn, then seeds of each). 10th percentile and
  worst run: of the single runs.
- winner: the module with the best recorded time until then. Its truth is the median over all its
  passes, of all runs and of the top-up.
- share of the room: the logarithm of the gain over that of the gain that the best module ever seen
  would have; - where the baseline's winners are the best.
- truth/record: of the winners, the geometric mean: above 1 the record flatters.
- measured: trials whose module the cache did not know. proposing: seconds of a run that are spent
  neither building, running, training the cost model nor writing."""


@dataclass(frozen=True)
class Shown:
    """Contents of the tables.

    Parameters
    ----------
    baseline : str
        The variant that the others are compared with.
    checkpoints : Sequence[int]
        Numbers of trials.
    markdown : bool
        Whether tables are in Markdown.
    """

    baseline: str
    checkpoints: Sequence[int]
    markdown: bool


def cached_report(comparison: Comparison, shown: Shown) -> str:
    """All tables, what they mean, and what is wrong with them."""
    parts = [f"Baseline: {shown.baseline}."]
    for checkpoint in shown.checkpoints:
        parts += [_title(f"At {checkpoint} trials", shown), _gains(comparison, shown, checkpoint)]
    last = shown.checkpoints[-1]
    parts += [_title(f"Layer by layer, at {last} trials", shown), _layers(comparison, shown, last)]
    parts += [_title("Cost of a run", shown), _cost(comparison, shown)]
    notes = _notes(comparison, shown)
    return "\n\n".join([*parts, LEGEND, *(["\n".join(notes)] if notes else [])])


def _title(text: str, shown: Shown) -> str:
    return f"### {text}" if shown.markdown else text


def _gains(comparison: Comparison, shown: Shown, checkpoint: int) -> str:
    rows = []
    for variant in comparison.variants:
        honesty = comparison.honesty(variant, checkpoint)
        record = f"{mean_ratio(ratios(honesty)):.3f}" if honesty else "-"
        found = comparison.gains(shown.baseline, variant, checkpoint)
        if variant == shown.baseline or not found:
            count = sum(map(len, found.values()))
            gain = "1" if found else "-"
            rows.append([variant, str(count), gain, "-", "-", "-", record])
            continue
        gains = ratios(found)
        rooms = ratios(comparison.rooms(shown.baseline, variant, checkpoint))
        low, high = bootstrap_interval(gains)
        share = share_of_room(gains, rooms)
        rows.append(
            [
                variant,
                str(sum(map(len, gains.values()))),
                f"{mean_ratio(gains):.3f} ({low:.3f} to {high:.3f})",
                f"{tenth_percentile(gains):.3f}",
                _worst(found),
                "-" if share is None else f"{share:.2f}",
                record,
            ]
        )
    header = ["variant", "pairs", "gain", "10th percentile", "worst run"]
    return format_table([*header, "share of the room", "truth/record"], rows, shown.markdown)


def _worst(gains: Gains) -> str:
    gain, layer, seed = min(
        (gain, layer, seed) for layer, by_seed in gains.items() for seed, gain in by_seed.items()
    )
    return f"{gain:.3f} {layer}, seed {seed}"


def _layers(comparison: Comparison, shown: Shown, checkpoint: int) -> str:
    """The gains of each layer: the geometric mean over the seeds, the smallest and the largest."""
    rows = []
    for variant in comparison.variants:
        if variant != shown.baseline:
            gains = ratios(comparison.gains(shown.baseline, variant, checkpoint))
            cells = [spread(gains[name]) if name in gains else "-" for name in comparison.layers]
            rows.append([variant, *cells])
    return format_table(["variant", *comparison.layers], rows, shown.markdown)


def _cost(comparison: Comparison, shown: Shown) -> str:
    rows = []
    for variant in comparison.variants:
        runs = comparison.runs_of(variant)
        proposing = [run.run.proposing_secs for run in runs]
        trials = sum(len(run.run.trials) for run in runs)
        failed = sum(trial.secs is None for run in runs for trial in run.run.trials)
        rows.append(
            [
                variant,
                str(len(runs)),
                str(trials),
                str(failed),
                str(sum(run.measured for run in runs)),
                f"{statistics.fmean(proposing):.1f} [{min(proposing):.1f}-{max(proposing):.1f}]",
            ]
        )
    header = ["variant", "runs", "trials", "failed", "measured", "proposing"]
    return format_table(header, rows, shown.markdown)


def _notes(comparison: Comparison, shown: Shown) -> list[str]:
    notes = []
    unsettled = comparison.unsettled_winners(shown.checkpoints)
    if unsettled:
        notes.append(f"{unsettled} winners have too few passes for a truth: run --top-up.")
    notes += [
        f"{module} won a run and does not count: {last_line(fault)}"
        for module, fault in sorted(comparison.faulty_winners(shown.checkpoints).items())
    ]
    for variant in comparison.variants:
        sources = sorted({run.source for run in comparison.runs_of(variant)})
        if len(sources) > 1:
            notes.append(f"{variant} was made by more than one code: {', '.join(sources)}.")
    return notes
