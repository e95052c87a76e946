# SPDX-License-Identifier: Apache-2.0
"""Rows of the GPU run: one JSON object per line, written to disk at once."""

import json
import math
import os
import re
import subprocess
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

FILE = "rows.jsonl"


def card() -> dict[str, str]:
    """The name of the card, the driver version and the CUDA version; "unknown" if not reported."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    name, _, driver = next(iter(_output(query)), "").partition(", ")
    release = next(reversed(_output(["nvcc", "--version"])), "")
    return {"card": name or "unknown", "driver": driver or "unknown", "cuda": release or "unknown"}


class Rows:
    """Writes rows; each is complete on disk before the next begins."""

    def __init__(self, folder: Path, common: dict[str, Any]) -> None:
        self._path = folder / FILE
        self._common = common

    def write(self, part: str, **values: Any) -> None:
        """Add a row of a part."""
        now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
        row = {"date": now, **self._common, "part": part, **values}
        with open(self._path, "a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
            file.flush()
            os.fsync(file.fileno())


def summary(folder: Path) -> str:
    """Summarize the last part with timed rows: count and minimum time of each strategy."""
    lines = (folder / FILE).read_text(encoding="utf-8").splitlines()
    rows = [row for row in map(json.loads, lines) if row["part"] in ("trial", "again")]
    if not rows:
        return "nothing timed"
    last = (rows[-1]["part"], rows[-1]["workload"])
    times: dict[str, list[float | None]] = {}
    for row in rows:
        if (row["part"], row["workload"]) == last:
            times.setdefault(row["strategy"], []).append(row.get("seconds"))
    words = []
    for strategy, all_ in times.items():
        least = min((secs for secs in all_ if secs), default=math.nan)
        words.append(f"{strategy} {len(all_)} times, {1e6 * least:.1f} us")
    return f"{' '.join(last)}: {', '.join(words)}"


def last_words(error: BaseException | str) -> str:
    """Shorten an error for a row: the last lines that name an error, or else its last lines."""
    text = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    named = [line for line in lines if re.search(r"[Ee]rror\b|Check failed", line)]
    return " | ".join((named or lines)[-3:])[-400:] if lines else "no message"


def _output(command: list[str]) -> list[str]:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return done.stdout.strip().splitlines() if done.returncode == 0 else []
