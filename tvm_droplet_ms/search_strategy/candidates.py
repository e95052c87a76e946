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
"""Candidates for measurement: replay of traces, postprocessors, structural hash."""

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import starmap
from typing import Protocol

from tvm_ffi import structural_hash

from tvm.ir import IRModule
from tvm.s_tir import Schedule, Trace
from tvm.s_tir.meta_schedule.arg_info import ArgInfo
from tvm.s_tir.meta_schedule.profiler import Profiler
from tvm.s_tir.meta_schedule.search_strategy import MeasureCandidate

from .soundness import repeated_sum

REPEATED_SUM = "a sum that its postprocessors repeat"
"""Why a candidate was dropped that computes something else than its workload."""


class Check(Protocol):
    """A postprocessor, or what may be applied like one."""

    def apply(self, sch: Schedule, /) -> bool:
        """Change a schedule; returns False to drop it."""


@dataclass(frozen=True)
class Candidate:
    """A scheduled module, identified by its structural hash and not by the decisions asked for.

    Parameters
    ----------
    schedule : Schedule
        The schedule after its postprocessors.
    module : int
        The structural hash of its module.
    """

    schedule: Schedule
    module: int

    @staticmethod
    def from_schedule(schedule: Schedule) -> "Candidate":
        """The candidate of a schedule that has passed its postprocessors."""
        return Candidate(schedule, structural_hash(schedule.mod))

    @property
    def trace(self) -> Trace:
        """The trace, with its realised decisions."""
        return self.schedule.trace

    def measure_candidate(self) -> MeasureCandidate:
        """The input of a Builder and a Runner."""
        args_info = ArgInfo.from_entry_func(self.schedule.mod, remove_preproc=True)
        return MeasureCandidate(self.schedule, args_info)


class Replayer:
    """Replays traces on one workload, as TVM's ``ThreadedTraceApply`` does (``utils.h``).

    Parameters
    ----------
    mod : IRModule
        The workload.
    postprocs : Sequence[Check]
        The postprocessors of the task, and further ones.
    generator : random.Random
        Seeds the schedules, for postprocessors that sample.
    num_threads : int
        The threads that replay several traces.

    Attributes
    ----------
    dropped : Counter[str]
        The number of dropped traces, by the postprocessor or the error that dropped them.
    """

    def __init__(
        self,
        mod: IRModule,
        postprocs: Sequence[Check],
        generator: random.Random,
        num_threads: int = 1,
    ) -> None:
        self.mod = mod
        self.dropped = Counter[str]()
        self._postprocs = list(postprocs)
        self._generator = generator
        self._num_threads = num_threads

    def new_schedule(self, error_render_level: str = "none") -> Schedule:
        """An unscheduled copy of the workload, with a seed of its own."""
        seed = self._generator.randint(1, 2**31 - 2)
        return Schedule(
            self.mod, seed=seed, debug_mask="none", error_render_level=error_render_level
        )

    def replay(self, trace: Trace) -> Candidate | None:
        """Replay a trace without its postprocessors' instructions, and run the task's own.

        Returns
        -------
        candidate : Candidate | None
            None if the trace or a postprocessor fails, or the postprocessors have made another
            function of it (``repeated_sum``); the reason is counted in ``dropped``.
        """
        (candidate,) = self.replay_all([trace])
        return candidate

    def replay_all(self, traces: Iterable[Trace]) -> list[Candidate | None]:
        """Replay traces on all threads; the results are those of ``replay``, one for each trace."""
        with Profiler.timeit("Droplet/Replay"):
            runs = [(trace, self.new_schedule()) for trace in traces]
            threads = min(self._num_threads, len(runs))
            if threads <= 1:
                results = list(starmap(self._replay, runs))
            else:
                with ThreadPoolExecutor(threads) as pool:
                    results = list(pool.map(self._replay, *zip(*runs, strict=True)))
        self.dropped.update(result for result in results if isinstance(result, str))
        return [None if isinstance(result, str) else result for result in results]

    def _replay(self, trace: Trace, schedule: Schedule) -> Candidate | str:
        """The candidate of a trace, or what dropped it."""
        culprit = "replay"
        # TVM raises errors of many types from a schedule primitive or a postprocessor, and
        # ThreadedTraceApply takes each of them for "not in the space".
        try:
            trace.apply_to_schedule(schedule, remove_postproc=True)
            schedule.enter_postproc()
            for postproc in self._postprocs:
                culprit = str(postproc)
                if not postproc.apply(schedule):
                    return culprit
        except Exception as error:
            return f"{culprit}: {type(error).__name__}"
        if repeated_sum(schedule.mod) is not None:
            return REPEATED_SUM
        return Candidate.from_schedule(schedule)

    def restore(self, trace: Trace) -> Candidate:
        """Replay a recorded trace as it stands, its postprocessors' instructions included.

        Raises
        ------
        Exception
            Whatever TVM raises where the trace does not replay on this workload.
        """
        schedule = self.new_schedule(error_render_level="fast")
        trace.apply_to_schedule(schedule, remove_postproc=False)
        return Candidate.from_schedule(schedule)
