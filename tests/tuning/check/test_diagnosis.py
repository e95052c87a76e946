# SPDX-License-Identifier: Apache-2.0
"""The culprits that change the outputs are found by halves, and under a clock."""

import itertools
import math

import pytest

from tvm_droplet_ms.session.stop import StopRequest
from tvm_droplet_ms.tuning.check.diagnosis import SearchClock, TooLate, all_changes, first_change


class TestFirstChange:
    @pytest.mark.parametrize("count", [1, 2, 3, 7, 67])
    def test_a_lone_culprit_is_found_in_few_steps(self, count):
        for culprit in range(count):
            asked = []

            def agrees(number, culprit=culprit, asked=asked):
                asked.append(number)
                return number <= culprit

            assert first_change(count, agrees) == culprit
            assert len(asked) <= math.ceil(math.log2(count))

    def test_is_where_agreement_ends_whatever_the_pattern(self):
        for pattern in itertools.product([True, False], repeat=5):
            agrees = [True, *pattern, False]
            found = first_change(len(agrees) - 1, agrees.__getitem__)
            assert agrees[found] and not agrees[found + 1]


class TestAllChanges:
    def test_finds_every_culprit_and_no_other(self):
        for culprits in itertools.chain.from_iterable(
            itertools.combinations(range(6), size) for size in range(7)
        ):
            found = all_changes(6, lambda kept, culprits=culprits: not set(kept) & set(culprits))
            assert sorted(found) == list(culprits)

    def test_what_is_wrong_together_only_needs_one_of_the_two(self):
        assert len(all_changes(6, lambda kept: not {1, 4} <= set(kept))) == 1

    def test_a_verdict_that_changes_convicts_nobody_it_cleared(self):
        answers = iter([False, True, True, True])
        assert all_changes(2, lambda kept: next(answers)) == [1]


class TestSearchClock:
    def test_ends_when_a_step_as_long_as_the_longest_does_not_fit(self):
        now = 0.0
        clock = SearchClock(StopRequest(10.0, clock=lambda: now), lambda: now)
        with clock.step():
            now = 4.0
        with clock.step():
            now = 7.0
        with pytest.raises(TooLate), clock.step():
            pytest.fail("a step of 4 s does not fit into 3")

    def test_no_step_begins_after_the_end(self):
        with pytest.raises(TooLate), SearchClock(StopRequest(0.0)).step():
            pytest.fail("it is too late")
