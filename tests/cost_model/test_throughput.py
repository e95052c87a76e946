# SPDX-License-Identifier: Apache-2.0
"""Relative throughput of programs, against hand-computed values."""

import math

import numpy as np
import pytest

from tvm.tirx import FloatImm
from tvm_droplet_ms.cost_model.throughput import median_secs, relative_throughput, throughput_line


@pytest.mark.parametrize(
    "run_secs, expected",
    [
        ([3.0, 1.0, 2.0], 2.0),
        ([1.0, 2.0], 1.5),
        ([FloatImm("float64", 0.25)], 0.25),
        (None, math.inf),
        ([], math.inf),
        ([1e10], math.inf),
        ([1.0, math.nan], math.inf),
        ([1.0, math.inf], math.inf),
        ([1.0, 0.0], math.inf),
        ([-1.0], math.inf),
    ],
)
def test_median_secs(run_secs, expected):
    assert median_secs(run_secs) == expected


def test_relative_throughput():
    secs = np.array([2.0, 1.0, np.inf, np.nan, 4.0, 0.0, -1.0])
    assert relative_throughput(secs).tolist() == [0.5, 1.0, 0.0, 0.0, 0.25, 0.0, 0.0]
    assert relative_throughput(np.array([np.inf, np.nan])).tolist() == [0.0, 0.0]


def test_throughput_line():
    scores = np.array([0.0, 2.0, 4.0])
    assert throughput_line(scores, 0.25 + 0.125 * scores) == pytest.approx((0.25, 0.125))
    # A falling line gets slope 0; equal scores have no slope.
    assert throughput_line(scores, np.array([1.0, 0.5, 0.0]))[1] == 0.0
    assert throughput_line(np.ones(3), np.array([1.0, 0.5, 0.0])) == (0.0, 1.0)
