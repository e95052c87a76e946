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
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..compat import fast_tune_contexts
from ..cost_model.boosted_trees import Trees
from ..cost_model.throughput import relative_throughput
from ..draft.draft_file import write_draft
from ..draft.fitted import fit_draft
from ..report import align
from .drafted_space import ABLATIONS, DraftedSpace, drafted_space_once
from .library import find_space, shipped_training_files

WHOLE = "whole_"
"""The prefix of a sample of a whole space, whose enumerated part is a space without it."""

COUNTS = (1, 8, 64)
"""Schedules chosen."""

PAPER_SHARE = 512 / 4000
"""The share of the schedules that Pruner's table 10 keeps."""


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
    with fast_tune_contexts():
        spaces = [
            drafted_space_once(path, args.out / f"{path.name.partition('.')[0]}.npz")
            for path in shipped_training_files()
        ]
    if args.write is not None:
        _write(args.write, spaces, args.without, args.seed)
        return
    judged = [find_space(name).name.partition(".")[0] for name in args.spaces or ()]
    print(_coverage(spaces))
    chosen = list(_judge(spaces, judged, args.seed))
    for name, of_name in (("enumerated and sampled spaces", False), ("whole spaces", True)):
        part = [one for one in chosen if one.space.name.startswith(WHOLE) == of_name]
        if part:
            print(f"\n{name.capitalize()}:\n\n{_by_space(part)}\n\n{_by_draft(part)}")


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
    learned = [space for space in learned if space.usable.any()]
    write_draft(path, _fit(learned, seed), [space.name for space in learned])
    print(f"wrote {path}, {path.stat().st_size / 1024:.0f} KiB, of {len(learned)} workloads")


def _fit(spaces: Sequence[DraftedSpace], seed: int) -> Trees:
    rows = [space.usable for space in spaces]
    return fit_draft(
        [space.symbols[row] for space, row in zip(spaces, rows, strict=True)],
        [relative_throughput(space.secs)[row] for space, row in zip(spaces, rows, strict=True)],
        seed=seed,
    )


def _coverage(spaces: Sequence[DraftedSpace]) -> str:
    lines = [["space", "modules", "drafted", "keys", "unknown", "why"]]
    for space in spaces:
        drafted = int(np.isfinite(space.symbols).all(axis=1).sum())
        why = "; ".join(space.unknown)
        numbers = [len(space.secs), drafted, space.keys, sum(space.unknown.values())]
        lines.append([space.name, *map(str, numbers), why])
    return align(lines)


@dataclass(frozen=True)
class _Judged:
    """What drafts choose of a space.

    Parameters
    ----------
    space : DraftedSpace
        The space.
    throughput : np.ndarray
        Of the schedules that TVM drew and the draft understands, of shape ``(schedules,)``.
    orders : Mapping[str, np.ndarray]
        These schedules in the order of each draft, the one it expects most of first.
    """

    space: DraftedSpace
    throughput: np.ndarray
    orders: Mapping[str, np.ndarray]

    def best(self, draft: str, count: int) -> float:
        """The best of as many schedules, relative to the best of all."""
        if draft == "random":
            return random_best(self.throughput, count)
        return float(self.throughput[self.orders[draft][:count]].max())

    def share(self, draft: str) -> float:
        """The best of the paper's share of the schedules."""
        return self.best(draft, max(1, round(PAPER_SHARE * len(self.throughput))))


def _judge(spaces: Sequence[DraftedSpace], judged: Sequence[str], seed: int) -> Iterator[_Judged]:
    for space in spaces:
        usable = space.usable & space.is_random
        if (judged and space.name not in judged) or usable.sum() < max(COUNTS):
            continue
        others = [other for other in spaces if _family(other) != _family(space)]
        trees = _fit([other for other in others if other.usable.any()], seed)
        scores = {"fitted": trees.predict(space.symbols[usable])}
        for without, times in zip(ABLATIONS, space.formula, strict=True):
            name = " without ".join(["formula", *without])
            scores[name] = -times[usable]
        orders = {name: np.argsort(-score, kind="stable") for name, score in scores.items()}
        orders["half of each"] = interleaved(orders["fitted"], orders["formula"])
        yield _Judged(space, relative_throughput(space.secs[usable]), orders)


def interleaved(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Two orders of the same numbers taken in turns, each number where it comes first."""
    both = np.stack([first, second], axis=1).ravel()
    _, places = np.unique(both, return_index=True)
    return both[np.sort(places)]


def _by_space(judged: Sequence[_Judged]) -> str:
    drafts = ("fitted", "formula", "half of each", "random")
    header = [f"{draft} {count}" for count in COUNTS for draft in drafts]
    lines = [["space", "schedules", *header]]
    for one in judged:
        values = [one.best(draft, count) for count in COUNTS for draft in drafts]
        numbers = [f"{value:.3f}" for value in values]
        lines.append([one.space.name, str(len(one.throughput)), *numbers])
    return align(lines)


def _by_draft(judged: Sequence[_Judged]) -> str:
    """The means over spaces, with each penalty of the formula off in turn."""
    header = ["draft", *(f"best of {count}" for count in COUNTS), f"of {PAPER_SHARE:.1%}"]
    lines = [header]
    for draft in [*judged[0].orders, "random"]:
        columns = [[one.best(draft, count) for one in judged] for count in COUNTS]
        columns.append([one.share(draft) for one in judged])
        lines.append([draft, *(f"{statistics.fmean(column):.3f}" for column in columns)])
    return align(lines)


def _family(space: DraftedSpace) -> str:
    """Its name; a whole space and the enumerated part of it are the same workload."""
    return space.name.removeprefix(WHOLE)


if __name__ == "__main__":
    main()
