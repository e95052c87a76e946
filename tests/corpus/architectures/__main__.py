# SPDX-License-Identifier: Apache-2.0
"""Architectures one after another, and a table of them.

``python -m tests.corpus.architectures --out FILE [--import-only | --tune SECONDS] [NAME ...]``.
"""

import argparse
import json
import math
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from ..apart import Fault, run_each
from .one import row_of_job


def row_of(
    name: str, secs: float, import_only: bool, budget_s: float | None = None
) -> dict[str, Any]:
    """The row of one architecture, made in a process of its own: a crash costs one row."""
    preload = [f"{__package__}.preload"]
    ((_, found),) = run_each(row_of_job, [(name, import_only, budget_s)], secs, preload=preload)
    if isinstance(found, Fault):
        return {"name": name, "accepted": False, "right": None, "fault": found.why}
    return found


def table(rows: list[dict[str, Any]]) -> str:
    """The rows for readers."""
    lines = [f"{'architecture':30} accepted  right   deviation  kernels  secs  speed"]
    for row in rows:
        secs = sum(row.get("secs", {}).values())
        deviation = f"{row['deviation']:.1e}" if "deviation" in row else "-"
        why = row.get("refusal") or row.get("fault") or ""
        lines.append(
            f"{row['name']:30} {'yes' if row['accepted'] else 'no':8}  "
            f"{ {True: 'yes', False: 'NO', None: '-'}[row['right']]:6}  {deviation:9}  "
            f"{row.get('kernels', '-')!s:7}  {secs:5.1f} {row.get('speed', math.nan):5.2f} {why}"
        )
    accepted = sum(row["accepted"] for row in rows)
    right = sum(row["right"] is True for row in rows)
    lines.append(f"{len(rows)} architectures: {accepted} accepted, {right} right")
    if speeds := [row["speed"] for row in rows if "speed" in row]:
        lines.append(
            f"Speed over PyTorch: {geometric_mean(speeds):.2f} geometric mean, {min(speeds):.2f} "
            f"the least, {max(speeds):.2f} the most."
        )
    return "\n".join(lines)


def main() -> None:
    """Measure, write, print."""
    parser = argparse.ArgumentParser(prog="python -m tests.corpus.architectures")
    parser.add_argument("names", nargs="*", help="architectures; all of them by default")
    parser.add_argument("--out", type=Path, help="file for the rows, one JSON object a line")
    parser.add_argument("--import-only", action="store_true", help="compile nothing")
    parser.add_argument("--tune", type=float, help="tune each in so many seconds, without trials")
    parser.add_argument(
        "--secs", type=float, default=240, help="time limit for each, beside --tune"
    )
    options = parser.parse_args()
    from .registry import BUILDERS

    unknown = sorted(set(options.names) - set(BUILDERS))
    if unknown:
        parser.error(f"no architecture is named {unknown[0]!r}: expected some of {list(BUILDERS)}")
    rows = []
    for name in options.names or list(BUILDERS):
        rows.append(
            row_of(name, options.secs + (options.tune or 0), options.import_only, options.tune)
        )
        print(json.dumps(rows[-1]), flush=True)
        if options.out:
            options.out.write_text("".join(json.dumps(row) + "\n" for row in rows))
    print(table(rows))


if __name__ == "__main__":
    main()
