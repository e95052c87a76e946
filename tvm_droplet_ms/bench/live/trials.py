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
"""The trials of a tuning run. Imports no TVM."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Trial:
    """One measured candidate.

    Parameters
    ----------
    secs : float | None
        The recorded time in seconds, the mean of the repeats, by which TVM's database ranks; None
        for a failure.
    elapsed : float
        The seconds from the start of tuning until the result of the trial's batch arrived.
    error : str | None
        The error of a failure.
    trace : Any
        The JSON of the trace, if the trial was faster than all before it; None otherwise.
    module : str | None
        ``modules.module_key`` of the candidate's module; None in results of before it was kept.
    """

    secs: float | None
    elapsed: float
    error: str | None = None
    trace: Any = None
    module: str | None = None

    @property
    def rank(self) -> float:
        """The recorded time in seconds; infinity for a failure."""
        return math.inf if self.secs is None else self.secs

    def as_json(self) -> dict[str, Any]:
        """The fields that are not None."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    @staticmethod
    def from_json(content: dict[str, Any]) -> "Trial":
        """Read the output of ``as_json``."""
        return Trial(**{"secs": None, **content})


def recorded_secs(run_secs: Sequence[float] | None) -> float | None:
    """The mean of a trial's repeats in seconds; None if there is none, or it is not positive."""
    if not run_secs:
        return None
    mean = statistics.fmean(run_secs)
    return mean if math.isfinite(mean) and mean > 0 else None


def best_trial(trials: Sequence[Trial], checkpoint: int) -> Trial | None:
    """The fastest of the first trials by its record; None if all of them failed."""
    best = min(trials[:checkpoint], key=lambda trial: trial.rank, default=None)
    return best if best is not None and best.secs is not None else None


def first_within(trials: Sequence[Trial], secs: float) -> int | None:
    """The number of the first trial whose record is at most ``secs``, from 1; None if there is
    none."""
    reached = (number for number, trial in enumerate(trials, 1) if trial.rank <= secs)
    return next(reached, None)
