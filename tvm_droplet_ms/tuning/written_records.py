# SPDX-License-Identifier: Apache-2.0
"""A check that the records of a run reach their file."""

from collections.abc import Sequence
from pathlib import Path

from tvm.ir.utils import derived_object
from tvm.s_tir.meta_schedule.builder import BuilderResult
from tvm.s_tir.meta_schedule.database import Database, JSONDatabase
from tvm.s_tir.meta_schedule.measure_callback import PyMeasureCallback
from tvm.s_tir.meta_schedule.runner import RunnerResult
from tvm.s_tir.meta_schedule.search_strategy import MeasureCandidate
from tvm.s_tir.meta_schedule.task_scheduler import TaskScheduler

from ..session.errors import ModelError
from ..session.records import count_records, lost_records


@derived_object
class WrittenRecords(PyMeasureCallback):  # type: ignore[misc]
    """Counts the records of each batch in their file, after ``AddToDatabase``.

    ``directory``: the directory of ``database``. Nothing is counted for a database in memory.
    """

    def __init__(self, directory: Path, database: Database) -> None:
        super().__init__()
        self._directory = directory
        self._is_file = isinstance(database, JSONDatabase)
        self._expected = count_records(directory)
        self.lost = ""

    def apply(
        self,
        task_scheduler: TaskScheduler,
        task_id: int,
        measure_candidates: Sequence[MeasureCandidate],
        builder_results: Sequence[BuilderResult],
        runner_results: Sequence[RunnerResult],
    ) -> None:
        """Take the results of a batch; see ``MeasureCallback.apply``."""
        self._expected += len(runner_results)
        if self._is_file and not self.lost:
            self.lost = lost_records(self._directory, self._expected)

    def check(self) -> None:
        """Raise ``ModelError`` if records were lost."""
        if self.lost:
            raise ModelError(self.lost)
