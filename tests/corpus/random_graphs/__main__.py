# SPDX-License-Identifier: Apache-2.0
"""``python -m tests.corpus.random_graphs``: many graphs, a row of JSON for each, and a summary."""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx

from .forked import Job, run_forked
from .graphs import model_of_seed
from .shrinking import shrink
from .trial import run_model, warm_up

FAULTS = ("wrong", "error", "crash", "timeout", "refused")


def main() -> None:
    """Run the graphs of the seeds that the command line names."""
    options = _options()
    options.out.mkdir(parents=True, exist_ok=True)
    warm_up()
    start = time.monotonic()
    rows = []
    with (options.out / "rows.jsonl").open("a") as file:
        seeds = range(options.seed, options.seed + options.graphs)
        for seed, row in run_forked(_jobs(seeds), options.jobs, options.timeout):
            row = {"seed": seed} | row
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


def _jobs(seeds: range) -> Iterator[Job]:
    for seed in seeds:
        yield seed, lambda seed=seed: run_model(model_of_seed(seed), seed).as_dict()


def _run_one(model: Any, seed: int, timeout: float, diagnose: bool = False) -> dict[str, Any]:
    job: Job = (seed, lambda: run_model(model, seed, diagnose).as_dict())
    ((_, row),) = run_forked([job], 1, timeout)
    return row


def _explain(row: dict[str, Any], options: argparse.Namespace) -> None:
    """Shrink a failing graph, keep it, and say which step fails."""
    seed, status = row["seed"], row["status"]
    kind = row["why"].partition(":")[0]

    def fails(model: Any) -> bool:
        found = _run_one(model, seed, options.timeout)
        same = found["status"] == status and status == "wrong"
        return same or (found["status"] == status and found["why"].partition(":")[0] == kind)

    model = model_of_seed(seed)
    if options.shrink:
        model = shrink(model, fails, options.shrink)
    path = options.out / f"{status}_{seed}.onnx"
    onnx.save(model, path)
    last = _run_one(model, seed, options.timeout, diagnose=True)
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
