# Licensed to the Apache Software Foundation (ASF) under one
# or more contributor license agreements.  See the NOTICE file
# distributed with this work for additional information
# regarding copyright ownership.  The ASF licenses this file
# to you under the Apache License, Version 2.0 (the
# "License"); you may not use this file except in compliance
# with the License.  You may obtain a copy of the License at
#
#   http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing,
# software distributed under the License is distributed on an
# "AS IS" BASIS, WITHOUT WARRANTIES OR CONDITIONS OF ANY
# KIND, either express or implied.  See the License for the
# specific language governing permissions and limitations
# under the License.
"""How far two runs of a model differ."""

from collections.abc import Sequence

import numpy as np


def largest_deviation(outputs: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> float:
    """The largest difference of two sets of outputs, relative to the largest expected value.

    Parameters
    ----------
    outputs, expected : Sequence[np.ndarray]
        Outputs of the same shapes.

    Returns
    -------
    deviation : float
        The largest over the outputs of ``max |output - expected| / max |expected|``. Infinity where
        the shapes or the numbers of outputs differ, or only one of the two is finite somewhere.
    """
    if len(outputs) != len(expected):
        return np.inf
    return max((_deviation(*pair) for pair in zip(outputs, expected, strict=True)), default=0.0)


def _deviation(output: np.ndarray, expected: np.ndarray) -> float:
    if output.shape != expected.shape:
        return np.inf
    if not expected.size:
        return 0.0
    if not np.array_equal(np.isfinite(output), np.isfinite(expected)):
        return np.inf
    is_finite = np.isfinite(expected)
    wide = expected[is_finite].astype(np.float64)
    difference = np.abs(output[is_finite].astype(np.float64) - wide).max(initial=0.0)
    scale = np.abs(wide).max(initial=0.0)
    if difference == 0.0:
        return 0.0
    return float(difference / scale) if scale > 0.0 else np.inf
