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
"""TVM's own tuning of a whole model, ended by the clock."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tvm_ffi import structural_hash

import tvm
from tvm import relax
from tvm.ir import IRModule
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.utils import cpu_count
from tvm.target import Target

from ...compat import fast_tune_contexts
from ...measure import fast_measure
from ...tuning.application import best_records
from ...tuning.compiled_model import CompiledModel
from ...tuning.frontends import import_model
from ...tuning.parts import Parts
from ...tuning.target import cpu_target
from ...tuning.threads import set_worker_threads
from .ending import Deadline, EndingRunner, EndingStrategy, ending_build
from .model_methods import TvmMethod

_UNLIMITED = 2**30
"""The trials where only the clock ends the run."""


def tune_with_tvm(
    load: Callable[[], Any],
    work_dir: str | os.PathLike[str],
    method: TvmMethod,
    deadline: Deadline,
    seed: int,
) -> dict[str, Any]:
    """Tune a model as ``relax.pipeline.static_shape_tuning_pipeline`` does.

    The clock ends the measuring, but for builds that have begun. Applying the schedules and
    compiling come on top of it, to the pipeline's favour.

    Parameters
    ----------
    load : Callable[[], Any]
        Makes the model, as ``tune`` takes it.
    work_dir : str | os.PathLike[str]
        An empty or missing directory.
    method : TvmMethod
        How.
    deadline : Deadline
        When to end.
    seed : int
        Seed of all random choices.

    Returns
    -------
    result : dict[str, Any]
        ``trials``; ``kernels``, each with its name, weight and how its schedule was found;
        ``parts``, seconds of each; ``compiled``, the compiled model.
    """
    set_worker_threads(1)
    target = cpu_target("auto", 1)
    parts = Parts()
    if not method.measures_fast:
        with parts("intrinsics"):
            _import_all_intrinsics()
    with parts("import"):
        mod = import_model(load()).mod
    os.makedirs(work_dir, exist_ok=True)
    database = ms.database.JSONDatabase(work_dir=str(work_dir))
    with target, parts("graph"):
        mod = tvm.transform.Sequential(_preparing(method))(mod)
    strategy = ms.search_strategy.SearchStrategy.create(method.strategy)
    with parts("tuning"), _measuring(method, target, deadline) as (builder, runner):
        ending = EndingRunner(runner, deadline)
        ms.relax_integration.tune_relax(
            mod,
            {},
            target,
            str(work_dir),
            max_trials_global=_UNLIMITED,
            num_trials_per_iter=method.num_trials_per_iter,
            builder=builder,
            runner=ending,
            database=database,
            strategy=EndingStrategy(strategy, deadline),
            seed=seed,
        )
    with target, parts("compile"):
        compiled = CompiledModel(_compile(mod, method, database, target))
    return {
        "trials": ending.trials,
        "kernels": _kernels(mod, database, target),
        "parts": parts.secs,
        "compiled": compiled,
    }


def _import_all_intrinsics() -> None:
    """Import the tensor intrinsics of every backend, as TVM does when it tunes.

    It takes 20 s and more: TVM searches all loaded modules for each of them. So it is done before
    those of the model are loaded.
    """
    import tvm.s_tir.tensor_intrin  # noqa: F401


@contextmanager
def _measuring(method: TvmMethod, target: Target, deadline: Deadline) -> Iterator[tuple[Any, Any]]:
    """The builder and the runner."""
    if not method.measures_fast:
        builder = ms.builder.LocalBuilder(
            max_workers=cpu_count(logical=False),
            timeout_sec=method.build_timeout_secs,
            f_build=ending_build(deadline.moment),
        )
        yield builder, ms.runner.LocalRunner()
        return
    tools = fast_measure(target, process_wide=False)
    try:
        with fast_tune_contexts():
            yield tools["builder"], tools["runner"]
    finally:
        for tool in tools.values():
            tool.close()


def _preparing(method: TvmMethod) -> list[tvm.transform.Pass]:
    transform = relax.transform
    passes = [
        transform.DecomposeOpsForInference(),
        transform.CanonicalizeBindings(),
        relax.pipeline.zero_pipeline(),
    ]
    return [*passes, transform.AttachAttrLayoutFreeBuffers()] if method.packs_weights else passes


def _compile(
    mod: IRModule, method: TvmMethod, database: ms.Database, target: Target
) -> relax.VMExecutable:
    transform = relax.transform
    with database:
        mod = transform.MetaScheduleApplyDatabase()(mod)
    if method.packs_weights:
        # The pipeline also lifts the packing of parameters: here, all weights are constants.
        packing = [transform.SplitLayoutRewritePreproc(), transform.FoldConstant()]
        mod = tvm.transform.Sequential(packing)(mod)
    return tvm.compile(mod, target)


def _kernels(mod: IRModule, database: ms.Database, target: Target) -> list[dict[str, Any]]:
    best = best_records(database, target)
    tasks = ms.relax_integration.extract_tasks(mod, target)
    return [
        {
            "name": str(task.task_name),
            "weight": int(task.weight),
            "schedule": "measured" if structural_hash(task.dispatched[0]) in best else "untouched",
        }
        for task in tasks
    ]
