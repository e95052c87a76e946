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
"""The tables of ``batches``: results in, text out. Imports no TVM."""

import itertools
import statistics
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from scipy.stats import kendalltau

from .tables import format_table, last_line, spread

Runs = dict[tuple[str, str, int], dict[str, Any]]
"""The result of a layer, a method and a repeat, as ``batch_measuring.measure`` gives it."""

NAMES = {"tvm": "TVM's", "ours": "ours", "overlap": "ours with overlap"}

TOP = 5
"""Number of fastest candidates to compare."""


def batches_report(runs: Runs, layers: Sequence[str], markdown: bool) -> str:
    """Seconds of each batch: TVM's builder and runner beside ours, and the ratios by size."""
    rows = []
    ratios: dict[int, list[float]] = {}
    for layer in layers:
        sides = {method: runs_of(runs, layer, method) for method in ("tvm", "ours")}
        for size in _sizes(runs):
            batches = {
                method: {repeat: _batch(run, size) for repeat, run in side.items()}
                for method, side in sides.items()
            }
            own = [
                _total(batches["tvm"][repeat]) / _total(batches["ours"][repeat])
                for repeat in batches["tvm"].keys() & batches["ours"].keys()
            ]
            ratios.setdefault(size, []).extend(own)
            row = [layer, str(size)]
            for side in batches.values():
                row += _median_cells([*side.values()], size)
            rows.append([*row, f"{statistics.geometric_mean(own):.1f}" if own else "-"])
    header = ["layer", "size"]
    for name in ("TVM", "ours"):
        header += [f"{name} s", "build", "run", "s/trial", "failed"]
    lines = [format_table([*header, "ratio"], rows, markdown), ""]
    for size, known in ratios.items():
        if known:
            lines.append(f"{size} candidates: TVM's seconds over ours {spread(known)}")
    return "\n".join([*lines, "", _start_report(runs), *failure_lines(runs)])


def runs_of(runs: Runs, layer: str, method: str) -> dict[int, dict[str, Any]]:
    """The runs of one layer and method, by repeat."""
    return {key[2]: run for key, run in runs.items() if key[:2] == (layer, method)}


def _median_cells(batches: Sequence[dict[str, Any]], size: int) -> list[str]:
    if not batches:
        return ["-"] * 5
    total = statistics.median(map(_total, batches))
    parts = [statistics.median(b[part] for b in batches) for part in ("build_secs", "run_secs")]
    failed = sum(len(batch["errors"]) for batch in batches)
    return [*(f"{s:.2f}" for s in (total, *parts)), f"{total / size:.3f}", str(failed)]


def _start_report(runs: Runs) -> str:
    """Report of the warm-up before the timed batches."""
    lines = []
    for method in dict.fromkeys(method for _, method, _ in runs):
        side = [run for (_, m, _), run in runs.items() if m == method]
        make = [run["make_secs"] for run in side]
        first = [_total(run["start"]) for run in side]
        lines.append(
            f"before them, {NAMES[method]}: making builder and runner {_range(make)} s, a first "
            f"batch of {side[0]['start']['size']} candidates, not counted above, {_range(first)} s"
        )
    return "\n".join(lines)


def failure_lines(runs: Runs) -> list[str]:
    """For each method how many candidates failed of how many, and the first message."""
    lines = []
    for method in dict.fromkeys(method for _, method, _ in runs):
        side = [run for (_, m, _), run in runs.items() if m == method]
        batches = [batch for run in side for batch in [run["start"], *run["batches"]]]
        errors = [error for batch in batches for error in batch["errors"]]
        sent = sum(batch["size"] for batch in batches)
        line = f"{NAMES[method]}: {len(errors)} of {sent} candidates failed"
        lines.append(line + (f", the first with: {last_line(errors[0])}" if errors else ""))
        if any("hopeless" in run for run in side):
            kinds = {kind: sum(run[kind] for run in side) for kind in ("hopeless", "near_best")}
            lines[-1] += "; " + ", ".join(f"{count} {kind}" for kind, count in kinds.items())
    return lines


def overlap_report(runs: Runs, layers: Sequence[str], markdown: bool) -> str:
    """Effect of overlap on the timings: spread, ranking, and seconds per batch."""
    rows = []
    for layer in layers:
        passes = {
            method: [run["batches"][0] for run in runs_of(runs, layer, method).values()]
            for method in ("ours", "overlap")
        }
        if any(len(side) < 2 for side in passes.values()):
            continue
        times = {m: np.array([b["secs"] for b in side], dtype=float) for m, side in passes.items()}
        timed = np.all([np.isfinite(t).all(axis=0) for t in times.values()], axis=0)
        if not timed.any():
            continue
        times = {method: t[:, timed] for method, t in times.items()}
        fast = fastest_quarter(times["ours"])
        between = list(itertools.product(times["ours"], times["overlap"]))
        for method, own in times.items():
            within = list(itertools.combinations(own, 2))
            slower = np.median(own, axis=0) / np.median(times["ours"], axis=0)
            row = [layer, "on" if method == "overlap" else "off", f"{timed.sum()}"]
            row += [f"{statistics.median(map(_total, passes[method])):.1f}"]
            row += [spread_cell(own), spread_cell(own[:, fast]), agreement_cell(within)]
            row += [agreement_cell(between) if method == "overlap" else "-"]
            rows.append([*row, f"{np.median(slower):.3f}", f"{np.median(slower[fast]):.3f}"])
    header = ["layer", "overlap", "timed", "batch s", "spread %", "spread % of fastest"]
    header += ["ranks within", "ranks with off", "time/off", "time/off of fastest"]
    return "\n".join(
        [format_table(header, rows, markdown), "", OVERLAP_LEGEND, *failure_lines(runs)]
    )


OVERLAP_LEGEND = f"""\
- timed: candidates with a time in every pass; batch s: building and running, the median.
- spread %: the largest over the smallest time of a candidate, less 1: the median of the candidates,
  and their 90th percentile; "of fastest": of the fastest quarter by their median with overlap off.
- ranks: Kendall's tau of two passes, the mean of all pairs, and how many of the {TOP} fastest they
  share; "within": two passes of this mode, which is the noise floor; "with off": one of each mode.
- time/off: the median of the candidates' median times over those with overlap off."""


def agree_report(results: dict[str, dict[str, Any]], markdown: bool) -> str:
    """Times of the same artefacts from LocalRunner and from ours."""
    rows, lines = [], []
    for layer, result in results.items():
        times = {name: np.array(result[name], dtype=float) for name in ("tvm", "ours")}
        timed = np.all([np.isfinite(t).all(axis=0) for t in times.values()], axis=0)
        if result["errors"]:
            first = last_line(result["errors"][0])
            lines.append(f"{layer}: {len(result['errors'])} failures, the first with: {first}")
        if not timed.any():
            continue
        times = {name: t[:, timed] for name, t in times.items()}
        fast = fastest_quarter(times["tvm"])
        for label, chosen in (("all", np.full(timed.sum(), True)), ("fastest quarter", fast)):
            tvm, ours = (t[:, chosen] for t in times.values())
            ratios = np.median(ours, axis=0) / np.median(tvm, axis=0)
            inside = (np.median(ours, axis=0) >= tvm.min(axis=0)) & (
                np.median(ours, axis=0) <= tvm.max(axis=0)
            )
            row = [layer, label, str(len(ratios)), spread(ratios.tolist())]
            rows.append([*row, f"{inside.sum()}", spread_cell(tvm), spread_cell(ours)])
    header = ["layer", "candidates", "timed", "ours over TVM's", "within TVM's range"]
    header += ["TVM's spread %", "our spread %"]
    return "\n".join([format_table(header, rows, markdown), *lines])


def fastest_quarter(times: np.ndarray) -> np.ndarray:
    """Boolean mask of the fastest quarter of the candidates by median time.

    Parameters
    ----------
    times : np.ndarray
        Seconds, (passes, candidates).
    """
    medians = np.median(times, axis=0)
    fastest: np.ndarray = medians <= np.percentile(medians, 25)
    return fastest


def spread_cell(times: np.ndarray) -> str:
    """Largest over smallest of each candidate's times, less 1: median and 90th percentile in %."""
    relative = 100 * (times.max(axis=0) / times.min(axis=0) - 1)
    return f"{np.median(relative):.1f}, {np.percentile(relative, 90):.1f}"


def agreement_cell(pairs: Iterable[tuple[np.ndarray, np.ndarray]]) -> str:
    """Mean Kendall's tau of pairs of passes, and how many of their fastest they share."""
    taus, shared = [], []
    for one, other in pairs:
        taus.append(kendalltau(one, other).statistic)
        shared.append(len({*np.argsort(one)[:TOP]} & {*np.argsort(other)[:TOP]}))
    return f"{np.mean(taus):.3f}, {np.mean(shared):.1f} of {TOP}"


def _range(secs: Sequence[float]) -> str:
    return f"{statistics.median(secs):.1f} [{min(secs):.1f}-{max(secs):.1f}]"


def _sizes(runs: Runs) -> list[int]:
    return sorted({batch["size"] for run in runs.values() for batch in run["batches"]})


def _batch(run: dict[str, Any], size: int) -> dict[str, Any]:
    found: dict[str, Any] = next(batch for batch in run["batches"] if batch["size"] == size)
    return found


def _total(batch: dict[str, Any]) -> float:
    return float(batch["build_secs"] + batch["run_secs"])
