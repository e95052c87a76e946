# SPDX-License-Identifier: Apache-2.0
"""Tunes models from schedules whose register tiles are those of a library, as training data.

What a search measures depends on what it has learned, and on AVX2 that was of AVX-512: tiles of 7
pixels and 32 channels, which the registers do not hold. So each kernel begins with random schedules
whose tiles they do hold, and the search goes on from there.

    python training/register_tiles.py OUT --minutes 5 --models resnet50 [--known FILE --prior FILE]
"""

import argparse
import random
from collections.abc import Sequence
from itertools import product
from math import prod
from pathlib import Path

import numpy as np

from tvm_droplet_ms.bench.quantized_models import load_any_model
from tvm_droplet_ms.search_strategy.explorers import SearchContext
from tvm_droplet_ms.search_strategy.factorisations import divisors
from tvm_droplet_ms.search_strategy.published.decision_kinds import PERFECT_TILE
from tvm_droplet_ms.search_strategy.published.decisions import SpacePoint
from tvm_droplet_ms.search_strategy.screening.native_vectors import register_floats
from tvm_droplet_ms.tuning import tune
from tvm_droplet_ms.tuning.experience import strategy
from tvm_droplet_ms.tuning.experience.strategy import TaskSeeds

TILED = 6
"""The schedules of such tiles that a kernel begins with."""

MOST_PIXELS, MOST_VECTORS, WIDEST_PANEL, LONGEST_PANEL = 16, (1, 2, 3, 4, 6), 8, 64
BUSY_SUMS = 8
"""Sums that keep two units busy which take four cycles for one."""

TiledPixels = tuple[tuple[int, ...], int, float]
"""The pixels of a tile along each axis, its vectors, and its share of the peak."""


def register_tiles(extents: Sequence[int], lanes: int, registers: int) -> list[TiledPixels]:
    """The tiles that registers hold and that load little: those of 0.75 of the peak and more.

    ``extents``: of the spatial loops, the channels last. A tile has a sum for each pixel and vector
    and loads each of both once. Eight pixels of one vector run at half of the peak: LLVM loads the
    pixels of two steps ahead, and spills a sum for them.
    """
    *pixels, channels = extents
    inner = [_divisors(extent, MOST_PIXELS) for extent in pixels]
    found = []
    for each, vectors in product(product(*inner), MOST_VECTORS):
        count = prod(each)
        sums = count * vectors
        share = sums / max(sums, count + vectors, BUSY_SUMS)
        is_held = sums + vectors + 1 <= registers and not (vectors == 1 and count >= BUSY_SUMS)
        if channels % (lanes * vectors) == 0 and is_held and share >= 0.75:
            found.append((each, vectors, share))
    return found


def tiled_points(search: SearchContext, count: int) -> list[SpacePoint]:
    """Random points of a kernel's design spaces with such tiles, at most ``count``."""
    lanes = register_floats(search.history.target)
    generator = search.generator
    points: list[SpacePoint] = []
    for sketch, decided in enumerate(search.spaces.sketches):
        tiles = [decision for decision in decided.decisions if decision.kind == PERFECT_TILE]
        spatial = [decision for decision in tiles if decision.length == 4]
        sums = [decision for decision in tiles if decision.length == 2]
        start = search.spaces.start(sketch)
        extents = [prod(decision.value(start)) for decision in spatial]
        held = register_tiles(extents, lanes, 2 * lanes) if len(spatial) > 1 and sums else []
        if not held:
            continue
        space = search.spaces.latent_space(sketch, [])
        for row in space.draw(count, np.random.default_rng(generator.getrandbits(64))):
            pixels, vectors, _ = generator.choices(held, [share**6 for _, _, share in held])[0]
            # Innermost are the pixels, inside of a panel of the sum, or the panel is one step.
            is_panel = generator.random() < 0.5
            for decision, extent, inner in zip(
                spatial, extents, (*pixels, lanes * vectors), strict=True
            ):
                outer = _split(extent // inner, is_panel, generator)
                is_vector = decision is spatial[-1]
                tile = (*outer, inner) if is_panel or is_vector else (*outer[:2], inner, 1)
                row[decision.start : decision.start + 4] = tile
            for decision in sums:
                extent = prod(decision.value(start))
                step = _step(extent, is_panel, generator)
                row[decision.start : decision.start + 2] = (extent // step, step)
            points.append((sketch, tuple(int(value) for value in row)))
    generator.shuffle(points)
    return points[:count]


def _divisors(extent: int, most: int) -> list[int]:
    return [divisor for divisor in divisors(extent) if divisor <= most]


def _split(extent: int, is_panel: bool, generator: random.Random) -> tuple[int, int, int]:
    first = generator.choice(divisors(extent))
    rest = extent // first
    last = generator.choice(_divisors(rest, WIDEST_PANEL)) if is_panel else 1
    return first, rest // last, last


def _step(extent: int, is_panel: bool, generator: random.Random) -> int:
    if not is_panel:
        return generator.choice([n for n in (1, 1, 1, 2, 4) if extent % n == 0])
    steps = _divisors(extent, LONGEST_PANEL)
    return steps[-1] if generator.random() < 0.7 else generator.choice(steps)


class TiledSeeds(TaskSeeds):
    """The points that a task starts with: the best predicted ones, and those of such tiles."""

    def __call__(self, search: SearchContext) -> list[SpacePoint]:
        points = super().__call__(search)
        if len(search.history) >= strategy.PICKED + strategy.NEIGHBOURS:
            return points
        return list(dict.fromkeys([*points[:2], *tiled_points(search, TILED), *points[2:]]))


def main() -> None:
    """Tune the models; the directory of each, in OUT, is what ``pretrain`` reads."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--models", nargs="+", required=True)
    parser.add_argument("--known", default="auto")
    parser.add_argument("--prior", default="auto")
    args = parser.parse_args()
    strategy.TaskSeeds = TiledSeeds
    for name in args.models:
        result = tune(
            load_any_model(name),
            time_budget_s=60 * args.minutes,
            work_dir=args.out / name,
            stop=None,
            seed=7,
            threads=1,
            known=args.known,
            prior=args.prior,
        )
        print(f"{name}: {result.trials} trials")


if __name__ == "__main__":
    main()
