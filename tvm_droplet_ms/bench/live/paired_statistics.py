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
"""Statistics of paired runs: gains of a variant over a baseline by layer and seed. No TVM.

A gain is the baseline's time over the variant's: above 1 the variant is faster.
"""

from collections.abc import Mapping

import numpy as np
from scipy.stats import spearmanr

from .comparison import RATIOS

_DRAWS = 10_000


def bootstrap_interval(gains: RATIOS, *, draws: int = _DRAWS, seed: int = 0) -> tuple[float, float]:
    """The 95% interval of the geometric mean over layers of those over seeds.

    Draws layers, then as many seeds of each layer as it has.

    Parameters
    ----------
    gains : Mapping[str, Sequence[float]]
        The gains of each layer; none is empty.
    draws : int
        The number of bootstrap samples.
    seed : int
        The seed of the draws.
    """
    logs = [np.log(of_layer) for of_layer in gains.values()]
    counts = np.array([len(of_layer) for of_layer in logs])
    table = np.zeros((len(logs), counts.max()))
    for row, of_layer in zip(table, logs, strict=True):
        row[: len(of_layer)] = of_layer
    generator = np.random.default_rng(seed)
    layers = generator.integers(len(logs), size=(draws, len(logs)))
    drawn = counts[layers][..., None]
    seeds = (generator.random((draws, len(logs), counts.max())) * drawn).astype(int)
    is_drawn = np.arange(counts.max()) < drawn
    of_layers = np.where(is_drawn, table[layers[..., None], seeds], 0.0).sum(-1) / drawn[..., 0]
    low, high = np.exp(np.quantile(of_layers.mean(-1), [0.025, 0.975]))
    return float(low), float(high)


def tenth_percentile(gains: RATIOS) -> float:
    """The gain that nine of ten runs have, between two runs interpolated."""
    return float(np.quantile([gain for of_layer in gains.values() for gain in of_layer], 0.1))


def share_of_room(gains: RATIOS, rooms: RATIOS) -> float | None:
    """The logarithm of the mean gain over that of the mean room.

    Parameters
    ----------
    gains : Mapping[str, Sequence[float]]
        The gains of each layer.
    rooms : Mapping[str, Sequence[float]]
        For the same runs, the gain of the best that was ever seen over the baseline.

    Returns
    -------
    share : float | None
        1 where the variant finds the best, negative where the baseline is faster; None where the
        baseline finds the best.
    """
    room = mean_log(rooms)
    return mean_log(gains) / room if room > 0.0 else None


def mean_log(gains: RATIOS) -> float:
    """The mean over the layers of the means over their seeds of the logarithm."""
    return float(np.mean([np.mean(np.log(of_layer)) for of_layer in gains.values()]))


def rank_correlation(ours: Mapping[str, float], theirs: Mapping[str, float]) -> float:
    """Spearman's rank correlation of the gains of the variants that two benches have in common.

    Parameters
    ----------
    ours, theirs : Mapping[str, float]
        The gain of each variant, as ``cached_comparison.gains_of`` gives it.

    Returns
    -------
    correlation : float
        From -1 to 1; equal gains share their mean rank. NaN if all gains of a bench are equal.

    Raises
    ------
    ValueError
        If fewer than two variants are in both.
    """
    common = sorted(ours.keys() & theirs.keys())
    if len(common) < 2:
        raise ValueError(f"the variants in common are {common}, expected at least two")
    pairs = [(ours[name], theirs[name]) for name in common]
    return float(spearmanr(pairs).statistic)
