# SPDX-License-Identifier: Apache-2.0
"""Tune the catalogue's files one after another; each row is kept, and a table is printed.

``python -m tests.corpus.onnx_files --out rows.jsonl --seconds 120 [--trials 0] [NAME ...]``. Rows
that are there are not measured again. A killed or hanging trial costs its entry alone.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from ..apart import Fault, run_each
from .catalogue import ENTRIES
from .chart import draw
from .fetch import FetchError, fetch
from .trial import run_named

PARTS = ("import", "check", "graph", "first picks", "compile", "export")
"""The steps to a first executable; a second one adds to them."""

PATIENCE_S = 180
"""Seconds beyond its budget after which a trial is ended."""


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="file of the rows")
    parser.add_argument("--seconds", type=float, default=120, help="time budget of a model")
    parser.add_argument("--trials", type=int, help="the most schedules to measure")
    parser.add_argument("--report", action="store_true", help="print the table only")
    parser.add_argument("--chart", type=Path, help="an SVG file to draw the speeds in")
    parser.add_argument("--group", help="the entries of this group only")
    parser.add_argument("names", nargs="*", help="parts of names; all where none is given")
    options = parser.parse_args()
    rows = _read(options.out)
    for entry in ENTRIES:
        wanted = not options.names or any(name in entry.name for name in options.names)
        wanted = wanted and options.group in (None, entry.group)
        if options.report or not wanted or entry.name in rows:
            continue
        try:
            fetch(entry)
        except FetchError as error:
            print(f"{entry.name}: skipped: {error}", flush=True)
            continue
        row = tried(entry.name, options.seconds, options.trials)
        rows[entry.name] = row
        with options.out.open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(_line(row), flush=True)
    print("\n".join(table(list(rows.values()))))
    if options.chart:
        draw(list(rows.values()), options.chart)


def _read(path: Path) -> dict[str, dict[str, Any]]:
    if not path.exists():
        return {}
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return {row["name"]: row for row in rows}


def tried(name: str, secs: float, trials: int | None) -> dict[str, Any]:
    """The row of an entry, tried in a process of its own."""
    ((_, found),) = run_each(run_named, [(name, secs, trials)], secs + PATIENCE_S)
    if isinstance(found, Fault):
        return {"name": name, "state": "failed", "why": found.why, "secs": secs}
    return found


def table(rows: list[dict[str, Any]]) -> list[str]:
    """The rows as Markdown, with a summary."""
    lines = ["| file | state | ms | speed over ONNX Runtime | trials | seconds | naive kernels |"]
    lines += ["| --- | --- | ---: | ---: | ---: | ---: | --- |"]
    lines += [_line(row) for row in rows]
    states = [row["state"] for row in rows]
    counts = ", ".join(f"{states.count(each)} {each}" for each in sorted(set(states)))
    lines += ["", *_first_executables(rows), f"{len(rows)} files: {counts}."]
    if speeds := [row["speed"] for row in rows if "speed" in row]:
        mean, least = float(np.exp(np.mean(np.log(speeds)))), min(speeds)
        lines += [f"Geometric mean of the speed: {mean:.2f}; the least: {least:.2f}."]
    return lines


def _first_executables(rows: list[dict[str, Any]]) -> list[str]:
    """The median seconds of the steps to a first executable, by the kernels that a model calls."""
    lines, least = [], 0
    for most in (20, 100, 10_000):
        group = [row["secs_of"] for row in rows if least < row.get("kernels", 0) <= most]
        if group:
            secs = {
                part: float(np.median([each.get(part, 0.0) for each in group])) for part in PARTS
            }
            lines.append(
                f"{len(group)} models of {least + 1} to {most} calls, median seconds, also of a "
                "second executable: "
                f"{', '.join(f'{part} {value:.1f}' for part, value in secs.items())}; "
                f"{sum(secs.values()):.1f} in all."
            )
        least = most
    return lines


def _line(row: dict[str, Any]) -> str:
    if "speed" not in row:
        return f"| {row['name']} | {row['state']}: {row['why']} | | | | {row['secs']:.0f} | |"
    naive = ", ".join(f"{name} ({100 * time:.0f}%)" for name, time, _ in row["naive"])
    state = row["state"] if row["state"] == "right" else f"{row['state']}: {row['deviation']:.1e}"
    return (
        f"| {row['name']} | {state} | {row['ms']:.3g} | {row['speed']:.2f} | {row['trials']} | "
        f"{row['secs']:.0f} | {naive} |"
    )


if __name__ == "__main__":
    main()
