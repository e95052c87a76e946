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
"""The significance test of the published Droplet search. Imports no TVM."""

from collections.abc import Sequence

import numpy as np
from scipy import special

P_VALUE = 0.05
"""The level of the published search (``droplet_tuner.py`` of AutoTVM, TVM 0.13 to 0.19)."""


def is_faster(
    candidate: Sequence[float], incumbent: Sequence[float], p_value: float = P_VALUE
) -> bool:
    """Whether a candidate is faster than the incumbent beyond the noise of its repeats.

    Its mean must be lower, and Student's t-test must reject that both are equal. Where either was
    timed only once, or no repeat differs, the lower mean decides alone.

    Parameters
    ----------
    candidate, incumbent : Sequence[float]
        Times in seconds, at least one each.
    p_value : float
        The probability of a difference this large between equal kernels, at most.
    """
    if np.mean(candidate) >= np.mean(incumbent):
        return False
    if min(len(candidate), len(incumbent)) < 2:
        return True
    probability = students_t_test(candidate, incumbent)
    return bool(np.isnan(probability) or probability <= p_value)


def students_t_test(one: Sequence[float], other: Sequence[float]) -> float:
    """The two-sided p-value of Student's t-test for two samples of equal variance.

    Parameters
    ----------
    one, other : Sequence[float]
        At least two values each.

    Returns
    -------
    p_value : float
        From 0 to 1; NaN if neither sample has any spread and the means are equal.
    """
    first, second = np.asarray(one, dtype=float), np.asarray(other, dtype=float)
    freedom = len(first) + len(second) - 2
    squares = ((first - first.mean()) ** 2).sum() + ((second - second.mean()) ** 2).sum()
    error = np.sqrt(squares / freedom * (1.0 / len(first) + 1.0 / len(second)))
    with np.errstate(divide="ignore", invalid="ignore"):
        statistic = (first.mean() - second.mean()) / error
    return float(2.0 * special.stdtr(freedom, -abs(statistic)))
