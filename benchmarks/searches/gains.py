# SPDX-License-Identifier: Apache-2.0
"""Where the gain of a search comes from: how far each new best is from the best before it.

    python -m benchmarks.searches.gains live/work/*-droplet-*

Each directory has the database of one run of one kernel. Only gains after the exploration count.
"""

import argparse
import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tvm_droplet_ms.display.tables import align
from tvm_droplet_ms.search_strategy.published.candidates import mean, valid_secs
from tvm_droplet_ms.session.records import RECORDS

KINDS = {1: "1", 3: "2 or 3", math.inf: "more"}
"""The name of each kind of step, by its maximum number of changed decisions."""

OTHER = "another sketch"


class Tried(NamedTuple):
    """A record: its sketch, its decisions by the instruction's index, and its time in seconds."""

    sketch: tuple[tuple[str, int], ...]
    decisions: dict[int, str]
    secs: float


class Gain(NamedTuple):
    """A new best schedule: the logarithm of its speedup, and its kinds of step."""

    gain: float
    from_best: str
    """The kind of step from the previous best schedule."""
    from_nearest: str
    """The kind of step from the nearest earlier schedule."""


def read_trial(record: Sequence[Any]) -> Tried:
    """Read a database's JSON record: its trace up to the postprocessors, and its mean time."""
    (insts, decided), secs = record[0], valid_secs(record[1])
    names = [inst[0] for inst in insts]
    end = names.index("EnterPostproc") if "EnterPostproc" in names else len(names)
    decisions = {place: json.dumps(value) for place, value in decided if place < end}
    for place, (kind, inputs, attributes, _) in enumerate(insts[:end]):
        if kind == "Annotate" and attributes == ["meta_schedule.parallel"]:
            decisions[place] = json.dumps(inputs[1])
    sketch = tuple((inst[0], len(inst[1])) for inst in insts[:end])
    return Tried(sketch, decisions, mean(secs) if secs else math.inf)


def kind_of_step(trial: Tried, before: Tried) -> str:
    """The kind of step between two schedules, by the number of decisions in which they differ."""
    if trial.sketch != before.sketch:
        return OTHER
    changed = sum(before.decisions.get(at) != now for at, now in trial.decisions.items())
    return next(name for most, name in KINDS.items() if changed <= most)


def gains_of(trials: Iterable[Tried], explored: int) -> list[Gain]:
    """The new best schedules of a run after its first ``explored`` trials."""
    found: list[Gain] = []
    order = [*KINDS.values(), OTHER]
    seen: list[Tried] = []
    best: Tried | None = None
    for trial in trials:
        if trial.secs < math.inf and (best is None or trial.secs < best.secs):
            if best is not None and len(seen) >= explored:
                kinds = (kind_of_step(trial, other) for other in seen)
                nearest = min(kinds, key=order.index)
                gain = math.log(best.secs / trial.secs)
                found.append(Gain(gain, kind_of_step(trial, best), nearest))
            best = trial
        seen.append(trial)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Print each kind of step's share of the gain."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("runs", nargs="+", type=Path, help="directories of databases")
    parser.add_argument("--explored", type=int, default=8, help="trials that explore")
    options = parser.parse_args(arguments)
    runs = []
    for run in options.runs:
        try:
            records = [json.loads(line) for line in (run / RECORDS).read_text().splitlines()]
        except (OSError, ValueError) as error:
            parser.error(f"{run / RECORDS} cannot be read as a database: {error}")
        if len({workload for workload, _ in records}) > 1:
            parser.error(f"{run} is the database of several kernels, expected that of one")
        trials = [read_trial(record) for _, record in records]
        runs.append(gains_of(trials, options.explored))
    steps = [step for gains in runs for step in gains]
    total = math.fsum(step.gain for step in steps)
    average = math.exp(total / len(runs))
    print(f"{len(runs)} runs; after {options.explored} trials they gain {average:.3f} on average\n")
    lines = [["decisions changed", "new bests", "share of the gain", "beside the nearest"]]
    for kind in [*KINDS.values(), OTHER]:
        own = [step.gain for step in steps if step.from_best == kind]
        near = math.fsum(step.gain for step in steps if step.from_nearest == kind)
        shares = [f"{math.fsum(own) / (total or 1):.0%}", f"{near / (total or 1):.0%}"]
        lines.append([kind, str(len(own)), *shares])
    print(align(lines))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
