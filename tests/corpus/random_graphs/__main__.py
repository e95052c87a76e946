# SPDX-License-Identifier: Apache-2.0
"""``python -m tests.corpus.random_graphs``: many graphs, a row of JSON for each, and a summary."""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import onnx

from ..apart import Fault, run_each
from .graphs import model_of_seed
from .shrinking import shrink
from .trial import Job, run_job

FAULTS = ("wrong", "error", "crash", "timeout", "refused")


def main() -> None:
    """Run the graphs of the seeds that the command line names."""
    options = _options()
    options.out.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    rows = []
    with (options.out / "rows.jsonl").open("a") as file:
        seeds = range(options.seed, options.seed + options.graphs)
        jobs = ((model_of_seed(seed), seed, False) for seed in seeds)
        for row in _rows(jobs, options.timeout, options.jobs):
            seed = row["seed"]
            if row["status"] in FAULTS:
                _explain(row, options)
                print(f"{seed}: {row['status']}: {row['why']}", flush=True)
            rows.append(row)
            file.write(json.dumps(row) + "\n")
            file.flush()
            if len(rows) % 100 == 0:
                print(f"{len(rows)} graphs, {time.monotonic() - start:.0f} s", flush=True)
    print(_summary(rows, time.monotonic() - start))
    raise SystemExit(any(row["status"] in ("wrong", "error", "crash", "timeout") for row in rows))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.corpus.random_graphs", description=__doc__
    )
    parser.add_argument("--graphs", type=int, default=50, help="how many graphs")
    parser.add_argument("--seed", type=int, default=0, help="the seed of the first one")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument("--timeout", type=float, default=120.0, help="seconds for a graph")
    parser.add_argument("--shrink", type=int, default=40, help="smaller graphs to try for a fault")
    parser.add_argument("--out", type=Path, default=Path("random_graphs"), help="the directory")
    return parser.parse_args()


def _rows(jobs: Iterable[Job], secs: float, workers: int = 1) -> Iterator[dict[str, Any]]:
    preload = [f"{__package__}.preload"]
    for (_, seed, _), found in run_each(
        run_job, jobs, secs, workers=workers, preload=preload, fresh=True
    ):
        if isinstance(found, Fault):
            yield {"seed": seed, "status": found.kind, "why": found.why}
        else:
            yield found


def _explain(row: dict[str, Any], options: argparse.Namespace) -> None:
    """Shrink a failing graph, keep it, and say which step fails."""
    seed, status = row["seed"], row["status"]
    kind = row["why"].partition(":")[0]

    def fails(model: Any) -> bool:
        (found,) = _rows([(model, seed, False)], options.timeout)
        same = found["status"] == status and status == "wrong"
        return same or (found["status"] == status and found["why"].partition(":")[0] == kind)

    model = model_of_seed(seed)
    if options.shrink and status != "timeout":  # Each try would take as long.
        model = shrink(model, fails, options.shrink)
    path = options.out / f"{status}_{seed}.onnx"
    onnx.save(model, path)
    (last,) = _rows([(model, seed, True)], options.timeout)
    row["why"] = last.get("why") or row["why"]
    row["smallest"] = [node.op_type for node in model.graph.node]
    row["file"] = str(path)


def _summary(rows: list[dict[str, Any]], secs: float) -> str:
    statuses = Counter(row["status"] for row in rows)
    kernels = sum(row.get("kernels", 0) for row in rows)
    scheduled = sum(row.get("scheduled", 0) for row in rows)
    operators = Counter(name for row in rows for name in row.get("operators", ()))
    lines = [
        f"{len(rows)} graphs in {secs:.0f} s: "
        + ", ".join(f"{count} {status}" for status, count in statuses.most_common()),
        f"{kernels} kernels, {scheduled} of them with a random schedule",
        f"{len(operators)} operators: "
        + ", ".join(f"{name} {count}" for name, count in operators.most_common()),
    ]
    kinds = Counter(
        (row["status"], " ".join(row.get("smallest", ())), row["why"][:160])
        for row in rows
        if row["status"] in FAULTS
    )
    for (status, nodes, why), count in kinds.most_common():
        lines.append(f"{count} x {status} [{nodes}]: {why}")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
