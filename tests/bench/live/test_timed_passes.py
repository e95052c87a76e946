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
"""Which pass a run sees, the truth of a module, and who is a leader."""

from collections import Counter

import pytest

from tvm_droplet_ms.bench.live.timed_passes import (
    TimedPass,
    best_truth,
    choose_pass,
    is_settled,
    leaders,
    truth,
    unsettled,
)


def passes(*secs: float, processes: int = 1) -> list[TimedPass]:
    """One pass for each time, of so many processes in turn."""
    return [TimedPass((time,), f"p{n % processes}", 0.0) for n, time in enumerate(secs)]


def test_same_seed_and_module_give_the_same_pass():
    assert [choose_pass(3, "a", 9) for _ in range(3)] == [choose_pass(3, "a", 9)] * 3


def test_seeds_and_modules_spread_alike_over_the_passes():
    by_seed = Counter(choose_pass(seed, "a", 9) for seed in range(9000))
    by_module = Counter(choose_pass(0, f"{number:016x}", 9) for number in range(9000))
    for counts in (by_seed, by_module):
        # 1000 expected of each, with a standard deviation of 30.
        assert sorted(counts) == list(range(9))
        assert all(abs(count - 1000) < 150 for count in counts.values())


def test_truth_is_the_median_of_the_means_of_the_repeats():
    of_module = [TimedPass((1.0, 3.0), "p", 0.0), TimedPass((5.0,), "p", 0.0), *passes(4.0)]
    assert of_module[0].secs == 2.0
    assert truth(of_module) == 4.0


@pytest.mark.parametrize(
    "count, processes, expected", [(9, 3, True), (8, 3, False), (9, 2, False), (30, 4, True)]
)
def test_truth_is_settled_by_nine_passes_of_three_processes(count, processes, expected):
    assert is_settled(passes(*[1.0] * count, processes=processes)) is expected


def test_leaders_are_winners_that_count_and_all_near_the_best():
    of_layer = {
        "best": passes(1.0),
        "near": passes(1.05),
        "far": passes(1.06),
        "winner": passes(2.0),
    }
    assert leaders(["winner", "faulty"], of_layer) == ["best", "near", "winner"]
    assert leaders(["faulty"], {}) == []


def test_settled_leader_is_not_timed_again():
    of_layer = {"best": passes(*[1.0] * 9, processes=3), "near": passes(1.01)}
    assert unsettled([], of_layer) == ["near"]


def test_best_is_a_settled_one_if_there_is_one():
    lucky = {"lucky": passes(0.5), "sure": passes(*[1.0] * 9, processes=3)}
    assert best_truth(lucky) == 1.0
    assert best_truth({"lucky": passes(0.5), "slow": passes(0.7)}) == 0.5
    assert best_truth({}) is None
