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
"""Compare drafts: the best of the schedules that each would have measured first.

Each workload is judged by a draft that has learned from all others. Random choice stands beside
it: the expected best of as many schedules, in closed form.
"""

import argparse
import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ..compat import fast_tune_contexts
from ..cost_model.boosted_trees import Trees
from ..cost_model.throughput import relative_throughput
from ..draft.draft_file import write_draft
from ..draft.fitted import fit_draft
from ..report import align
from .drafted_space import DraftedSpace, drafted_space
from .library import find_space, shipped_training_files

WHOLE = "whole_"
"""The prefix of a sample of a whole space, whose enumerated part is a space without it."""

COUNTS = (1, 8, 64)
"""Schedules chosen."""


def main(argv: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="directory of computed symbols")
    parser.add_argument("--spaces", nargs="+", help="spaces to judge (default: all with 64 times)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the trees (default: 0)")
    parser.add_argument("--write", type=Path, help="fit a draft to all spaces, and write it here")
    parser.add_argument(
        "--without", nargs="+", default=(), help="spaces that a written draft does not learn from"
    )
    args = parser.parse_args(argv)
    args.out.mkdir(parents=True, exist_ok=True)
    with fast_tune_contexts():
        spaces = [_load(path, args.out) for path in shipped_training_files()]
    if args.write is not None:
        _write(args.write, spaces, args.without, args.seed)
        return
    judged = [find_space(name).name.partition(".")[0] for name in args.spaces or ()]
    print(_coverage(spaces))
    print()
    print(_table(spaces, judged, args.seed))


def random_best(throughput: np.ndarray, count: int) -> float:
    """The expected best of distinct schedules drawn at random.

    Parameters
    ----------
    throughput : np.ndarray
        Of all schedules, of shape ``(schedules,)``.
    count : int
        Schedules drawn.
    """
    values = np.sort(throughput)[::-1]
    best, left = 0.0, 1.0
    for place, value in enumerate(values):
        others = len(values) - place
        share = min(1.0, count / others)
        best += left * share * value
        left *= 1.0 - share
    return best


def _write(path: Path, spaces: Sequence[DraftedSpace], without: Sequence[str], seed: int) -> None:
    """Fit a draft to all spaces but some, and write it."""
    left_out = {name.removeprefix(WHOLE) for name in without}
    learned = [space for space in spaces if _family(space) not in left_out]
    learned = [space for space in learned if _usable(space).any()]
    write_draft(path, _fit(learned, seed), [space.name for space in learned])
    print(f"wrote {path}, {path.stat().st_size / 1024:.0f} KiB, of {len(learned)} workloads")


def _fit(spaces: Sequence[DraftedSpace], seed: int) -> Trees:
    rows = [_usable(space) for space in spaces]
    return fit_draft(
        [space.symbols[row] for space, row in zip(spaces, rows, strict=True)],
        [relative_throughput(space.secs)[row] for space, row in zip(spaces, rows, strict=True)],
        seed=seed,
    )


def _load(path: Path, out: Path) -> DraftedSpace:
    kept = out / f"{path.name.partition('.')[0]}.npz"
    if not kept.exists():
        space = drafted_space(path)
        content = vars(space) | {"unknown": np.array(list(space.unknown.elements()), dtype=str)}
        np.savez_compressed(kept, **content)
    with np.load(kept) as content:
        return DraftedSpace(
            str(content["name"]),
            content["symbols"],
            content["secs"],
            content["is_random"],
            int(content["keys"]),
            Counter(map(str, content["unknown"])),
        )


def _coverage(spaces: Sequence[DraftedSpace]) -> str:
    lines = [["space", "modules", "drafted", "keys", "unknown", "why"]]
    for space in spaces:
        drafted = int(np.isfinite(space.symbols).all(axis=1).sum())
        why = "; ".join(space.unknown)
        numbers = [len(space.secs), drafted, space.keys, sum(space.unknown.values())]
        lines.append([space.name, *map(str, numbers), why])
    return align(lines)


def _table(spaces: Sequence[DraftedSpace], judged: Sequence[str], seed: int) -> str:
    columns = [f"{kind} {count}" for count in COUNTS for kind in ("fitted", "random")]
    lines = [["space", "schedules", *columns]]
    rows = []
    for space in spaces:
        usable = _usable(space) & space.is_random
        if (judged and space.name not in judged) or usable.sum() < max(COUNTS):
            continue
        others = [other for other in spaces if _family(other) != _family(space)]
        trees = _fit([other for other in others if _usable(other).any()], seed)
        throughput = relative_throughput(space.secs[usable])
        order = np.argsort(-trees.predict(space.symbols[usable]), kind="stable")
        row = []
        for count in COUNTS:
            row += [float(throughput[order[:count]].max()), random_best(throughput, count)]
        rows.append(row)
        lines.append([space.name, str(int(usable.sum())), *(f"{value:.3f}" for value in row)])
    means = [math.fsum(column) / len(column) for column in zip(*rows, strict=True)]
    lines.append(["mean", "", *(f"{value:.3f}" for value in means)])
    return align(lines)


def _usable(space: DraftedSpace) -> np.ndarray:
    finite: np.ndarray = np.isfinite(space.symbols).all(axis=1)
    usable: np.ndarray = finite & np.isfinite(space.secs)
    return usable


def _family(space: DraftedSpace) -> str:
    """Its name; a whole space and the enumerated part of it are the same workload."""
    return space.name.removeprefix(WHOLE)


if __name__ == "__main__":
    main()
