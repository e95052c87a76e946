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
"""Fractions of the optimum, trials to them, and bootstrap intervals."""

import math

import numpy as np
import pytest

from tvm_droplet_ms.bench.measures import (
    bootstrap,
    fraction_interval,
    fraction_of_optimum,
    median_trials,
    score_interval,
    trials_to_fraction,
)
from tvm_droplet_ms.bench.score import ScoreError, SpaceScore


def test_the_fraction_is_the_optimum_over_the_best_found():
    runs = [[4.0, 8.0, 2.0, 1.0], [math.inf, 5.0]]
    assert fraction_of_optimum(1.0, runs, [1, 2, 3, 64]).tolist() == [
        [0.25, 0.25, 0.5, 1.0],
        [0.0, 0.2, 0.2, 0.2],
    ]


def test_there_is_no_best_after_no_trials():
    with pytest.raises(ScoreError, match="expected numbers from 1"):
        fraction_of_optimum(1.0, [[1.0]], [0, 1])


def test_trials_to_a_fraction_are_counted_from_one_and_none_if_not_reached():
    runs = [[2.0, math.inf, 1.1, 1.0], [1.0], [3.0, 2.0]]
    assert trials_to_fraction(1.0, runs, 0.9) == [3, 1, None]
    assert trials_to_fraction(1.0, runs, 0.95) == [4, 1, None]
    assert trials_to_fraction(1.0, runs, 0.5) == [1, 1, 2]


@pytest.mark.parametrize(
    "trials, median",
    [([5, None, 1], 5.0), ([None, 3], None), ([None, None, 3], None), ([2, 4, None, 1], 3.0)],
)
def test_a_run_that_did_not_get_there_is_later_than_any(trials, median):
    assert median_trials(trials) == median


def test_the_bootstrap_of_a_mean_agrees_with_the_normal_approximation():
    values = np.random.default_rng(0).normal(10.0, 2.0, size=400)
    interval = bootstrap([values], lambda drawn: float(drawn[0].mean()), resamples=4000)
    half = 1.96 * values.std() / math.sqrt(400)
    assert interval.value == values.mean()
    assert interval.low == pytest.approx(values.mean() - half, abs=0.02)
    assert interval.high == pytest.approx(values.mean() + half, abs=0.02)


def test_the_bootstrap_draws_the_seeds_of_each_space_on_their_own():
    """The variance of a sum over two spaces is the sum of theirs, not that of one doubled."""
    values = np.random.default_rng(0).normal(size=200)
    statistic = lambda drawn: float(drawn[0].mean() + drawn[1].mean())  # noqa: E731
    interval = bootstrap([values, values], statistic, resamples=4000)
    expected = 2 * 1.96 * math.sqrt(2) * values.std() / math.sqrt(200)
    assert interval.high - interval.low == pytest.approx(expected, rel=0.05)


def two_spaces():
    random = np.random.default_rng(3)
    spaces = [SpaceScore(random.lognormal(size=300)) for _ in range(2)]
    good = [random.choice(np.sort(space.times)[:100], size=(12, 100)) for space in spaces]
    bad = [random.choice(space.times, size=(12, 100)) for space in spaces]
    return spaces, good, bad


def test_the_score_over_spaces_is_the_mean_of_theirs():
    spaces, good, _ = two_spaces()
    interval = score_interval(spaces, good, resamples=200)
    scores = [space.score(runs) for space, runs in zip(spaces, good, strict=True)]
    assert interval.value == pytest.approx(np.mean(scores))
    assert interval.low < interval.value < interval.high
    assert interval == score_interval(spaces, good, resamples=200)


def test_a_difference_is_that_of_the_scores_and_is_zero_with_itself():
    spaces, good, bad = two_spaces()
    difference = score_interval(spaces, good, bad, resamples=200)
    ours, theirs = (score_interval(spaces, runs, resamples=2).value for runs in (good, bad))
    assert difference.value == pytest.approx(ours - theirs)
    assert difference.low > 0
    itself = score_interval(spaces, good, good, resamples=50)
    assert (itself.value, itself.low, itself.high) == (0.0, 0.0, 0.0)


def test_the_fraction_over_spaces_is_the_mean_of_means():
    runs = [[[2.0, 1.0], [4.0, 4.0]], [[10.0, 5.0]]]
    assert fraction_interval([1.0, 5.0], runs, 1).value == ((0.5 + 0.25) / 2 + 0.5) / 2
    assert fraction_interval([1.0, 5.0], runs, 2).value == ((1 + 0.25) / 2 + 1) / 2
    others = [[[1.0], [1.0]], [[5.0]]]
    assert fraction_interval([1.0, 5.0], runs, 1, others).value == (0.375 + 0.5) / 2 - 1


def test_pairs_are_drawn_together():
    """Seeds differ much, strategies by 10% on each: the paired difference is a narrow one."""
    slow = [[[float(t)] for t in np.linspace(1.1, 11.0, 40)]]
    fast = [[[t / 1.1] for [t] in slow[0]]]
    paired = fraction_interval([1.0], fast, 1, slow)
    single = fraction_interval([1.0], fast, 1)
    assert paired.low > 0
    assert paired.high - paired.low < 0.2 * (single.high - single.low)


def test_a_difference_needs_the_same_seeds():
    with pytest.raises(ScoreError, match="space 0: 2 seeds of one strategy and 1 of the other"):
        fraction_interval([1.0], [[[1.0], [2.0]]], 1, [[[1.0]]])
