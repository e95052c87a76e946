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

from tvm_droplet_ms.bench.quality import bootstrap, trials_to_fraction
from tvm_droplet_ms.bench.score import SpaceScore


def test_trials_to_a_fraction():
    runs = [[2.0, math.inf, 1.1, 1.0], [1.0], [3.0, 2.0]]
    assert trials_to_fraction(1.0, runs, 0.9) == [3, 1, None]
    assert trials_to_fraction(1.0, runs, 0.95) == [4, 1, None]
    assert trials_to_fraction(1.0, runs, 0.5) == [1, 1, 2]


def test_bootstrap_of_mean_agrees_with_normal_approximation():
    values = np.random.default_rng(0).normal(10.0, 2.0, size=400)
    interval = bootstrap([values], lambda drawn: float(drawn[0].mean()), resamples=4000)
    half = 1.96 * values.std() / math.sqrt(400)
    assert interval.value == values.mean()
    assert interval.low == pytest.approx(values.mean() - half, abs=0.02)
    assert interval.high == pytest.approx(values.mean() + half, abs=0.02)


def test_bootstrap_draws_seeds_of_each_space_on_their_own():
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
