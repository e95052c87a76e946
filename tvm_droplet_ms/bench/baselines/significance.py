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
"""When is a candidate faster than the incumbent? A decision made on noisy measurements."""

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Verdict:
    """The outcome of a comparison.

    Parameters
    ----------
    faster : bool
        Whether the candidate is faster beyond the noise.
    gain : float
        The part of the incumbent's time that the candidate saves; negative if it is slower.
    evidence : str
        What the decision rests on, for the log.
    """

    faster: bool
    gain: float
    evidence: str


class Noise:
    """How much two measurements of one module differ, learned from measuring incumbents again.

    Parameters
    ----------
    p_value : float
        The probability of taking an equal module for a faster one that a comparison may have.
    """

    def __init__(self, p_value: float) -> None:
        self.p_value = p_value
        self._log_ratios: list[float] = []

    def observe(self, before: float, after: float) -> None:
        """Learn from two times of one module, in seconds."""
        self._log_ratios.append(math.log(after / before))

    @property
    def is_known(self) -> bool:
        """Whether any module was measured twice."""
        return bool(self._log_ratios)

    @property
    def is_silent(self) -> bool:
        """Whether measuring again has always given the very same time (a simulated runner)."""
        return bool(self._log_ratios) and not any(self._log_ratios)

    @property
    def margin(self) -> float:
        """The gain above which a candidate measured once counts as faster.

        Two single measurements of one module differ by a log-ratio of mean zero, so its
        root mean square over the repetitions seen, times Student's quantile for their number, is
        exceeded by chance with probability ``p_value``. Zero where nothing was measured twice.
        """
        # Here, since importing scipy.stats takes as long as importing TVM.
        from scipy import stats

        count = len(self._log_ratios)
        if count == 0:
            return 0.0
        rms = math.sqrt(sum(ratio * ratio for ratio in self._log_ratios) / count)
        return 1.0 - math.exp(-float(stats.t.ppf(1.0 - self.p_value, df=count)) * rms)

    def compare(self, candidate: Sequence[float], incumbent: Sequence[float]) -> Verdict:
        """Judge whether a candidate is faster than the incumbent.

        A one-sided Welch t-test where both were repeated; the learned margin where one was not.
        Repeats without any spread compare as numbers.

        Parameters
        ----------
        candidate, incumbent : Sequence[float]
            Times in seconds, at least one each.

        Returns
        -------
        verdict : Verdict
            The decision.
        """
        candidate_mean = sum(candidate) / len(candidate)
        incumbent_mean = sum(incumbent) / len(incumbent)
        gain = 1.0 - candidate_mean / incumbent_mean
        if len(candidate) > 1 and len(incumbent) > 1:
            if len(set(candidate)) == len(set(incumbent)) == 1:
                return Verdict(gain > 0.0, gain, "repeats without spread")
            from scipy import stats

            test = stats.ttest_ind(candidate, incumbent, equal_var=False, alternative="less")
            p_value = float(test.pvalue)
            return Verdict(p_value <= self.p_value, gain, f"p = {p_value:.2g}")
        margin = self.margin
        return Verdict(gain > margin, gain, f"margin {margin:.1%}")
