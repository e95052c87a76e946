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
"""Measure a draft: how many loops it tells exactly, how long a key takes, points a second."""

import argparse
import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tvm.s_tir import Schedule, Trace
from tvm.target import Target

from ..compat import fast_tune_contexts
from ..cost_model.features.loop_context import loop_nests
from ..draft import SymbolDraft
from ..draft.block_tree import NotUnderstood
from ..draft.hardware import Hardware
from ..draft.index_intervals import UnknownIndex
from ..draft.key_symbols import Key, KeySymbols, key_of
from ..draft.penalties import expected_ns
from ..draft.skeleton import Skeleton, compile_skeleton
from ..report import align
from ..search_strategy.neighbourhood import Point
from .definitions import definition_of
from .design_space import DesignSpace
from .library import find_space, shipped_training_files
from .space import Space

SPEED_POINTS = 20_000
"""Points whose symbols are timed."""


def main(argv: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--spaces", nargs="+", help="spaces (default: all that the package has)")
    parser.add_argument("--draws", type=int, default=20, help="schedules of a sketch (default: 20)")
    args = parser.parse_args(argv)
    paths = [find_space(name) for name in args.spaces or ()] or shipped_training_files()
    header = ["space", "schedules", "keys", "unknown", "loops", "exact", "ms a key"]
    lines = [[*header, "symbols us", "score us", "formula us"]]
    total = Counter[str]()
    with fast_tune_contexts():
        for path in paths:
            measured = _measure(path, args.draws)
            lines.append(measured.row())
            total += measured.counts
    exact = total["exact"] / max(1, total["loops"])
    lines.append(["all", *(str(total[n]) for n in header[1:5]), f"{exact:.2%}", "", "", "", ""])
    print(align(lines))


@dataclass
class _Measured:
    name: str
    counts: Counter[str] = field(default_factory=Counter)
    key_secs: float = 0.0
    symbol_secs: float = float("nan")
    score_secs: float = float("nan")
    formula_secs: float = float("nan")

    def row(self) -> list[str]:
        """A line of the table."""
        counts = [self.counts[name] for name in ("schedules", "keys", "unknown", "loops")]
        exact = self.counts["exact"] / max(1, self.counts["loops"])
        milliseconds = 1e3 * self.key_secs / max(1, self.counts["keys"])
        speeds = [
            1e6 * secs / SPEED_POINTS
            for secs in (self.symbol_secs, self.score_secs, self.formula_secs)
        ]
        numbers = [f"{value:.1f}" for value in (milliseconds, *speeds)]
        return [self.name, *map(str, counts), f"{exact:.2%}", *numbers]


def _measure(path: Path, draws: int) -> _Measured:
    space = Space.load(path)
    context = definition_of(space).context(Target(dict(space.target)), "replay-trace")
    design_space = DesignSpace(context)
    measured = _Measured(space.name)
    skeletons: dict[tuple[int, Key], Skeleton | None] = {}
    timed = None
    for sketch, point, schedule in _draws(design_space, draws):
        measured.counts["schedules"] += 1
        ours = design_space.sketches[sketch]
        key = (sketch, key_of(ours, point))
        if key not in skeletons:
            measured.counts["keys"] += 1
            start = time.perf_counter()
            try:
                skeletons[key] = compile_skeleton(ours, schedule)
                timed = (KeySymbols(ours, schedule), point)
            except (NotUnderstood, UnknownIndex):
                skeletons[key] = None
                measured.counts["unknown"] += 1
            measured.key_secs += time.perf_counter() - start
        known = skeletons[key]
        if known is not None:
            _compare(known, point, schedule, measured.counts)
    if timed is not None:
        of_key, point = timed
        points = np.repeat(np.array([point], dtype=np.int64), SPEED_POINTS, axis=0)
        trees = SymbolDraft.from_file().trees
        start = time.perf_counter()
        symbols = of_key.of(points)
        middle = time.perf_counter()
        trees.predict(symbols)
        measured.symbol_secs, measured.score_secs = middle - start, time.perf_counter() - start
        start = time.perf_counter()
        expected_ns(*of_key.values(points), Hardware())
        measured.formula_secs = time.perf_counter() - start
    return measured


def _draws(space: DesignSpace, count: int) -> Iterator[tuple[int, Point, Schedule]]:
    """Schedules of each sketch, drawn as TVM draws them, without postprocessors."""
    generator = random.Random(0)
    for sketch in range(len(space.sketches)):
        insts = space.trace((sketch, space.start(sketch))).insts
        for _ in range(count):
            seed = generator.randint(1, 2**31 - 2)
            schedule = Schedule(space.replayer.mod, seed=seed, debug_mask="none")
            Trace(insts, {}).apply_to_schedule(schedule, remove_postproc=True)
            yield sketch, space.read(sketch, schedule.trace), schedule


def _compare(known: Skeleton, point: Point, schedule: Schedule, counts: Counter[str]) -> None:
    """Count the loops of a schedule, and those whose extent and bytes a skeleton tells."""
    values = known.tape.evaluate(np.array([point], dtype=np.int64), range(len(known.tape)))[:, 0]
    for ours, theirs in zip(known.nests, loop_nests(schedule.mod), strict=True):
        counts["loops"] += len(theirs.extents)
        if len(ours.extents) != len(theirs.extents):
            continue
        exact = values[list(ours.extents)] == theirs.extents
        for access, other in zip(ours.accesses, theirs.accesses, strict=True):
            exact &= values[list(access.touched)] == other.touched
            exact &= values[list(access.runs)] == other.runs
        counts["exact"] += int(exact.sum())


if __name__ == "__main__":
    main()
