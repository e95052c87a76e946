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

from tvm_droplet_ms.bench.baselines.significance import Noise

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
    assert Noise(p_value * 1.0001).compare(candidate, incumbent).faster
    assert not Noise(p_value * 0.9999).compare(candidate, incumbent).faster
    verdict = Noise(0.05).compare(candidate, incumbent)
    assert verdict.gain == pytest.approx(0.5)
    assert verdict.evidence == f"p = {p_value:.2g}"


@pytest.mark.parametrize("seed", range(10))
def test_welch_of_unequal_numbers_of_repeats(seed):
    generator = random.Random(seed)
    candidate = [generator.uniform(1.0, 2.0) for _ in range(generator.randint(2, 6))]
    incumbent = [generator.uniform(1.2, 2.5) for _ in range(generator.randint(2, 6))]
    p_value = welch(candidate, incumbent)
    if p_value < 0.4:
        assert Noise(p_value * 1.0001).compare(candidate, incumbent).faster
    assert not Noise(p_value * 0.9999).compare(candidate, incumbent).faster


def test_the_comparison_is_one_sided():
    slow, fast = [2.0, 2.1, 2.2], [1.0, 1.1, 1.2]
    assert Noise(0.01).compare(fast, slow).faster
    verdict = Noise(0.49).compare(slow, fast)
    assert not verdict.faster
    assert verdict.gain == pytest.approx(1.0 - 2.1 / 1.1)
    # Twice the one-sided p-value of 0.03 would not pass at 0.05.
    incumbent = [1.0, 1.2, 1.4]
    candidate = [time - 0.36 for time in incumbent]
    assert 0.025 < welch(candidate, incumbent) < 0.05
    assert Noise(0.05).compare(candidate, incumbent).faster


@pytest.mark.parametrize("p_value", [0.001, 0.05, 0.4])
def test_repeats_without_spread_compare_as_numbers(p_value):
    noise = Noise(p_value)
    noise.observe(1.0, 2.0)
    assert noise.compare([0.9999] * 3, [1.0] * 2).faster
    assert not noise.compare([1.0] * 3, [1.0] * 3).faster
    assert not noise.compare([1.0001] * 3, [1.0] * 3).faster
    assert noise.compare([0.5] * 2, [1.0] * 3).gain == pytest.approx(0.5)


@pytest.mark.filterwarnings("ignore:Precision loss occurred:RuntimeWarning")
def test_one_side_without_spread_is_still_tested():
    candidate, incumbent = [1.0, 1.0, 1.0], [1.0, 1.1, 1.2]
    p_value = stats.t.cdf(-0.1 / math.sqrt(0.01 / 3.0), 2.0)
    assert Noise(p_value * 1.0001).compare(candidate, incumbent).faster
    assert not Noise(p_value * 0.9999).compare(candidate, incumbent).faster


@pytest.mark.parametrize(
    ("p_value", "log_ratios", "quantile"),
    [
        # Student's quantiles at 0.95 and 0.9, from a printed table.
        (0.05, [0.02], 6.3138),
        (0.05, [-0.02], 6.3138),
        (0.05, [0.01, -0.02, 0.03], 2.3534),
        (0.10, [0.01, -0.02, 0.03], 1.6377),
    ],
)
def test_margin_worked_by_hand(p_value, log_ratios, quantile):
    noise = Noise(p_value)
    for log_ratio in log_ratios:
        noise.observe(3e-3, 3e-3 * math.exp(log_ratio))
    rms = math.sqrt(sum(ratio**2 for ratio in log_ratios) / len(log_ratios))
    margin = 1.0 - math.exp(-quantile * rms)
    assert noise.margin == pytest.approx(margin, rel=1e-4)
    assert noise.compare([1.0 - 1.001 * margin], [1.0]).faster
    assert not noise.compare([1.0 - 0.999 * margin], [1.0]).faster
    assert not noise.compare([1.0 + 2 * margin], [1.0]).faster


@pytest.mark.parametrize(
    ("candidate", "incumbent"), [([0.9], [1.0, 1.0]), ([0.9, 0.9], [1.0]), ([0.9], [1.0])]
)
def test_a_single_time_on_either_side_is_judged_by_the_margin(candidate, incumbent):
    noise = Noise(0.05)
    assert noise.compare(candidate, incumbent).faster
    noise.observe(1.0, 1.01)
    assert 0.05 < noise.margin < 0.1
    assert noise.compare(candidate, incumbent).faster
    noise.observe(1.0, 1.2)
    assert noise.margin > 0.1
    assert not noise.compare(candidate, incumbent).faster


def test_what_is_known_of_the_noise():
    noise = Noise(0.05)
    assert (noise.is_known, noise.is_silent, noise.margin) == (False, False, 0.0)
    noise.observe(2e-3, 2e-3)
    assert (noise.is_known, noise.is_silent, noise.margin) == (True, True, 0.0)
    assert not noise.compare([1.0], [1.0]).faster
    assert noise.compare([1.0 - 1e-9], [1.0]).faster
    noise.observe(2e-3, 2.001e-3)
    assert (noise.is_known, noise.is_silent) == (True, False)
    assert noise.margin > 0.0


@pytest.mark.parametrize(("p_value", "repeats"), [(0.2, 2), (0.05, 3), (0.01, 10)])
def test_welch_accepts_equals_no_more_often_than_it_says(p_value, repeats):
    generator = random.Random(repeats)
    noise = Noise(p_value)

    def times():
        return [generator.gauss(1e-3, 5e-5) for _ in range(repeats)]

    accepted = sum(noise.compare(times(), times()).faster for _ in range(DRAWS))
    assert accepted / DRAWS <= rate_limit(p_value)


@pytest.mark.parametrize(("p_value", "observed"), [(0.01, 1), (0.05, 1), (0.05, 4), (0.2, 8)])
def test_margin_accepts_equals_as_often_as_it_says(p_value, observed):
    generator = random.Random(observed)

    def time():
        return 1e-3 * math.exp(generator.gauss(0.0, 0.05))

    accepted = 0
    for _ in range(DRAWS):
        noise = Noise(p_value)
        for _ in range(observed):
            noise.observe(time(), time())
        accepted += noise.compare([time()], [time()]).faster
    assert 2 * p_value - rate_limit(p_value) <= accepted / DRAWS <= rate_limit(p_value)


def test_an_incumbent_measured_again_twice_is_no_easier_to_beat():
    """Of two times of the incumbent in one batch the mean counts, which is less noisy."""
    generator = random.Random(3)
    p_value, accepted = 0.05, 0

    def time():
        return 1e-3 * math.exp(generator.gauss(0.0, 0.02))

    for _ in range(DRAWS):
        noise = Noise(p_value)
        before = time()
        again = [time(), time()]
        for one in again:
            noise.observe(before, one)
        accepted += noise.compare([time()], again).faster
    assert accepted / DRAWS <= rate_limit(p_value)
