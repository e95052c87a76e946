# SPDX-License-Identifier: Apache-2.0
"""Tuning of all kernels of a module, for the tuning pass and the pipeline."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from tvm.ir import IRModule
from tvm.runtime import Tensor
from tvm.s_tir import meta_schedule as ms
from tvm.target import Target

from ..compat import fast_tune_contexts
from ..search_strategy import DropletStrategy
from ..search_strategy.explorers import EvolutionaryExplorer, SeededExplorer
from ..session.database import writing_database
from ..tuning.written_records import WrittenRecords


def check_trials(name: str, value: int, minimum: int) -> None:
    """Raise ``ValueError`` if a number of trials is less than a minimum."""
    if value < minimum:
        raise ValueError(f"{name}={value!r} is out of range: expected an int of at least {minimum}")


def make_tuner(
    target: Target,
    *,
    params: Mapping[str, Tensor],
    work_dir: str,
    max_trials_per_task: int | None,
    num_trials_per_iter: int,
    op_names: Sequence[str] | None,
    builder: ms.Builder.BuilderType | None,
    runner: ms.Runner.RunnerType | None,
    cost_model: ms.CostModel.CostModelType | None,
    strategy_options: Mapping[str, Any],
    **tuning: Any,
) -> Callable[..., ms.Database]:
    """Check the arguments, and make a function that tunes a module with them.

    The function writes to the database of ``work_dir``, or to a given database, and returns it. It
    raises the errors of ``writing_database``, and ``ValueError`` if records did not reach the files
    of ``work_dir``.
    """
    if max_trials_per_task is not None:
        check_trials("max_trials_per_task", max_trials_per_task, 1)
    check_trials("num_trials_per_iter", num_trials_per_iter, 1)
    if cost_model is None:
        cost_model = "xgb" if _asks_cost_model(strategy_options.get("explorer")) else "none"
    tune = partial(
        ms.relax_integration.tune_relax,
        target=target,
        params=dict(params),
        work_dir=work_dir,
        max_trials_per_task=max_trials_per_task,
        num_trials_per_iter=num_trials_per_iter,
        op_names=None if op_names is None else list(op_names),
        strategy=DropletStrategy(**strategy_options),
        cost_model=cost_model,
        **tuning,
    )

    def tune_into(mod: IRModule, database: ms.Database, *callbacks: ms.MeasureCallback) -> None:
        with fast_tune_contexts(), _measuring(target, builder, runner) as measure:
            measure_callbacks = [*ms.MeasureCallback.create("default"), *callbacks]
            tune(mod, database=database, measure_callbacks=measure_callbacks, **measure)

    def tune_module(mod: IRModule, database: ms.Database | None = None) -> ms.Database:
        if database is not None:
            tune_into(mod, database)
            return database
        with writing_database(work_dir) as own:
            written = WrittenRecords(Path(work_dir), own)
            tune_into(mod, own, written)
        if written.lost:
            # Only Python's built-in exception types get through a TVM pass.
            raise ValueError(written.lost)
        return own

    return tune_module


def _asks_cost_model(explorer: object) -> bool:
    """True if an explorer, given by name or as an object, asks the cost model that TVM trains."""
    if isinstance(explorer, SeededExplorer):
        return _asks_cost_model(explorer.explorer)
    return explorer == "evolutionary" or isinstance(explorer, EvolutionaryExplorer)


@contextmanager
def _measuring(
    target: Target, builder: ms.Builder.BuilderType | None, runner: ms.Runner.RunnerType | None
) -> Iterator[dict[str, Any]]:
    """Yield the builder and the runner to tune with. Closes only the objects that it makes."""
    given = {"builder": builder, "runner": runner}
    made = _make_missing(target, given)
    try:
        yield {**given, **made}
    finally:
        for part in made.values():
            part.close()


def _make_missing(target: Target, given: Mapping[str, Any]) -> dict[str, Any]:
    """Make the builder, the runner, or both, if they are not given."""
    missing = [name for name, value in given.items() if value is None]
    if not missing:
        return {}
    # Imported here because measure/ needs Linux, which tuning with TVM's own builder does not.
    from ..measure import PromptRunner, WarmBuilder, fast_measure

    if len(missing) == 2:
        return fast_measure(target, process_wide=False)
    return {"builder": WarmBuilder()} if missing == ["builder"] else {"runner": PromptRunner()}
