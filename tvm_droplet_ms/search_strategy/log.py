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
"""What a search says: the logger, and the progress that its records carry."""

import logging
from dataclasses import dataclass
from typing import Literal

from tvm.s_tir import Trace

logger = logging.getLogger("tvm_droplet_ms")
"""TVM's loggers of a task write to files only, and cannot be reached from Python."""

Phase = Literal["explore", "descend"]
Event = Literal["phase", "batch", "step", "converged", "finished"]


@dataclass(frozen=True)
class SearchProgress:
    """Where a task's search stands; the attribute ``progress`` of its log records.

    Parameters
    ----------
    task : str
        The name of the task.
    event : Event
        ``"phase"`` (one begins), ``"batch"`` (one was measured), ``"step"`` (the best moved
        in a descent), ``"converged"`` or ``"finished"``.
    phase : Phase
        The phase of the search.
    trials : int
        The trials that this run has measured for the task.
    best_secs : float
        The best mean time so far in seconds, infinite before there is one.
    best_trace : Trace | None
        The trace of the best, None before there is one.
    """

    task: str
    event: Event
    phase: Phase
    trials: int
    best_secs: float
    best_trace: Trace | None
