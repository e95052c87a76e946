# SPDX-License-Identifier: Apache-2.0
"""Fit a draft to the measured spaces and samples of the package.

python -m tvm_droplet_ms.bench.fit_draft --out my.draft --without dense softmax
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..compat import fast_tune_contexts
from ..cost_model.draft.block_tree import NotUnderstood
from ..cost_model.draft.draft_file import fit_draft, write_draft
from ..cost_model.draft.key_symbols import Key, KeySymbols, key_of
from ..cost_model.draft.symbols import SYMBOLS
from ..cost_model.throughput import relative_throughput
from ..search_strategy.published.neighborhood import Point
from ..session.archive import replacing
from .design_space import DesignSpace
from .space import Space, shipped_training_files

WHOLE = "whole_"
"""The name prefix of a sample of a whole space. The enumerated part of the same workload is a space
without the prefix."""


def main(argv: Sequence[str] | None = None) -> None:
    """Fit a draft and write it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="the file of the draft")
    parser.add_argument(
        "--without", nargs="+", default=(), help="workloads that it does not learn from"
    )
    args = parser.parse_args(argv)
    left_out = {name.removeprefix(WHOLE) for name in args.without}
    files = [
        path
        for path in shipped_training_files()
        if path.name.partition(".")[0].removeprefix(WHOLE) not in left_out
    ]
    with fast_tune_contexts():
        count = learn_draft([drafted_space(path) for path in files], args.out)
    print(f"wrote {args.out}, {args.out.stat().st_size / 1024:.0f} KiB, of {count} workloads")


@dataclass(frozen=True)
class DraftedSpace:
    """The symbols and the times of the modules of a measured space.

    ``symbols``: of shape ``(modules, SYMBOLS)``, float32; NaN if the symbols of a key are unknown.
    ``secs``: the times of the modules in seconds, of shape ``(modules,)``; infinity for failures.
    """

    name: str
    symbols: np.ndarray
    secs: np.ndarray

    @property
    def usable(self) -> np.ndarray:
        """True for each module with known symbols and a time: a draft can learn from it."""
        usable: np.ndarray = np.isfinite(self.symbols).all(axis=1) & np.isfinite(self.secs)
        return usable


def learn_draft(spaces: Sequence[DraftedSpace], out: Path) -> int:
    """Fit a draft to spaces, and write it.

    Returns the number of spaces with a usable module. The draft learns from these.
    """
    learned = [(space, space.usable) for space in spaces if space.usable.any()]
    trees = fit_draft(
        [space.symbols[rows] for space, rows in learned],
        [relative_throughput(space.secs)[rows] for space, rows in learned],
    )
    write_draft(out, trees, [space.name for space, _ in learned])
    return len(learned)


def drafted_space_once(path: Path, kept: Path) -> DraftedSpace:
    """``drafted_space``, cached in the file ``kept``."""
    if not kept.exists():
        with replacing(kept) as partial, partial.open("wb") as file:
            np.savez_compressed(file, **vars(drafted_space(path)))
    with np.load(kept) as content:
        return DraftedSpace(str(content["name"]), content["symbols"], content["secs"])


def drafted_space(path: Path) -> DraftedSpace:
    """Compute the symbols of the modules of a space or a sample, each from its first point."""
    space = Space.load(path)
    design_space = DesignSpace.of(space)
    first = space.first_points
    by_key: dict[tuple[int, Key], list[int]] = {}
    for module, point in sorted(first.items()):
        key = key_of(design_space.sketches[point.sketch], point.decisions)
        by_key.setdefault((point.sketch, key), []).append(module)
    symbols = np.full((len(space.modules), SYMBOLS), np.nan, dtype=np.float32)
    for (sketch, _), modules in by_key.items():
        points = np.array([first[module].decisions for module in modules], dtype=np.int64)
        try:
            of_key = _key_symbols(design_space, sketch, tuple(points[0].tolist()))
        except NotUnderstood:
            continue
        symbols[modules] = of_key.of(points)
    return DraftedSpace(space.name, symbols, np.array(space.times))


def _key_symbols(space: DesignSpace, sketch: int, point: Point) -> KeySymbols:
    schedule = space.replayer.new_schedule()
    space.trace((sketch, point)).apply_to_schedule(schedule, remove_postproc=True)
    return KeySymbols(space.sketches[sketch], schedule)


if __name__ == "__main__":
    main()
