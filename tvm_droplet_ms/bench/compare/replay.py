# SPDX-License-Identifier: Apache-2.0
"""One run of a strategy on a space. The recorded times replace measurements."""

import random
import tempfile
from functools import lru_cache
from pathlib import Path

import numpy as np
import threadpoolctl

from tvm.s_tir import meta_schedule as ms
from tvm.target import Target

from ...design_space.native_vectors import vectors_as_sampled
from ...display.phases import quiet_tvm
from ...measure import fast_start
from ..definition import definition_of
from ..space import Space
from ..table import ReplayTable
from .results import CompareError, RunResult, RunSettings, file_digest
from .strategies import Learned, find_experiment


def replay(space_file: Path, settings: RunSettings, learned: Learned = {}) -> RunResult:
    """Run a strategy on a space, in this process.

    Seeds Python's and NumPy's global generators: below 100 samples, TVM's ``XGBModel`` draws its
    predictions from NumPy's. Raises ``CompareError`` if the file has changed since the settings
    were made, or if the run measured no candidate or more than ``settings.trials``. Exceptions of
    the strategy, the space and TVM pass through.
    """
    if file_digest(space_file) != settings.space_digest:
        raise CompareError(f"{space_file} has changed since the comparison began; start it again")
    fast_start()
    table = ReplayTable(load_space(space_file), noisy=settings.noisy, seed=settings.seed)
    definition = definition_of(table.space)
    strategy, cost_model = find_experiment(settings.strategy).make(learned, settings.trials)
    random.seed(settings.seed)
    np.random.seed(settings.seed)
    with (
        tempfile.TemporaryDirectory() as work_dir,
        threadpoolctl.threadpool_limits(1),
        quiet_tvm(),
        vectors_as_sampled(),
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
    if not 1 <= len(table.trials) <= settings.trials:
        raise CompareError(
            f"{settings.strategy} measured {len(table.trials)} candidates on {settings.space}, "
            f"expected 1 to {settings.trials}"
        )
    return RunResult(settings, tuple(table.trials))


@lru_cache(maxsize=32)
def load_space(path: Path) -> Space:
    """Read a space, once per process."""
    return Space.load(path)
