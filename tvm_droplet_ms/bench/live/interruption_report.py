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
"""What the interrupted runs of ``interruptions`` left: rows in, text out. Imports no TVM."""

import json
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

SIGNALS = ("INT", "TERM", "KILL")

BEFORE_THE_COMMAND = {"INT": -2, "TERM": -15}
"""Exit statuses where a signal came before Python had started the command."""


@dataclass(frozen=True)
class Run:
    """What one run left.

    Parameters
    ----------
    signal : str
        What interrupted it: "INT", "TERM" or "KILL"; empty where nothing did.
    moment : float
        Seconds from its start to the signal.
    status : int
        The exit status of the interrupted process.
    later : Sequence[int]
        Those of the processes that resumed it.
    budget : int
        Its trials.
    before : int
        Records at the end of the interrupted process.
    records : int
        Records at the end.
    repeated : int
        Records of a module that had one already.
    lost : int
        Candidates that were measured and not recorded.
    batch : int
        Its largest batch.
    latency_us : float | None
        The latency of the result; None where there is none.
    """

    signal: str
    moment: float
    status: int
    later: Sequence[int]
    budget: int
    before: int
    records: int
    repeated: int
    lost: int
    batch: int
    latency_us: float | None


def faults_of(run: Run) -> Iterator[str]:
    """What is not as it has to be."""
    if run.repeated:
        yield f"{run.repeated} modules are recorded twice"
    if run.records != run.budget:
        yield f"{run.records} records, expected {run.budget}"
    allowed = run.batch if run.signal == "KILL" else 0
    if run.lost > allowed:
        yield f"{run.lost} trials are lost, expected {allowed} at most"
    expected = {"": [0], "KILL": [-9]}.get(run.signal, [130, BEFORE_THE_COMMAND.get(run.signal)])
    # A signal that comes while the best are checked ends nothing: all trials are spent.
    if run.before == run.budget and run.signal != "KILL":
        expected = [*expected, 0]
    if run.status not in expected:
        yield f"its exit status is {run.status}, expected {expected[0]}"
    if [run.status, *run.later][-1] != 0:
        yield f"it did not end: the statuses are {[run.status, *run.later]}"
    if run.latency_us is None:
        yield "it has no result"


def plan(seed: int, runs: int, attempts: int, longest: float) -> list[tuple[str, list[float]]]:
    """The signal of each run, a third each, and moments for its attempts.

    Parameters
    ----------
    seed : int
        Seed of the moments.
    runs, attempts : int
        How many; more runs leave the moments of the first ones as they are.
    longest : float
        The seconds of an uninterrupted run: moments are uniform up to there.
    """
    generator = random.Random(seed)
    return [
        (
            SIGNALS[number % len(SIGNALS)],
            [generator.uniform(0.0, longest) for _ in range(attempts)],
        )
        for number in range(runs)
    ]


def summary(runs: Sequence[Run], uninterrupted: Sequence[Run]) -> str:
    """The table and the faults."""
    lines = [f"{'signal':8} {'runs':>5} {'statuses':24} {'repeated':>8} {'lost, most':>10}"]
    for name in SIGNALS:
        mine = [run for run in runs if run.signal == name]
        if mine:
            statuses = Counter(run.status for run in mine).most_common()
            shown = ", ".join(f"{status}: {count}" for status, count in statuses)
            repeated, lost = sum(run.repeated for run in mine), max(run.lost for run in mine)
            lines.append(f"{name:8} {len(mine):5} {shown:24} {repeated:8} {lost:10}")
    everything = [*runs, *uninterrupted]
    exact = sum(run.records == run.budget for run in everything)
    lines.append(f"records exactly the budget: {exact} of {len(everything)} runs")
    lines.append(f"largest batch: {max((run.batch for run in everything), default=0)}")
    lines += _latencies(runs, uninterrupted)
    for run in everything:
        for fault in faults_of(run):
            when = f"{run.signal} at {run.moment:.2f} s" if run.signal else "uninterrupted"
            lines.append(f"FAULT, {when}: {fault}")
    return "\n".join(lines)


def _latencies(runs: Sequence[Run], uninterrupted: Sequence[Run]) -> list[str]:
    from scipy.stats import mannwhitneyu

    lines = []
    groups = [
        [run.latency_us for run in group if run.latency_us] for group in (runs, uninterrupted)
    ]
    for name, found in zip(("interrupted", "uninterrupted"), groups, strict=True):
        if found:
            lines.append(
                f"{name}: {len(found)} runs, median {median(found):.4g} us, "
                f"{min(found):.4g} to {max(found):.4g}"
            )
    if all(groups):
        p = float(mannwhitneyu(*groups).pvalue)
        lines.append(f"Mann-Whitney, that they are of one distribution: p = {p:.2f}")
    return lines


def read_rows(path: Path) -> dict[str, Run]:
    """The rows of a file by their key; a torn last line is left out."""
    found = {}
    for line in path.read_bytes().splitlines(keepends=True) if path.exists() else ():
        if line.endswith(b"\n"):
            content = json.loads(line)
            key = str(content.pop("key"))
            found[key] = Run(**content)
    return found


def write_row(path: Path, key: str, run: Run) -> None:
    """Append a row, in place of a torn last line."""
    content = path.read_bytes() if path.exists() else b""
    whole = content[: content.rfind(b"\n") + 1]
    partial = path.with_suffix(".part")
    partial.write_bytes(whole + json.dumps({"key": key} | asdict(run)).encode() + b"\n")
    partial.replace(path)
