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
"""What counts as faster: against values worked by hand, and against simulated noise."""

import math
import random
from statistics import mean, variance

import pytest
from scipy import stats

from tvm_droplet_ms.bench.baselines.significance import is_faster

DRAWS = 2000


def rate_limit(p_value):
    """The rate that a test of this level stays below but for one run in a thousand."""
    return p_value + 3.1 * math.sqrt(p_value * (1 - p_value) / DRAWS)


def welch(candidate, incumbent):
    """One-sided p-value that the candidate is faster, by Welch's formulas."""
    a, b = variance(candidate) / len(candidate), variance(incumbent) / len(incumbent)
    t = (mean(candidate) - mean(incumbent)) / math.sqrt(a + b)
    freedom = (a + b) ** 2 / (a**2 / (len(candidate) - 1) + b**2 / (len(incumbent) - 1))
    return stats.t.cdf(t, freedom)


def test_welch_worked_by_hand():
    candidate, incumbent = [1.0, 2.0, 3.0], [2.0, 4.0, 6.0]
    # Variances 1 and 4, so t = (2 - 4) / sqrt(1/3 + 4/3), df = (5/3)^2 / ((1/9 + 16/9) / 2).
    p_value = stats.t.cdf(-2.0 / math.sqrt(5.0 / 3.0), 50.0 / 17.0)
    assert welch(candidate, incumbent) == pytest.approx(p_value)
    assert is_faster(candidate, incumbent, p_value * 1.0001)
    assert not is_faster(candidate, incumbent, p_value * 0.9999)


@pytest.mark.parametrize("seed", range(10))
def test_welch_of_unequal_numbers_of_repeats(seed):
    generator = random.Random(seed)
    candidate = [generator.uniform(1.0, 2.0) for _ in range(generator.randint(2, 6))]
    incumbent = [generator.uniform(1.2, 2.5) for _ in range(generator.randint(2, 6))]
    p_value = welch(candidate, incumbent)
    if p_value < 0.4:
        assert is_faster(candidate, incumbent, p_value * 1.0001)
    assert not is_faster(candidate, incumbent, p_value * 0.9999)


def test_the_comparison_is_one_sided():
    slow, fast = [2.0, 2.1, 2.2], [1.0, 1.1, 1.2]
    assert is_faster(fast, slow, 0.01)
    assert not is_faster(slow, fast, 0.49)
    # Twice the one-sided p-value of 0.03 would not pass at 0.05.
    incumbent = [1.0, 1.2, 1.4]
    candidate = [time - 0.36 for time in incumbent]
    assert 0.025 < welch(candidate, incumbent) < 0.05
    assert is_faster(candidate, incumbent, 0.05)


@pytest.mark.parametrize("p_value", [0.001, 0.05, 0.4])
def test_repeats_without_spread_compare_as_numbers(p_value):
    assert is_faster([0.9999] * 3, [1.0] * 2, p_value)
    assert not is_faster([1.0] * 3, [1.0] * 3, p_value)
    assert not is_faster([1.0001] * 3, [1.0] * 3, p_value)


@pytest.mark.parametrize("incumbent", [[1.0], [0.5, 1.5]])
def test_a_single_time_compares_as_a_number(incumbent):
    assert is_faster([0.9], incumbent)
    assert not is_faster([1.0], incumbent)
    assert is_faster([0.8, 0.99], [1.0])
    assert not is_faster([0.8, 1.3], [1.0])


@pytest.mark.filterwarnings("ignore:Precision loss occurred:RuntimeWarning")
def test_one_side_without_spread_is_still_tested():
    candidate, incumbent = [1.0, 1.0, 1.0], [1.0, 1.1, 1.2]
    p_value = stats.t.cdf(-0.1 / math.sqrt(0.01 / 3.0), 2.0)
    assert is_faster(candidate, incumbent, p_value * 1.0001)
    assert not is_faster(candidate, incumbent, p_value * 0.9999)


@pytest.mark.parametrize(("p_value", "repeats"), [(0.2, 2), (0.05, 3), (0.01, 10)])
def test_welch_accepts_equals_no_more_often_than_it_says(p_value, repeats):
    generator = random.Random(repeats)

    def times():
        return [generator.gauss(1e-3, 5e-5) for _ in range(repeats)]

    accepted = sum(is_faster(times(), times(), p_value) for _ in range(DRAWS))
    assert accepted / DRAWS <= rate_limit(p_value)
