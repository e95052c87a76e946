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
"""Statistics of paired runs against hand-worked values and enumeration."""

import itertools
import math
import statistics

import numpy as np
import pytest

from tvm_droplet_ms.bench.live.comparison import interval, mean_ratio
from tvm_droplet_ms.bench.live.paired_statistics import (
    bootstrap_interval,
    mean_log,
    rank_correlation,
    share_of_room,
    tenth_percentile,
)


def all_resamples(gains: dict[str, list[float]]) -> list[tuple[float, float]]:
    """Each possible bootstrap mean with its probability."""
    layers = list(gains.values())
    found = []
    for drawn in itertools.product(layers, repeat=len(layers)):
        choices = [list(itertools.product(seeds, repeat=len(seeds))) for seeds in drawn]
        weight = 1 / len(layers) ** len(layers) / math.prod(map(len, choices))
        for seeds in itertools.product(*choices):
            mean = statistics.fmean(statistics.fmean(map(math.log, of)) for of in seeds)
            found.append((math.exp(mean), weight))
    return sorted(found)


def test_bootstrap_agrees_with_all_resamples():
    gains = {"a": [1.5, 0.8, 1.1], "b": [2.0, 1.2], "c": [0.9]}
    resamples = all_resamples(gains)
    assert sum(weight for _, weight in resamples) == pytest.approx(1.0)
    shares = np.cumsum([weight for _, weight in resamples])
    exact = [resamples[np.searchsorted(shares, share)][0] for share in (0.025, 0.975)]
    assert exact[0] == pytest.approx(0.9)  # "c" three times has a probability of 1/27.
    assert bootstrap_interval(gains, draws=200_000) == pytest.approx(exact, rel=0.01)


def test_bootstrap_agrees_with_the_other_implementation():
    generator = np.random.default_rng(1)
    gains = {name: list(np.exp(generator.normal(0.1, 0.2, 4))) for name in "abcdef"}
    assert bootstrap_interval(gains) == pytest.approx(interval(gains), rel=0.01)
    assert bootstrap_interval(gains) == bootstrap_interval(gains)


def test_bootstrap_of_equal_gains_is_a_point():
    assert bootstrap_interval({"a": [1.3, 1.3], "b": [1.3]}) == pytest.approx((1.3, 1.3))


def test_layers_count_alike_whatever_their_seeds():
    gains = {"a": [2.0, 2.0, 2.0], "b": [0.5]}
    assert mean_ratio(gains) == pytest.approx(1.0)
    assert mean_log(gains) == pytest.approx(0.0)


def test_tenth_percentile_interpolates_between_runs():
    gains = {"a": [float(value) for value in range(1, 6)], "b": [6.0, 7.0, 8.0, 9.0, 10.0, 11.0]}
    assert tenth_percentile(gains) == pytest.approx(2.0)
    assert tenth_percentile({"a": [1.0, 2.0]}) == pytest.approx(1.1)


def test_share_of_the_room():
    rooms = {"a": [4.0], "b": [1.0]}
    assert share_of_room({"a": [2.0], "b": [1.0]}, rooms) == pytest.approx(0.5)
    assert share_of_room(rooms, rooms) == pytest.approx(1.0)
    assert share_of_room({"a": [0.5], "b": [1.0]}, rooms) == pytest.approx(-0.5)
    assert share_of_room({"a": [0.9]}, {"a": [1.0]}) is None


def test_rank_correlation_of_hand_worked_ranks():
    ours = {"a": 1.0, "b": 1.1, "c": 1.2, "d": 1.3, "e": 1.4, "only ours": 9.0}
    theirs = {"a": 1.1, "b": 1.0, "c": 1.2, "d": 1.4, "e": 1.3, "only theirs": 0.1}
    # Differences of ranks: 1, 1, 0, 1, 1; 1 - 6 * 4 / (5 * 24).
    assert rank_correlation(ours, theirs) == pytest.approx(0.8)
    assert rank_correlation(ours, {name: 1 / gain for name, gain in ours.items()}) == -1.0


def test_equal_gains_share_their_rank():
    # Ranks 1.5, 1.5, 3 and 1, 2, 3: covariance 1.5, variances 1.5 and 2.
    ours, theirs = {"a": 1.0, "b": 1.0, "c": 2.0}, {"a": 1.0, "b": 2.0, "c": 3.0}
    assert rank_correlation(ours, theirs) == pytest.approx(1.5 / math.sqrt(1.5 * 2))


def test_one_variant_in_common_has_no_correlation():
    with pytest.raises(ValueError, match=r"\['a'\], expected at least two"):
        rank_correlation({"a": 1.0, "b": 1.0}, {"a": 1.0, "c": 1.0})
