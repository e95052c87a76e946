# SPDX-License-Identifier: Apache-2.0
"""The acquisition function, against its definition."""

import numpy as np
import pytest
from scipy import integrate, stats

from tvm_droplet_ms.search_strategy.surrogate.gaussian_process import (
    GaussianProcess,
    Kernel,
    by_expected_improvement,
    expected_improvement,
)

KERNEL = Kernel(length=1.0, variance=1.0, noise=1e-4)


@pytest.mark.parametrize(("mean", "deviation"), [(0.0, 1.0), (1.0, 0.5), (-2.0, 0.3), (3.0, 0.1)])
def test_expected_improvement_is_the_expectation(mean: float, deviation: float):
    def integrand(value: float) -> float:
        return max(0.0, 0.5 - value) * stats.norm.pdf(value, mean, deviation)

    expected, _ = integrate.quad(integrand, mean - 9 * deviation, 0.5, limit=200)
    found = expected_improvement(np.array([mean]), np.array([deviation]), 0.5)
    assert found[0] == pytest.approx(max(0.0, expected), abs=1e-7)


def choose(points: np.ndarray, taken: list[bool]) -> list[int]:
    """The chosen points if some are accepted and others rejected."""
    known = np.array([[0.0], [4.0]])
    process = GaussianProcess(KERNEL, known, np.array([0.0, -0.5]), 0.0, 1.0)
    selection = by_expected_improvement(process.predict(points), -0.5)
    chosen = [next(selection)]
    for answer in taken:
        try:
            chosen.append(selection.send(answer))
        except StopIteration:
            break
    return chosen


def test_largest_expected_improvement_comes_first():
    points = np.array([[0.1], [2.0], [4.5], [9.0]])
    process = GaussianProcess(KERNEL, np.array([[0.0], [4.0]]), np.array([0.0, -0.5]), 0.0, 1.0)
    prediction = process.predict(points)
    improvement = expected_improvement(prediction.mean, prediction.deviation, -0.5)
    assert choose(points, []) == [np.argmax(improvement)]


def test_accepted_point_lowers_improvement_of_its_neighbors():
    points = np.array([[4.5], [4.51], [9.0]])
    first, second = choose(points, [True])
    assert {first, second} == {2, 0} or {first, second} == {2, 1}
    both_near = choose(points[:2], [True])
    assert sorted(both_near) == [0, 1]


def test_rejected_point_is_ignored():
    points = np.array([[4.5], [4.6], [4.7], [6.0]])
    first, *others = choose(points, [False, True])
    left = np.delete(points, first, axis=0)
    assert points[others].tolist() == left[choose(left, [True])].tolist()


def test_each_point_is_chosen_once():
    points = np.linspace(0, 9, 7)[:, None]
    assert sorted(choose(points, [True, False] * 10)) == list(range(7))
