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
"""The field's score, by hand-worked cases and brute force."""

import math

import numpy as np
import pytest

from tvm_droplet_ms.bench.score import (
    ScoreError,
    SpaceScore,
    best_so_far,
    random_baseline,
    trial_budget,
)

TIMES = [float(t) for t in range(1, 10)]
"""Nine times: the optimum 1, the median 5."""


def test_baseline_is_time_at_expected_rank():
    # round(M 10 / (M + 1)) from the worst: 5, 6.67 -> 7, 7.5 -> 8, 8, and at most 8.
    assert random_baseline(TIMES, [1, 2, 3, 4, 100]).tolist() == [4.0, 2.0, 1.0, 1.0, 1.0]


def test_baseline_is_near_expectation_on_large_space():
    times = np.linspace(1.0, 2.0, 5001)
    trials = [1, 3, 10, 100]
    expected = [1.0 + 1.0 / (count + 1) for count in trials]
    assert random_baseline(times, trials) == pytest.approx(expected, abs=1e-3)


def test_budget_is_expected_trials_of_random_search_to_target():
    # The target is 1 + 50 * 0.05 = 3.5, first met at index 98 of 101 from the worst (the time 3):
    # 98 / (101 + 1 - 98) = 24.5 trials. At the start the target is 50.5: 51 / 51 = 1 trial.
    assert trial_budget([float(t) for t in range(1, 102)]) == (1, 25)


def test_optimum_itself_is_not_target():
    # 1 + 4 * 0.05 = 1.2 is met by the optimum only, so that the one before it counts: 7 / (10 - 7).
    # At the start the target 4.96 is met at index 5: 5 / 5 = 1 trial.
    assert trial_budget(TIMES) == (1, 3)


def test_flat_space_has_no_budget():
    with pytest.raises(ScoreError, match="all 3 valid times are equal"):
        trial_budget([2.0, 2.0, 2.0, math.inf])


def test_space_of_failures_has_no_score():
    with pytest.raises(ScoreError, match="no valid time"):
        random_baseline([math.inf], [1])


def space():
    """Times 1 to 20 and a budget of 1 to 3 trials, where the baseline is 10, 6 and 4.

    The target is 1 + 9.5 * 0.5 = 5.75, first met at index 15 from the worst: 15 / (21 - 15) = 2.5
    trials. The baseline is at the indices 21 / 2 -> 10 (half to even), 14 and 15.75 -> 16.
    """
    return SpaceScore([float(t) for t in range(1, 21)], cutoff=0.5)


def curve(runs):
    return space().curve(space().ranks(runs)).tolist()


def test_score_matches_hand_computed_value():
    assert space().trials.tolist() == [1, 2, 3]
    assert space().baseline.tolist() == [10.0, 6.0, 4.0]
    runs = [[17.0, 2.0, 9.0], [8.0, 9.0, 3.0], [12.0, 1.0, 1.0]]
    # The best are 17, 8, 12, then 2, 8, 1, then 2, 3, 1: the medians are 12, 2 and 2.
    assert curve(runs) == [(10 - 12) / (10 - 1), (6 - 2) / (6 - 1), (4 - 2) / (4 - 1)]
    assert space().score(runs) == pytest.approx((-2 / 9 + 4 / 5 + 2 / 3) / 3)


def test_run_that_finds_optimum_at_once_scores_one():
    assert space().score([[1.0, 5.0, 5.0]] * 3) == 1.0


def test_even_number_of_runs_takes_rank_between_theirs():
    # The ranks 0 and 4 have the median 2, the time 3; 0 and 1 have 0.5, which goes to the even 0.
    assert curve([[1.0], [5.0]]) == [7 / 9, 3 / 5, 1 / 3]
    assert curve([[1.0], [2.0]]) == [1.0, 1.0, 1.0]


def test_failures_cost_trials_and_a_run_counts_from_its_first_success():
    # After one trial the ranks are 1 and 4, the median 2.5 goes to 2; then they are 0, 1 and 4.
    runs = [[math.inf, 1.0], [2.0, 2.0], [5.0, math.inf]]
    assert curve(runs) == [(10 - 3) / 9, (6 - 2) / 5, (4 - 2) / 3]


def test_failed_runs_count_as_worst_time():
    assert curve([[math.inf, 1.0]]) == [(10 - 20) / 9, 1.0, 1.0]


def test_run_that_ended_keeps_its_best():
    assert best_so_far([[3.0, 2.0], [4.0, math.inf, 5.0, 1.0]]).tolist() == [
        [3.0, 2.0, 2.0, 2.0],
        [4.0, 4.0, 4.0, 1.0],
    ]


def test_score_is_invariant_to_unit_and_order():
    random = np.random.default_rng(0)
    times = random.lognormal(size=400)
    runs = random.choice(times, size=(9, 200))
    expected = SpaceScore(times).score(runs)
    with_failures = np.concatenate([random.permutation(times), [math.inf] * 50])
    assert SpaceScore(with_failures).score(runs[::-1]) == expected
    assert SpaceScore(times * 8).score(runs * 8) == pytest.approx(expected, abs=1e-12)


def test_random_search_scores_about_as_the_median_of_its_rank():
    """The curve has the median rank and the baseline the mean one, so that random search is not 0.

    With many points the rank after M trials has the mean N / (M + 1) and the median
    N (1 - 2^(-1 / M)); for times linear in the rank both are P_t exactly.
    """
    random = np.random.default_rng(1)
    times = np.linspace(1.0, 2.0, 20001)
    scored = SpaceScore(times, cutoff=0.8)
    runs = np.array([random.choice(times, size=20, replace=False) for _ in range(4000)])
    trials = scored.trials
    expected = 1 - (1 - 0.5 ** (1 / trials)) * (trials + 1)
    assert scored.curve(scored.ranks(runs)) == pytest.approx(expected, abs=0.06)


def test_unknown_time_is_rejected():
    with pytest.raises(ScoreError, match="measured 2.5, which is none of the 20 times"):
        space().score([[2.5, 1.0]])


def test_baseline_at_optimum_is_rejected():
    with pytest.raises(ScoreError, match="within the budget"):
        SpaceScore(TIMES, cutoff=0.95).score([[1.0]])


@pytest.mark.parametrize("runs", [[], [[1.0], []]])
def test_runs_without_trials_raise(runs):
    with pytest.raises(ScoreError, match="expected one run or more"):
        space().score(runs)
