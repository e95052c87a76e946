# SPDX-License-Identifier: Apache-2.0
"""Arithmetic on decisions: against NumPy and enumeration."""

import itertools

import numpy as np
import pytest

from tvm_droplet_ms.cost_model.draft.extents import CHUNK, Interval, Intervals, Tape

POINTS = np.random.default_rng(0).integers(1, 9, (2 * CHUNK + 5, 3))


def test_expressions_of_many_points():
    tape = Tape()
    a, b, c = map(tape.entry, range(3))
    five = tape.constant(5)
    table = tape.table(2, [0.0, 16.0, 64.0, 512.0, 1.0, 2.0, 3.0, 4.0, 9.0])
    wanted = {
        tape.product([a, b, c]): POINTS.prod(axis=1),
        tape.sum([a, b, five]): POINTS[:, 0] + POINTS[:, 1] + 5,
        tape.subtract(a, b): POINTS[:, 0] - POINTS[:, 1],
        tape.least(a, five): np.minimum(POINTS[:, 0], 5),
        tape.greatest(a, b): POINTS[:, :2].max(axis=1),
        tape.floor_divide(tape.product([a, b]), 3): POINTS[:, 0] * POINTS[:, 1] // 3,
        tape.equal(a, b): POINTS[:, 0] == POINTS[:, 1],
        table: np.array([0, 16, 64, 512, 1, 2, 3, 4, 9])[POINTS[:, 2]],
        five: np.full(len(POINTS), 5),
    }
    values = tape.evaluate(POINTS, list(wanted))
    np.testing.assert_array_equal(values, list(wanted.values()))
    np.testing.assert_array_equal(tape.evaluate(POINTS[7:8], list(wanted))[:, 0], values[:, 7])


def test_equal_expressions_are_one_and_constants_are_folded():
    tape = Tape()
    a, b = tape.entry(0), tape.entry(1)
    assert tape.multiply(a, b) == tape.multiply(b, a)
    assert tape.add(tape.multiply(a, b), a) == tape.add(a, tape.multiply(b, a))
    assert tape.value(tape.product([tape.constant(6), tape.constant(7)])) == 42
    one, zero = tape.constant(1), tape.constant(0)
    assert tape.multiply(a, one) == tape.add(zero, a) == tape.floor_divide(a, 1) == a
    assert tape.multiply(a, zero) == zero
    assert tape.value(a) is None


INDICES = {
    "sum": (lambda i, x, y: i.add(x, y), lambda x, y: x + y),
    "difference": (lambda i, x, y: i.add(x, i.scale(y, -1)), lambda x, y: x - y),
    "stride": (lambda i, x, y: i.add(i.scale(x, 2), y), lambda x, y: 2 * x + y),
    "quotient": (lambda i, x, y: i.floor_divide(i.add(x, y), 3), lambda x, y: (x + y) // 3),
    "least": (lambda i, x, y: i.least(x, y), min),
    "greatest": (lambda i, x, y: i.greatest(x, y), max),
    "remainder": (lambda i, x, y: i.floor_modulo(x, 9), lambda x, y: x % 9),
}


@pytest.mark.parametrize("name", INDICES)
@pytest.mark.parametrize("counts", [(1, 1), (3, 4), (8, 2)])
def test_intervals_are_those_of_all_values(name, counts):
    tape = Tape()
    intervals = Intervals(tape)
    ours, theirs = INDICES[name]
    x, y = (intervals.counted(tape.entry(column)) for column in range(2))
    found: Interval = ours(intervals, x, y)
    low, high = tape.evaluate(np.array([counts]), [found.low, found.high])[:, 0]
    values = [theirs(*pair) for pair in itertools.product(*map(range, counts))]
    assert (low, high) == (min(values), max(values))
    span = tape.evaluate(np.array([counts]), [intervals.span(found)])[0, 0]
    assert span == max(values) - min(values)


@pytest.mark.parametrize(("count", "expected"), [(3, (0, 2)), (4, (0, 3)), (7, (0, 3))])
def test_remainder_is_the_index_until_it_wraps(count, expected):
    tape = Tape()
    intervals = Intervals(tape)
    found = intervals.floor_modulo(intervals.counted(tape.entry(0)), 4)
    ends = tape.evaluate(np.array([[count]]), [found.low, found.high])[:, 0]
    assert tuple(ends) == expected
