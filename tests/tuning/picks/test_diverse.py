# SPDX-License-Identifier: Apache-2.0
"""Schedules that differ, of ranked ones."""

import itertools

from tvm_droplet_ms.tuning.picks.diverse import LEAST_DIFFERENCE, choose_different, difference


def test_near_twins_are_passed_over():
    best, twin = (0, (1, 2, 3, 4, 5, 6, 7, 8)), (0, (1, 2, 3, 4, 5, 6, 7, 9))
    other_space, far = (1, (1,)), (0, (9, 9, 9, 4, 5, 6, 7, 8))
    assert choose_different([best, twin, other_space, far, twin], 3) == [0, 2, 3]


def test_near_twins_fill_up_and_points_of_no_space_differ():
    best, twin = (0, (1, 2, 3, 4, 5)), (0, (1, 2, 3, 4, 6))
    assert choose_different([best, twin, twin], 2) == [0, 1]
    assert choose_different([best, twin, None, None], 3) == [0, 2, 3]
    assert choose_different([best], 3) == [0] and choose_different([], 3) == []


def test_chosen_differ_wherever_enough_do():
    points = [(0, values) for values in itertools.product((1, 2), repeat=5)]
    chosen = [points[place] for place in choose_different(points, 4)]
    assert len(chosen) == 4 and chosen[0] == points[0]
    for one, other in itertools.combinations(chosen, 2):
        assert difference(one, other) >= LEAST_DIFFERENCE
