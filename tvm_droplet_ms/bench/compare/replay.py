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
"""One run of a strategy on a space, answered from the recorded times."""

import logging
import random
import tempfile
import time
from functools import lru_cache
from pathlib import Path
from types import TracebackType

import numpy as np
import threadpoolctl

from tvm.s_tir import meta_schedule as ms
from tvm.target import Target

from ...measure import fast_start
from ...progress import quiet_tvm
from ...search_strategy.logger import logger
from ..definitions import definition_of
from ..space import Space
from ..table import ReplayTable
from .results import CompareError, RunResult, RunSettings, file_digest
from .strategies import Search, make_search


def replay(space_file: Path, settings: RunSettings, model: Path | None = None) -> RunResult:
    """Run a strategy on a space, in this process.

    Below 100 samples TVM's ``XGBModel`` predicts from NumPy's global generator, which is seeded.

    Parameters
    ----------
    space_file : Path
        The space.
    settings : RunSettings
        Settings of the run.
    model : Path | None
        File of the model that the strategy starts with.

    Returns
    -------
    result : RunResult
        Its trials and times.

    Raises
    ------
    CompareError
        If the file is not the one that the settings were made for, or nothing was measured.
    Exception
        Whatever the strategy, the space or TVM raises.
    """
    if file_digest(space_file) != settings.space_digest:
        raise CompareError(f"{space_file} has changed since the comparison began; start it again")
    fast_start()
    space = load_space(space_file)
    table = ReplayTable(space, noisy=settings.noisy, seed=settings.seed)
    return run_on(table, settings, make_search(settings.strategy, settings.trials, model))


def run_on(table: ReplayTable, settings: RunSettings, search: Search) -> RunResult:
    """Run a search on a space, answered by a table, in this process.

    Seeds Python's and NumPy's global generators.

    Parameters
    ----------
    table : ReplayTable
        Answers for the space; this is its only run.
    settings : RunSettings
        Settings of the run.
    search : Search
        The strategy and the cost model.

    Raises
    ------
    CompareError
        If nothing was measured, or too much.
    """
    definition = definition_of(table.space)
    strategy, cost_model = search
    random.seed(settings.seed)
    np.random.seed(settings.seed)
    start = time.perf_counter()
    with (
        tempfile.TemporaryDirectory() as work_dir,
        threadpoolctl.threadpool_limits(1),
        _DropCount() as drops,
        quiet_tvm(),
        ms.Profiler() as profiler,
    ):
        ms.tune_tir(
            definition.mod,
            Target(dict(table.space.target)),
            work_dir,
            settings.trials,
            num_trials_per_iter=settings.num_trials_per_iter,
            database=ms.database.MemoryDatabase(),
            cost_model=cost_model,
            space=definition.make_space(),
            strategy=strategy,
            num_tuning_cores=1,
            seed=settings.seed,
            **table.measure(),
        )
        wall_secs = time.perf_counter() - start
    if not 1 <= len(table.trials) <= settings.trials:
        raise CompareError(
            f"{settings.strategy} measured {len(table.trials)} candidates on {settings.space}, "
            f"expected 1 to {settings.trials}"
        )
    scopes = {str(name): float(secs.value) for name, secs in profiler.get().items()}
    return RunResult(settings, tuple(table.trials), wall_secs, scopes, dropped=drops.dropped)


@lru_cache(maxsize=32)
def load_space(path: Path) -> Space:
    """Read a space, once in a process."""
    return Space.load(path)


class _DropCount(logging.Handler):
    """Keeps the proposals that a search dropped, from the progress in its log records.

    Attributes
    ----------
    dropped : dict[str, int] | None
        Number of dropped proposals by reason; None for a search that does not report it.
    """

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.dropped: dict[str, int] | None = None

    def emit(self, record: logging.LogRecord) -> None:
        progress = getattr(record, "progress", None)
        dropped = getattr(progress, "dropped", None)
        if dropped is not None:
            self.dropped = dict(dropped)

    def __enter__(self) -> "_DropCount":
        self._level = logger.level
        logger.setLevel(logging.INFO)
        logger.addHandler(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        logger.removeHandler(self)
        logger.setLevel(self._level)
