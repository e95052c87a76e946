# SPDX-License-Identifier: Apache-2.0
"""Points as vectors, against hand-worked ones."""

import numpy as np
import pytest

from tvm_droplet_ms.search_strategy.published.decision_kinds import DECISION_KINDS
from tvm_droplet_ms.search_strategy.published.decisions import Decision
from tvm_droplet_ms.search_strategy.surrogate.encoding import Encoding


def decision(kind: str, start: int, length: int) -> Decision:
    return Decision(0, DECISION_KINDS[kind], start, length)


TILE = decision("SamplePerfectTile", 0, 3)
CHOICE = decision("SampleCategorical", 3, 1)
LOCATION = decision("SampleComputeLocation", 4, 1)
EXTENT = decision("Annotate", 5, 1)
CHOICE_FIRST = decision("SampleCategorical", 0, 1)


def one_hot(value: int) -> list[float]:
    return [float(column == value % 32) for column in range(32)]


def test_vector_of_a_point_is_the_hand_worked_one():
    encoding = Encoding([(TILE, CHOICE, LOCATION, EXTENT)])
    (vector,) = encoding.vectors([(0, (2, 8, 4, 3, -1, 32))])
    # The sketch; log2 of 2, 8, 4, and of 8 * 4; the choice; the location; log2 of 32.
    assert vector.tolist() == [1, 1, 3, 2, 5, *one_hot(3), *one_hot(-1), 5]


def test_tile_of_two_positions_has_no_column_for_an_inner_product():
    (vector,) = Encoding([(decision("SamplePerfectTile", 0, 2),)]).vectors([(0, (2, 8))])
    assert vector.tolist() == [1, 1, 3]


def test_two_sketches_share_the_columns_of_the_same_decision():
    second = tuple(decision("SampleComputeLocation", start, 1) for start in range(2))
    encoding = Encoding([(TILE, CHOICE, LOCATION), second])
    one, other = encoding.vectors([(0, (1, 1, 2, 4, 7)), (1, (7, 9))])
    nothing = [0.0] * 32
    assert one.tolist() == [1, 0, 0, 0, 1, 1, *one_hot(4), *one_hot(7), *nothing]
    assert other.tolist() == [0, 1, 0, 0, 0, 0, *nothing, *one_hot(7), *one_hot(9)]


def test_rows_are_in_the_order_of_the_points():
    encoding = Encoding([(CHOICE_FIRST,), (CHOICE_FIRST,)])
    points = [(which % 2, (which,)) for which in range(6)]
    assert encoding.vectors(points)[:, 2:].argmax(axis=1).tolist() == list(range(6))


def test_rows_of_one_sketch_are_those_of_its_points():
    encoding = Encoding([(TILE, CHOICE), (CHOICE_FIRST,)])
    decisions = [(2, 8, 4, 3), (1, 1, 64, 0)]
    np.testing.assert_array_equal(
        encoding.vectors_of(0, np.array(decisions)),
        encoding.vectors([(0, own) for own in decisions]),
    )


@pytest.mark.parametrize("points", [[], [(0, ())]])
def test_vectors_of_no_points_and_of_no_decisions(points: list):
    vectors = Encoding([()]).vectors(points)
    np.testing.assert_array_equal(vectors, np.ones((len(points), 1)))
