# SPDX-License-Identifier: Apache-2.0
"""Candidates of a task that compute their workload, and its measurements without machine faults."""

import random
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import starmap
from typing import Any

from tvm.ir import IRModule
from tvm.s_tir import Schedule, Trace
from tvm.s_tir.meta_schedule.database import TuningRecord
from tvm.s_tir.meta_schedule.profiler import Profiler

from ..design_space.screening.miscompiled import long_chain, torn_tuple
from ..design_space.screening.soundness import repeated_sum, unwritten
from .published import candidates as published
from .published.candidates import Candidate

REPEATED_SUM = "a sum that its postprocessors repeat"
TORN_TUPLE = "a reduction of a tuple that TVM vectorizes wrongly"
UNWRITTEN = "a block that leaves out what others read"
LONG_CHAIN = "a chain of maxima that LLVM does not compile in time"
"""Reasons for dropping a candidate: it computes something else, or does not compile."""


def unsound(mod: IRModule) -> str | None:
    """The reason for dropping a scheduled workload; None if no reason is known."""
    if long_chain(mod) is not None:
        return LONG_CHAIN
    if repeated_sum(mod) is not None:
        return REPEATED_SUM
    if torn_tuple(mod) is not None:
        return TORN_TUPLE
    return None if unwritten(mod) is None else UNWRITTEN


class ScreenedReplayer(published.Replayer):
    """Replays traces on one workload, and drops candidates that compute something else.

    ``postprocs``: the task's postprocessors, and checks that are applied like them.
    ``num_threads``: the number of threads for replaying several traces.
    """

    def __init__(
        self,
        mod: IRModule,
        postprocs: Sequence[Any],
        generator: random.Random,
        num_threads: int = 1,
    ) -> None:
        super().__init__(mod, postprocs, generator)
        self._num_threads = num_threads

    def replay_all(self, traces: Iterable[Trace]) -> list[Candidate | None]:
        """Replay traces on all threads; return one result of ``replay`` for each trace."""
        with Profiler.timeit("Droplet/Replay"):
            runs = [(trace, self.new_schedule()) for trace in traces]
            threads = min(self._num_threads, len(runs))
            if threads <= 1:
                results = list(starmap(self._replay, runs))
            else:
                with ThreadPoolExecutor(threads) as pool:
                    results = list(pool.map(self._replay, *zip(*runs, strict=True)))
        return [self._counted(result) for result in results]

    def _replay(self, trace: Trace, schedule: Schedule) -> Candidate | str:
        """The candidate of a trace, or the reason for dropping it."""
        result = super()._replay(trace, schedule)
        reason = unsound(result.schedule.mod) if isinstance(result, Candidate) else None
        return result if reason is None else reason


_MACHINERY_FAILURE = "machinery failure: "
"""The prefix of the error message of ``WarmBuilder`` and ``PromptRunner`` for a candidate that the
machine could not measure. This folder shares no code with them."""


def is_unmeasured(run_secs: Sequence[object] | None, error_msg: str | None = None) -> bool:
    """True if the machine failed rather than the candidate, which may be tried again.

    A failed candidate has no ``run_secs`` in its result, and one time of 1e10 in a database. An
    unmeasured candidate has an empty list in both. If TVM made the result because the builder
    failed, the error message marks it as unmeasured.
    """
    if error_msg is not None and _MACHINERY_FAILURE in error_msg:
        return True
    return run_secs is not None and len(run_secs) == 0


class TaskHistory(published.History):
    """The measurements of one task, and the database view that evolution sees.

    Records of unmeasured candidates are skipped, like records of another target.
    ``view``: the records that evolution may start from. ``ignored``: the number of skipped database
    records, by reason.
    """

    def _reason_to_skip(self, record: TuningRecord) -> str | None:
        """The reason for skipping a record of this workload; None to keep it."""
        reason = super()._reason_to_skip(record)
        if reason is None and is_unmeasured(record.run_secs):
            return "could not be measured"
        return reason

    def measurements(self) -> Iterator[tuple[int, Trace, tuple[float, ...]]]:
        """Each measured module, its trace, and its times in seconds; no times if it failed."""
        for module, secs in self._times.items():
            yield module, self._traces[module], secs
