# SPDX-License-Identifier: Apache-2.0
"""The published coordinate descent on integer lattices with made-up times."""

import random
from itertools import product

import pytest
from scipy import stats

from tvm_droplet_ms.search_strategy.published.coordinate_descent import (
    LONGEST_STEP,
    coordinate_descent,
    fastest_significant,
)
from tvm_droplet_ms.search_strategy.published.neighborhood import (
    ChoiceAxis,
    Neighborhood,
    OrderedAxis,
    TileAxis,
)

SIDE = 7
LATTICE = Neighborhood(tuple(OrderedAxis(slot, tuple(range(SIDE))) for slot in range(3)))
POINTS = list(product(range(SIDE), repeat=3))


def distance(one, other):
    return sum(abs(a - b) for a, b in zip(one, other, strict=True))


class Descent:
    """A descent that is run to its end."""

    def __init__(self, times, start, batch_size=5, known=()):
        self.times = times
        self.known = {point: times[point] for point in known} | {start: times[start]}
        self.batches = []
        self.incumbents = []
        descent = coordinate_descent(
            start, times[start], self.neighborhood, self.known.get, lambda: batch_size
        )
        try:
            batch = next(descent)
            while True:
                assert 0 < len(batch) <= batch_size
                assert not set(batch) & set(self.known), "a known point is measured again"
                assert len(set(batch)) == len(batch)
                self.batches.append((self.incumbents[-1], set(self.known), batch))
                measured = {point: times[point] for point in batch}
                self.known |= measured
                batch = descent.send(measured)
        except StopIteration as end:
            self.optimum = end.value

    def neighborhood(self, point):
        self.incumbents.append(point)
        return LATTICE


def rugged(seed, repeats=1):
    """Times at random, all the same where they are repeated."""
    generator = random.Random(seed)
    return {point: (generator.uniform(1.0, 2.0),) * repeats for point in POINTS}


def smooth(repeats=1):
    """One optimum, at (4, 1, 5)."""
    return {
        point: (1.0 + distance(point, (4, 1, 5)) + 0.01 * point[0],) * repeats for point in POINTS
    }


@pytest.mark.parametrize("repeats", [1, 3])
@pytest.mark.parametrize("batch_size", [1, 5, 64])
@pytest.mark.parametrize("seed", range(5))
def test_descent_ends_in_a_local_optimum(seed, batch_size, repeats):
    times = rugged(seed, repeats)
    descent = Descent(times, (3, 3, 3), batch_size)
    adjacent = [point for point in POINTS if distance(point, descent.optimum) == 1]
    assert all(point in descent.known for point in adjacent)
    assert times[descent.optimum] <= min(times[point] for point in adjacent)
    assert times[descent.optimum] <= times[3, 3, 3]


@pytest.mark.parametrize("start", [(0, 0, 0), (6, 6, 0), (4, 1, 5)])
def test_descent_of_one_basin_ends_in_its_optimum(start):
    assert Descent(smooth(), start).optimum == (4, 1, 5)


def test_descent_measures_only_new_points():
    """Also where half of the lattice was measured before; the class above asserts it."""
    known = random.Random(0).sample(POINTS, len(POINTS) // 2)
    descent = Descent(rugged(1), (3, 3, 3), known=known)
    measured = [point for _, _, batch in descent.batches for point in batch]
    assert measured
    assert not set(measured) & set(known)


def test_descent_moves_to_a_known_point_without_measuring():
    times = smooth()
    descent = Descent(times, (0, 0, 0), known=POINTS)
    assert descent.batches == []
    assert descent.optimum == (4, 1, 5)


def test_rejected_point_is_neither_measured_nor_an_incumbent():
    """``known`` gives a rejected point no times: only a speculative step leads across it."""
    times = smooth()
    times[4, 1, 4] = ()
    for batch_size, optimum in ((5, (4, 1, 3)), (20, (4, 1, 5))):
        descent = Descent(times, (4, 1, 3), batch_size, known=[(4, 1, 4)])
        assert descent.optimum == optimum
        assert (4, 1, 4) not in descent.incumbents


@pytest.mark.parametrize("batch_size", [1, 4, 6, 20])
def test_speculation_only_fills_the_rest_of_a_batch(batch_size):
    descent = Descent(rugged(2), (3, 3, 3), batch_size)
    speculated = 0
    for incumbent, known, batch in descent.batches:
        near = {point for point in POINTS if distance(point, incumbent) == 1} - known
        adjacent = [point for point in batch if distance(point, incumbent) == 1]
        far = batch[len(adjacent) :]
        assert set(adjacent) <= near
        assert len(adjacent) == min(batch_size, len(near)), "all that has room comes first"
        assert batch[: len(adjacent)] == adjacent
        for point in far:
            offsets = [b - a for a, b in zip(incumbent, point, strict=True) if a != b]
            assert len(offsets) == 1, "along one direction"
            assert 2 <= abs(offsets[0]) <= LONGEST_STEP
        speculated += len(far)
    assert (speculated > 0) == (batch_size > 1)


def noisy(seed, mean=lambda point: 1.0):
    generator = random.Random(seed)
    return {
        point: tuple(mean(point) * generator.uniform(0.8, 1.2) for _ in range(5))
        for point in POINTS
    }


def test_noise_does_not_move_the_incumbent():
    """Equal kernels: some neighbor has a lower mean, none significantly."""
    start = (3, 3, 3)
    adjacent = [point for point in POINTS if distance(point, start) == 1]
    quiet = 0
    for seed in range(20):
        times = noisy(seed)
        p_values = [stats.ttest_ind(times[start], times[p]).pvalue for p in reachable(start)]
        if min(p_values) > 0.05:
            quiet += any(sum(times[point]) < sum(times[start]) for point in adjacent)
            assert Descent(times, start, batch_size=64).optimum == start
    assert quiet >= 3


def reachable(start):
    """The points that one direction leads to."""
    return [
        point
        for point in POINTS
        if sum(a != b for a, b in zip(point, start, strict=True)) == 1
        and distance(point, start) <= LONGEST_STEP
    ]


def test_significant_step_moves_the_incumbent_in_spite_of_noise():
    times = noisy(0, mean=lambda point: 1.0 if point == (3, 3, 3) else 0.3)
    descent = Descent(times, (3, 3, 3), batch_size=6)
    assert descent.optimum != (3, 3, 3)
    assert stats.ttest_ind(times[descent.optimum], times[3, 3, 3]).pvalue < 0.05


def test_steps_of_ordered_axes_are_hand_worked():
    around = Neighborhood((OrderedAxis(0, tuple(range(10))), OrderedAxis(1, tuple(range(10)))))
    assert list(around.steps((5, 5), 1)) == [(6, 5), (4, 5), (5, 6), (5, 4)]
    assert list(around.steps((5, 5), 2)) == [(7, 5), (3, 5), (5, 7), (5, 3)]
    assert list(around.steps((9, 1), 2)) == [(7, 1), (9, 3)]
    assert list(around.steps((9, 1), 9)) == [(0, 1)]


def test_steps_of_a_tile_are_hand_worked():
    """(8, 1): one, two or three factors of two go to the other position; there is no fourth."""
    around = Neighborhood((TileAxis(0, 2, max_innermost_factor=4),))
    assert list(around.steps((8, 1), 1)) == [(4, 2)]
    assert list(around.steps((8, 1), 2)) == [(2, 4)]
    assert list(around.steps((8, 1), 3)) == [], "the innermost factor is limited to 4"
    assert list(Neighborhood((TileAxis(0, 2),)).steps((8, 1), 3)) == [(1, 8)]
    assert list(Neighborhood((TileAxis(0, 2),)).steps((8, 1), 4)) == []


def test_steps_of_a_choice_are_single():
    around = Neighborhood((ChoiceAxis(0, 3),))
    assert list(around.steps((1,), 1)) == [(0,), (2,)]
    assert list(around.steps((1,), 2)) == []


def test_fastest_significant_is_the_lowest_mean_of_the_significant_ones():
    incumbent = (1.0, 1.01, 0.99)
    times = {
        (0,): (0.9, 0.91, 0.89),
        (1,): (0.8, 0.81, 0.79),
        (2,): (0.1, 2.0, 0.1),
        (3,): (),
        (4,): None,
    }
    assert fastest_significant(times, incumbent) == (1,)
    assert fastest_significant({(2,): times[2,], (3,): (), (4,): None}, incumbent) is None
