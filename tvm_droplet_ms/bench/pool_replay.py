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
"""The surrogate alone, choosing among the measured random schedules of a whole space.

Whole spaces are too large to measure, so a search cannot be replayed on them. Which of some
hundred measured schedules the surrogate takes next can be: by true times, in a second for each run.
It shows what an encoding, a mean or an acquisition is worth; nothing of how a search proposes
points.

    python -m tvm_droplet_ms.bench.pool_replay --seeds 20
"""

import argparse
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ..search_strategy.decision_kinds import DECISION_KINDS, DecisionKind
from ..search_strategy.neighbourhood import Point
from ..search_strategy.surrogate.acquisition import by_expected_improvement
from ..search_strategy.surrogate.encoding import Encoding
from ..search_strategy.surrogate.model import Surrogate
from .library import find_space
from .space import Space

SPACES = ("whole_dense", "whole_conv2d_3x3", "whole_depthwise", "whole_softmax")

CHECKPOINTS = (8, 16, 32, 64, 128)

Fit = Callable[[np.ndarray, Sequence[float]], Surrogate]


@dataclass(frozen=True)
class _Slot:
    kind: DecisionKind
    start: int
    length: int


@dataclass(frozen=True)
class Pool:
    """Measured random schedules.

    Parameters
    ----------
    vectors : np.ndarray
        Of shape ``(schedules, width)``.
    secs : np.ndarray
        Their times in seconds.
    """

    vectors: np.ndarray
    secs: np.ndarray

    @staticmethod
    def of_space(space: Space) -> "Pool":
        """The random schedules of a sample, each module once."""
        slots = [
            [_Slot(DECISION_KINDS[one.kind], one.start, one.length) for one in sketch.decisions]
            for sketch in space.sketches
        ]
        points: dict[int, tuple[int, Point]] = {}
        for point in space.points:
            module = point.module
            if module is not None and space.origins[module] == "random":
                points.setdefault(module, (point.sketch, point.decisions))
        timed = [module for module in points if np.isfinite(space.times[module])]
        vectors = Encoding(slots).vectors([points[module] for module in timed])
        return Pool(vectors, np.array([space.times[module] for module in timed]))


def choose(pool: Pool, trials: int, batch: int, seed: int, fit: Fit = Surrogate.fit) -> list[int]:
    """The schedules that the surrogate measures, in order.

    Parameters
    ----------
    pool : Pool
        The schedules to choose from.
    trials : int
        The number to choose.
    batch : int
        Chosen at a time; the first batch is random.
    seed : int
        Seed of the first batch.
    fit : Callable[[np.ndarray, Sequence[float]], Surrogate]
        Fits the surrogate to vectors and negated relative throughputs.

    Returns
    -------
    chosen : list[int]
        Indices of the pool.
    """
    generator = np.random.default_rng(seed)
    chosen = [int(index) for index in generator.permutation(len(pool.secs))[:batch]]
    while len(chosen) < trials:
        left = np.setdiff1d(np.arange(len(pool.secs)), chosen)
        best = pool.secs[chosen].min()
        surrogate = fit(pool.vectors[chosen], list(-best / pool.secs[chosen]))
        order = by_expected_improvement(surrogate.predict(pool.vectors[left]), -1.0)
        index, _ = next(order)
        for _ in range(min(batch, trials - len(chosen)) - 1):
            chosen.append(int(left[index]))
            index, _ = order.send(True)
        chosen.append(int(left[index]))
    return chosen


def fractions(pool: Pool, chosen: Sequence[int]) -> list[float]:
    """The best of the first schedules at each checkpoint, as a share of the pool's best."""
    found = np.minimum.accumulate(pool.secs[list(chosen)])
    return [float(pool.secs.min() / found[checkpoint - 1]) for checkpoint in CHECKPOINTS]


def main() -> None:
    """Print the fractions of each space, and their means."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--spaces", nargs="+", default=list(SPACES))
    options = parser.parse_args()
    print("space", *CHECKPOINTS)
    means = []
    for name in options.spaces:
        pool = Pool.of_space(Space.load(find_space(name)))
        runs = [
            fractions(pool, choose(pool, CHECKPOINTS[-1], options.batch, seed))
            for seed in range(options.seeds)
        ]
        means.append([statistics.fmean(run[i] for run in runs) for i in range(len(CHECKPOINTS))])
        print(name, *(f"{mean:.3f}" for mean in means[-1]), flush=True)
    print("mean", *(f"{statistics.fmean(column):.3f}" for column in zip(*means, strict=True)))


if __name__ == "__main__":
    main()
