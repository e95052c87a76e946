# SPDX-License-Identifier: Apache-2.0
"""The beliefs of a run, on made-up values."""

import numpy as np
import pytest

from tvm_droplet_ms.search_strategy.descents import belief as belief_module
from tvm_droplet_ms.search_strategy.descents.belief import Belief, PriorMean
from tvm_droplet_ms.search_strategy.published.decision_kinds import PARALLEL_EXTENT
from tvm_droplet_ms.search_strategy.published.decisions import Decision
from tvm_droplet_ms.search_strategy.surrogate.encoding import Encoding


class Line:
    """Points 2^0 to 2^40 of one sketch: their vectors lie on a line."""

    def __init__(self):
        encoding = Encoding([[Decision(0, PARALLEL_EXTENT, 0, 1)]])
        self.vectors, self.vectors_of = encoding.vectors, encoding.vectors_of


def at(place):
    return (0, (2**place,))


@pytest.fixture
def valley():
    """A parabola with its bottom at 20, measured at every second place."""
    return {at(place): ((place - 20) / 20) ** 2 - 1.0 for place in range(0, 41, 2)}


def test_a_lucky_time_is_not_the_best(valley, monkeypatch):
    monkeypatch.setattr(belief_module, "LEAST_MEASURED", 100)
    lucky = {**valley, at(34): -1.05}
    assert min(lucky, key=lucky.__getitem__) == at(34)
    belief = Belief(Line(), lucky)
    (best,) = belief.best_of(1)
    assert best in {at(18), at(20), at(22)}
    assert belief.best_value > -1.05


def test_the_best_are_in_order(valley):
    assert Belief(Line(), valley).best_of(3)[0] == at(20)
    assert set(Belief(Line(), valley).best_of(3)) == {at(18), at(20), at(22)}


def test_improvements_are_largest_in_the_valley(valley):
    measured = {point: value for point, value in valley.items() if point != at(20)}
    places = np.arange(0, 41)
    improvements = Belief(Line(), measured).improvements(0, 2 ** places[:, None])
    assert abs(int(places[np.argmax(improvements)]) - 20) <= 1


def test_a_prior_is_drafted_where_it_was_not_asked(valley):
    """The prior knows a second, deeper valley in which nothing was measured."""
    measured = {at(place): valley[at(place)] for place in range(10, 22, 2)}
    prior = {point: min(value, -2.0 * (point[1][0] > 2**34)) for point, value in valley.items()}
    places = np.arange(0, 41)
    belief = Belief(Line(), measured, prior)
    assert places[np.argmax(belief.improvements(0, 2 ** places[:, None]))] > 34
    assert int(np.argmin(belief.predict([at(place) for place in places]).mean)) > 34


def test_measurements_correct_a_prior():
    """The prior takes every point for a good one; only half of the measured ones are."""
    generator = np.random.default_rng(0)
    vectors = generator.uniform(0, 4, (60, 3))
    points = [at(place) for place in range(60)]
    truth = np.where(vectors[:, 0] < 2.0, -1.0, 0.0)
    prior = dict.fromkeys(points, -1.0)
    mean = PriorMean(prior, vectors, points[:40], vectors[:40], truth[:40])
    unseen = mean.of(points[40:], vectors[40:])
    assert np.abs(unseen - truth[40:]).mean() < 0.25
    assert np.abs(mean.of_measured() - truth[:40]).mean() < 0.25
    few = PriorMean(prior, vectors, points[:8], vectors[:8], truth[:8])
    np.testing.assert_allclose(few.of(points, vectors), -1.0, atol=1e-6)


def test_points_that_do_not_replay_are_left_out(valley):
    """A rejected point has the value 0, and a prior may expect much of it."""
    belief = Belief(Line(), valley)
    best = belief.best_of(1)
    second = belief.best_of(1, without=set(best))
    assert len(second) == 1 and second != best
    assert belief.best_of(2)[1:] == second
