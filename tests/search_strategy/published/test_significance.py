# SPDX-License-Identifier: Apache-2.0
"""The significance test of the published descent, against SciPy's."""

import numpy as np
import pytest
from scipy import stats

from tvm_droplet_ms.search_strategy.published.coordinate_descent import is_faster, students_t_test

FIVE = [1.0, 2.0, 3.0, 4.0, 5.0]


@pytest.mark.parametrize("seed", range(20))
def test_p_value_equals_that_of_scipy(seed):
    generator = np.random.default_rng(seed)
    sizes = generator.integers(2, 9, size=2)
    one, other = (generator.lognormal(generator.normal(0, 0.3), 0.2, size) for size in sizes)
    assert students_t_test(one, other) == pytest.approx(stats.ttest_ind(one, other).pvalue)


def test_p_value_of_hand_worked_samples():
    """Means 3 and 5, both variances 2.5: t = -2 / sqrt(2.5 * 2 / 5) = -2, with 8 degrees."""
    assert students_t_test(FIVE, [3.0, 4.0, 5.0, 6.0, 7.0]) == pytest.approx(0.0805, abs=1e-4)


@pytest.mark.parametrize("seed", range(20))
def test_significantly_faster_agrees_with_scipy(seed):
    generator = np.random.default_rng(seed)
    incumbent = generator.normal(1.0, 0.1, 5)
    candidate = generator.normal(0.9, 0.1, 5)
    rejected = stats.ttest_ind(candidate, incumbent).pvalue <= 0.05
    assert is_faster(candidate, incumbent) == (rejected and candidate.mean() < incumbent.mean())
    assert not (is_faster(candidate, incumbent) and is_faster(incumbent, candidate))


def test_lower_mean_within_the_noise_is_not_faster():
    assert not is_faster([0.9, 1.0, 1.1, 1.2, 0.7], [1.0, 1.1, 1.2, 0.8, 0.95])
    assert is_faster([0.9, 0.91, 0.89], [1.0, 1.01, 0.99])
    assert not is_faster([1.0, 1.01, 0.99], [0.9, 0.91, 0.89])


def test_p_value_argument_sets_the_level():
    candidate, incumbent = FIVE, [3.0, 4.0, 5.0, 6.0, 7.0]
    assert not is_faster(candidate, incumbent)
    assert is_faster(candidate, incumbent, p_value=0.1)


def test_lower_mean_decides_where_one_was_timed_once():
    assert is_faster([0.99], [1.0, 1.5, 0.6])
    assert is_faster([0.9, 1.0, 1.06], [1.0])
    assert not is_faster([1.0], [1.0])
    assert not is_faster([1.1], [1.0])


def test_lower_mean_decides_where_no_repeat_differs():
    assert is_faster([0.9, 0.9], [1.0, 1.0])
    assert not is_faster([1.0, 1.0], [1.0, 1.0])
