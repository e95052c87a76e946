# SPDX-License-Identifier: Apache-2.0
"""A quick part of the corpus of architectures, and how its rows are judged."""

import numpy as np
import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

from ..beside import row_deviation
from .__main__ import table
from .one import measure
from .registry import BUILDERS, build, leaves
from .tuned import measure_tuned

QUICK = (
    "llama_masked",
    "pyramid_bilinear",
    "keyword_spotter",
    "lstm_tagger",
    "tabular_transformer",
)


@pytest.mark.parametrize("name", QUICK)
def test_is_accepted_and_right(name):
    row = measure(name, import_only=False)
    assert row["accepted"] and row["right"], row


def test_a_tuned_one_is_right_and_timed_beside_pytorch():
    row = measure_tuned("mlp_mixer", 30.0)
    assert row["right"] and row["deviation"] < 1e-4, row
    assert row["speed"] == pytest.approx(row["pytorch_ms"] / row["ms"], rel=0.5)


def test_there_are_many():
    assert len(BUILDERS) >= 100


def test_the_seed_decides_the_weights():
    one, same, other = (build("mlp_mixer", seed) for seed in (0, 0, 1))
    first, second, third = (leaves(list(each[0].parameters()))[0] for each in (one, same, other))
    assert np.array_equal(first, second) and not np.array_equal(first, third)


class TestRowDeviation:
    def test_is_relative_to_the_row(self):
        expected = np.array([[1.0, -4.0], [100.0, 200.0]])
        found = np.array([[1.0, -4.4], [100.0, 201.0]])
        assert row_deviation([found], [expected]) == pytest.approx(0.1)

    def test_what_is_not_finite_must_be_the_same(self):
        expected = np.array([np.inf, np.nan, 2.0])
        assert row_deviation([expected.copy()], [expected]) == 0.0
        assert row_deviation([np.array([-np.inf, np.nan, 2.0])], [expected]) == np.inf
        assert row_deviation([np.array([np.inf, 1.0, 2.0])], [expected]) == np.inf

    def test_types_and_counts_must_be_the_same(self):
        one = np.ones(2, "float32")
        assert row_deviation([one.astype("int64")], [one]) == np.inf
        assert row_deviation([one], [one, one]) == np.inf


def test_the_table_counts():
    rows = [
        {"name": "a", "accepted": True, "right": True, "deviation": 1e-6, "secs": {"import": 1.0}},
        {"name": "b", "accepted": False, "right": None, "refusal": "no such operator"},
    ]
    assert table(rows).splitlines()[-1] == "2 architectures: 1 accepted, 1 right"
    assert "no such operator" in table(rows)
