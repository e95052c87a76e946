# SPDX-License-Identifier: Apache-2.0
"""Tunes models from schedules of the design spaces of tiles, as training data.

What a search measures depends on what it has learned, and that was of TVM's spaces. So each kernel
begins with random schedules of ``RegisterTiles``, or of ``MatrixTiles`` where a CPU has them, and
the search goes on from there.

    python training/register_tiles.py OUT --minutes 4 --models resnet50 [--known FILE --prior FILE]
    python training/register_tiles.py OUT --minutes 3 --models resnet50 --precision bfloat16
"""

import argparse
import sys
from pathlib import Path

import numpy as np

from tvm_droplet_ms.search_strategy.explorers.base import SearchContext
from tvm_droplet_ms.search_strategy.published.decision_kinds import PERFECT_TILE
from tvm_droplet_ms.search_strategy.published.decisions import Sketch, SpacePoint
from tvm_droplet_ms.tuning import tune
from tvm_droplet_ms.tuning.experience import strategy
from tvm_droplet_ms.tuning.experience.strategy import TaskSeeds

sys.path.append(str(Path(__file__).resolve().parents[1]))  # `benchmarks` is not installed.

TILED = 8
"""The schedules of such tiles that a kernel begins with."""


def tiled_points(search: SearchContext, count: int) -> list[SpacePoint]:
    """Random points of a kernel's design spaces of tiles, at most ``count``."""
    generator = search.generator
    points: list[SpacePoint] = []
    for number, sketch in enumerate(search.spaces.sketches):
        if _is_tiled(sketch):
            space = search.spaces.latent_space(number, [])
            rows = space.draw(count, np.random.default_rng(generator.getrandbits(64)))
            points += [(number, tuple(int(value) for value in row)) for row in rows]
    generator.shuffle(points)
    return list(dict.fromkeys(points))[:count]


def _is_tiled(sketch: Sketch) -> bool:
    """True if loops are split in two alone, where TVM and ``DotProducts`` split some in more."""
    lengths = [each.length for each in sketch.decisions if each.kind == PERFECT_TILE]
    return len(lengths) > 1 and set(lengths) == {2}


class TiledSeeds(TaskSeeds):
    """The points that a task starts with: the best predicted ones, and those of such tiles."""

    def __call__(self, search: SearchContext) -> list[SpacePoint]:
        points = super().__call__(search)
        if len(search.history) >= strategy.PICKED + strategy.NEIGHBORS:
            return points
        return list(dict.fromkeys([*points[:2], *tiled_points(search, TILED), *points[2:]]))


def main() -> None:
    """Tune the models; the directory of each, in OUT, is what ``pretrain`` reads."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--minutes", type=float, default=4.0)
    parser.add_argument("--models", nargs="+", required=True)
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--known", default="auto")
    parser.add_argument("--prior", default="auto")
    args = parser.parse_args()
    from benchmarks.zoo.quantized_models import load_any_model

    strategy.TaskSeeds = TiledSeeds
    for name in args.models:
        result = tune(
            load_any_model(name),
            time_budget_s=60 * args.minutes,
            precision=args.precision,
            work_dir=args.out / f"{name}-{args.precision}",
            stop=None,
            seed=7,
            threads=1,
            known=args.known,
            prior=args.prior,
        )
        print(f"{name}: {result.trials} trials", flush=True)


if __name__ == "__main__":
    main()
