# SPDX-License-Identifier: Apache-2.0
"""Outputs are judged element by element, at the scale of their row."""

import itertools
import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from tvm_droplet_ms.measure.deviation import (
    NOISE,
    ROW,
    SPREAD,
    deviation,
    element_scales,
    largest_deviation,
    noise,
)


def scale_of_row(row, fewest):
    """The definition, number by number."""
    sizes = sorted(abs(x) for x in row if math.isfinite(x) and x != 0.0)
    if len(sizes) < max(fewest, 1):
        return math.inf
    return min(sizes[-1], SPREAD * sizes[(len(sizes) - 1) // 4])


def scale_of_element(array, index):
    rows = []
    for axis, extent in enumerate(array.shape):
        if extent >= ROW:
            line = [array[(*index[:axis], i, *index[axis + 1 :])] for i in range(extent)]
            rows.append(scale_of_row(line, ROW))
    least = min(rows, default=math.inf)
    if math.isinf(least):
        least = scale_of_row(array.ravel().tolist(), 1)
    own = abs(array[index])
    return max(0.0 if math.isinf(least) else least, own if math.isfinite(own) else 0.0)


def indices(array):
    return itertools.product(*map(range, array.shape))


SHAPES = st.sampled_from([(), (1,), (3,), (8,), (13,), (2, 9), (9, 2), (8, 10), (2, 8, 3), (0, 4)])
VALUES = st.one_of(
    st.sampled_from([0.0, -0.0, np.nan, np.inf, -np.inf, -1e9, 1.0, 1e-9]),
    st.floats(-100, 100, width=32),
)


def some_array(shape):
    return arrays.arrays(np.float64, shape, elements=VALUES)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(SHAPES.flatmap(some_array))
def test_scales_are_those_of_the_definition(array):
    scales = element_scales(array)
    assert scales.shape == array.shape
    for index in indices(array):
        assert scales[index] == scale_of_element(array, index)


def differs(a, b, scale):
    """The definition of a deviation, for one element."""
    if a == b or (math.isnan(a) and math.isnan(b)):
        return 0.0
    if not (math.isfinite(a) and math.isfinite(b)):
        return math.inf
    difference = abs(a - b)
    if difference < np.finfo(np.float32).tiny:
        return 0.0
    return difference / scale if scale else math.inf


@settings(max_examples=300, deadline=None, derandomize=True)
@given(SHAPES.flatmap(lambda shape: st.tuples(some_array(shape), some_array(shape))))
def test_the_deviation_is_that_of_the_definition(pair):
    found, expected = pair
    each = [
        differs(found[index], expected[index], scale_of_element(expected, index))
        for index in indices(expected)
    ]
    assert deviation(found, expected) == max(each, default=0.0)
    assert largest_deviation([expected, found], [expected, expected]) == max(each, default=0.0)


def test_a_fill_value_hides_nothing():
    assert deviation(np.array([-1e9, 9, 9, 9]), np.array([-1e9, 1, 2, 3])) == 0.8
    logits = np.random.default_rng(0).standard_normal((12, 12))
    masked = np.where(np.tri(12, dtype=bool), logits, np.finfo(np.float32).min)
    wrong = np.where(np.tri(12, dtype=bool), logits + 0.1, masked)
    assert deviation(wrong, masked) > 0.01


def test_a_column_of_small_numbers_is_judged_at_its_own_scale():
    generator = np.random.default_rng(0)
    boxes = np.concatenate(
        [640 * generator.random((100, 4)), generator.random((100, 1))], axis=1
    ).astype("float32")
    wrong = boxes.copy()
    wrong[7, 4] += 0.01
    assert deviation(wrong, boxes) > 5e-3


def test_rounding_of_a_matmul_is_none():
    generator = np.random.default_rng(0)
    a, b = generator.standard_normal((40, 4096)), generator.standard_normal((4096, 300))
    b[:, ::50] *= 100.0
    right = (a.astype("f4") @ b.astype("f4")).astype("f8")
    assert deviation(right, a @ b) < 5e-5


@pytest.mark.parametrize(
    ("found", "expected", "differs"),
    [
        ([1.0, 9.0], [2.0, -10.0], 1.9),
        ([0.0, 0.0], [0.0, 0.0], 0.0),
        ([0.0, 1.0], [0.0, 0.0], np.inf),
        ([0.0, 1e-40], [0.0, 0.0], 0.0),
        ([np.nan, 1.0], [np.nan, 1.0], 0.0),
        ([np.nan, 1.0], [2.0, 1.0], np.inf),
        ([np.inf, 1.0], [np.inf, 1.0], 0.0),
        ([np.inf, 1.0], [-np.inf, 1.0], np.inf),
        ([np.inf, 1.0], [np.nan, 1.0], np.inf),
        ([2.0, 1.0], [np.inf, 1.0], np.inf),
        ([1.0, 2.0], [[1.0, 2.0]], np.inf),
        ([], [], 0.0),
        (3.0, 2.0, 0.5),
        ([True, False], [True, True], np.inf),
    ],
)
def test_deviations_by_hand(found, expected, differs):
    assert deviation(np.array(found), np.array(expected)) == differs


def test_another_number_of_outputs_deviates_without_bound():
    assert largest_deviation([np.ones(2)], []) == np.inf


def test_bfloat16_is_compared():
    ones = np.ones(9, ml_dtypes.bfloat16)
    assert deviation(ones * 2, ones) == 1.0


class TestNoise:
    def test_is_that_of_the_row(self):
        expected = np.ones((2, 8))
        moved = expected.copy()
        moved[1, 3] += 1e-3
        found = noise(expected, [expected, moved])
        np.testing.assert_allclose(found[1], NOISE * 1e-3)
        assert not found[0].any()

    def test_of_one_large_number_does_not_excuse_the_others(self):
        expected = np.ones(16)
        expected[0] = -1e9
        moved = expected.copy()
        moved[0] += 64.0
        found = noise(expected, [moved])
        assert found[0] >= 64.0 and (found[1:] < 1e-4).all()

    def test_what_is_finite_in_some_runs_only_is_not_compared(self):
        expected = np.ones(8)
        moved = expected.copy()
        moved[2] = np.nan
        found = noise(expected, [moved])
        assert np.isinf(found[2]) and not found[3]
        assert deviation(moved, expected, np.maximum(element_scales(expected), found)) == 0.0

    def test_of_zeros_is_what_they_move(self):
        assert noise(np.zeros(3), [np.array([0.0, 1e-3, 0.0])]).tolist() == [0.0, 16e-3, 0.0]


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint32", "bool"])
def test_integers_are_compared_exactly(dtype):
    expected = np.arange(20000, 50000).astype(dtype)
    wrong = ~expected if dtype == "bool" else expected + np.ones((), dtype)
    assert deviation(expected, expected) == 0.0
    assert deviation(wrong, expected) == float("inf")


def test_large_integers_are_not_rounded():
    expected = np.array([2**60, 2**60 + 1])
    assert deviation(expected + np.array([0, 1]), expected) == float("inf")


def test_another_type_is_no_match():
    expected = np.arange(4, dtype="int32")
    for other in ("int64", "float32", "bool"):
        assert deviation(expected.astype(other), expected) == float("inf")
    assert deviation(expected.astype("float64"), expected.astype("float32")) == float("inf")


def test_identifiers_that_the_reference_itself_moves_are_excused():
    expected, moved = np.array([3, 7, 9]), np.array([3, 8, 9])
    allowed = noise(expected, [moved])
    assert np.isinf(allowed[1])
    assert deviation(moved, expected, np.maximum(allowed, element_scales(expected))) == 0.0


def test_quantized_numbers_have_a_scale():
    expected = np.arange(100, 200, dtype="uint8")
    assert deviation(expected + np.uint8(1), expected) < 0.011
