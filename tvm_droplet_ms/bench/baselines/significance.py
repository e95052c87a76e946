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
"""Significance test: is a candidate faster than the incumbent beyond the noise?"""

from collections.abc import Sequence
from statistics import fmean


def is_faster(
    candidate: Sequence[float], incumbent: Sequence[float], p_value: float = 0.05
) -> bool:
    """Test whether a candidate is faster than the incumbent.

    A one-sided Welch t-test. The means are compared where there is no spread to test with: one of
    the two was measured once, or no repeat differs.

    Parameters
    ----------
    candidate, incumbent : Sequence[float]
        Times in seconds, at least one each.
    p_value : float
        Probability of taking an equal candidate for a faster one.
    """
    if len(candidate) == 1 or len(incumbent) == 1 or not _vary(candidate, incumbent):
        return fmean(candidate) < fmean(incumbent)
    # Here, since importing scipy.stats takes as long as importing TVM.
    from scipy import stats

    test = stats.ttest_ind(candidate, incumbent, equal_var=False, alternative="less")
    return bool(test.pvalue <= p_value)


def _vary(candidate: Sequence[float], incumbent: Sequence[float]) -> bool:
    return len(set(candidate)) > 1 or len(set(incumbent)) > 1
