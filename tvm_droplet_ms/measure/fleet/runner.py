# SPDX-License-Identifier: Apache-2.0
"""A runner for the machines of a tracker, with the rules of ``PromptRunner``."""

import logging
import threading
from collections import deque
from collections.abc import Sequence
from typing import Any

from tvm.ir.utils import derived_object
from tvm.s_tir.meta_schedule.runner import EvaluatorConfig, PyRunner, RunnerFuture, RunnerInput

from ..candidate_timer import Candidate, CandidateTimer
from ..failures import Failure
from ..pool import WorkerPool, require_linux
from ..runner import PromptRunnerFuture
from ..timing import Timing, TimingConfig, prepare_to_time
from .remote import Remote
from .session import time_on_server
from .tracker import FleetError, Servers, Tracker

_logger = logging.getLogger(__name__)


@derived_object
class FleetRunner(PyRunner):
    """A runner that measures on all TVM RPC servers of a tracker's key at once.

    It spends its time on the best candidates, as ``PromptRunner`` does. Each server measures one
    candidate at a time. Each candidate has its own session, for which the server forks a process.
    The servers of a key are assumed to be equally fast: they share the best time of a task.

    A candidate that takes too long or ends its process has failed. If its server ended, the
    candidate is tried once more on another server, and then reported as not measured
    (``failures.py``). If no server could be reached for ``wait_secs``, the rest of the batch is
    reported as not measured, ``fault`` holds the reason, and the next batch raises.

    - ``tracker``: ``HOST:PORT`` of the tracker.
    - ``threads``: the threads of kernels on the servers; None for all threads of each server.
    - ``wait_secs``: how long to wait for a server.
    - ``evaluator_config``: as in ``PromptRunner``.
    - ``timing``: the other settings of ``TimingConfig``, except ``f_cleanup``. The functions are
      called as by TVM's ``RPCRunner``: in a process of this machine, with the session as the first
      argument.
    - ``fault``: the reason that the last batch could not be measured; empty if it was measured.

    Raises ``FleetError`` if ``tracker`` is not an address, the tracker does not answer, or no
    server appears within ``wait_secs``. Raises ``ValueError`` if a number is out of range. Raises
    ``RuntimeError`` if this is not Linux.
    """

    def __init__(
        self,
        tracker: str,
        key: str,
        *,
        threads: int | None = None,
        wait_secs: float = 60.0,
        evaluator_config: EvaluatorConfig | None = None,
        **timing: Any,
    ) -> None:
        require_linux("FleetRunner")
        super().__init__()
        evaluator = EvaluatorConfig._normalized(evaluator_config)
        self.config = TimingConfig(evaluator, f_cleanup=None, **timing)
        self.fault = ""
        self._threads = threads
        self._servers = Servers(Tracker(tracker), key, wait_secs)
        self._servers.await_one()
        self._remote: Remote | None = None
        self._timer = CandidateTimer("FleetRunner", self.config, self._time)
        self.stats = self._timer.stats

    def run(self, runner_inputs: Sequence[RunnerInput]) -> list[RunnerFuture]:
        """Measure a batch; the futures are in the order of the inputs.

        Raises ``FleetError`` if no server could be reached during the last batch, or if this batch
        measured no candidate because no server could be reached.
        """
        if self.fault:
            raise FleetError(self.fault)
        items = [Candidate.from_input(runner_input) for runner_input in runner_inputs]
        sessions = self.remote().workers
        waiting = deque(items)
        threads = [
            threading.Thread(target=self._measure, args=(waiting,), daemon=True)
            for _ in range(min(sessions, len(items)))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self.fault:
            if not any(item.future.result().run_secs for item in items):
                raise FleetError(self.fault)
            _logger.warning("%s", self.fault)
        return [PromptRunnerFuture(item.future) for item in items]

    def remote(self) -> Remote:
        """Return the ``Remote`` of the servers, with at least one worker for each server."""
        count = self._servers.count()
        if self._remote is None or self._remote.workers < count:
            self.close()
            pool = WorkerPool(count, prepare=prepare_to_time, quiet=True)
            self._remote = Remote(self._servers, pool)
        self._servers.begin()
        return self._remote

    def close(self) -> None:
        """End the worker processes of this machine. Another batch starts them again."""
        if self._remote is not None:
            self._remote.close()
            self._remote = None

    def _measure(self, waiting: "deque[Candidate]") -> None:
        while True:
            try:
                item = waiting.popleft()
            except IndexError:
                return
            item.future.set_result(self._timer.measure(item))

    def _time(
        self, limit: float, config: TimingConfig, candidate: Candidate, best: float, *, fresh: bool
    ) -> Timing | Failure:
        """Time a candidate in its own session, which is always a new process."""
        if self.fault or self._remote is None:
            return Failure("closed", self.fault or "closed")
        arguments = (candidate.path, candidate.device_type, candidate.args_info)
        task = (config, *arguments, best, self._threads)
        try:
            outcome: Timing | Failure = self._remote.call(limit, time_on_server, *task)
        except FleetError as error:
            self.fault = str(error)
            return Failure("closed", self.fault)
        return outcome
