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
"""What the search of a task tells its user, through the logger."""

import math
from collections import Counter
from collections.abc import Mapping

from .history import History, mean
from .log import Event, Phase, SearchProgress, logger


class Journal:
    """Logs where a task's search stands, and why what failed did.

    Parameters
    ----------
    task : str
        The task's name.
    history : History
        What was measured.
    dropped : Mapping[str, int]
        How many proposals were dropped, by what dropped them; read at each entry.
    """

    def __init__(self, task: str, history: History, dropped: Mapping[str, int]) -> None:
        self._task = task
        self._history = history
        self._dropped = dropped
        self._phase: Phase = "explore"
        self._trials = 0
        self._failures: list[str] = []

    def begin(self, phase: Phase, message: str) -> None:
        """A phase begins."""
        self._phase = phase
        self.log("phase", message)

    def measured(self, count: int, failures: list[str]) -> None:
        """A batch was measured, some of it with failures; each says why."""
        self._trials += count
        self._failures += failures
        self.log("batch", f"{count} measured, {len(failures)} failed")
        self.warn_if_all_failed()

    def warn_if_all_failed(self) -> None:
        """Show the first error where nothing was measured with success."""
        if self._failures and self._history.best() is None:
            logger.warning(
                "%s: all %d candidates failed; the first error: %s",
                self._task,
                len(self._failures),
                self._failures[0],
            )

    def warn_of_empty_space(self, drawn: int) -> None:
        """Nothing could be proposed; a number of random traces were drawn to tell why."""
        logger.warning(
            "%s: the search found no candidate to measure; of %d drawn at random, %s",
            self._task,
            drawn,
            self.drops(),
        )

    def drops(self) -> str:
        """How many proposals were dropped, and by what."""
        dropped = Counter(self._dropped).most_common()
        return f"proposals dropped: {', '.join(f'{n} by {who}' for who, n in dropped) or 'none'}"

    def log(self, event: Event, message: str) -> None:
        """Log a message, with where the search stands."""
        best = self._history.best()
        best_secs = math.inf if best is None else mean(best.secs)
        progress = SearchProgress(
            task=self._task,
            event=event,
            phase=self._phase,
            trials=self._trials,
            best_secs=best_secs,
            best_trace=None if best is None else best.trace,
        )
        logger.info(
            "%s: %s, trial %d, best %s: %s",
            self._task,
            self._phase,
            self._trials,
            "none yet" if best is None else f"{best_secs * 1e6:.4g} us",
            message,
            extra={"progress": progress},
        )
