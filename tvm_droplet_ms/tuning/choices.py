# SPDX-License-Identifier: Apache-2.0
"""Choices in the whole model: the algorithms of convolutions, and near-best schedules."""

from collections.abc import Sequence
from math import inf
from statistics import median

import numpy as np

from tvm.ir import IRModule
from tvm.s_tir.meta_schedule import ExtractedTask
from tvm.s_tir.meta_schedule.database import Database, TuningRecord
from tvm.target import Target

from ..measure.turns import time_in_alternation
from ..model.kernels.winograd.winograd import (
    WinogradConvolutions,
    fastest_tiles,
    implementation,
    promising_tile,
)
from ..session.stop import StopRequest
from .compile.compiled_model import CompiledModel
from .kernel_table import secs_by_workload
from .kernel_tuner import KernelTuner
from .model_kernels import ModelKernels
from .schedules import Ranked, by_workload, fastest_variant, near_best, with_ranks

SHARE = 0.4
"""The share of the tuning time for comparing direct and Winograd convolutions."""

TRIALS = 24
"""Maximum trials per convolution, on average, before each layer's implementation is chosen."""

ROUNDS = 15
"""Number of runs of each variant."""


def with_winograd(
    tuner: KernelTuner,
    graph: IRModule,
    direct: ModelKernels,
    stop: StopRequest,
    trials: int | None,
) -> tuple[ModelKernels, str]:
    """Measure both implementations of each layer, and use the faster ones.

    Of the two Winograd tile sizes, only the promising one is tried. If ``trials`` is 0, the times
    in the database are compared. Returns the kernels, which are ``direct`` if Winograd's algorithm
    is not faster for any layer, and a note on the choice, which is empty if there is no choice.
    """
    other = tuner.kernels(WinogradConvolutions(promising_tile)(graph))
    if trials != 0:
        tuner.pick(other, stop)
    # A task whose design space raises would end TVM's loop for all tasks.
    found = [
        (task, implementation(task))
        for kernels in (direct, other)
        for task in kernels.tasks
        if task.task_name not in kernels.picks.unscheduled
    ]
    layers = {what.layer for _, what in found if what is not None and what.tile is not None}
    if not layers:
        return direct, ""
    rivals: dict[object, ExtractedTask] = {}
    for task, what in found:
        if what is not None and what.layer in layers:
            rivals.setdefault((what, str(task.task_name)), task)
    comparing = stop.earlier((1 - SHARE) * stop.left)
    most = TRIALS * len(rivals)
    limit = most if trials is None else min(most, trials)
    for pick in other.picks:
        direct.picks.keep(pick, tuner.context.target)
    if limit:
        tuner.tune(list(rivals.values()), direct, comparing, limit)
    timed = []
    for task in rivals.values():
        what = implementation(task)
        if what is not None:
            timed.append((what, float(task.weight), tuner.best_secs(task)))
    tiles = fastest_tiles(timed)
    if not tiles:
        was_timed = any(secs < inf for *_, secs in timed)
        return direct, (
            "no Winograd convolution was faster"
            if was_timed
            else "no convolution was measured, so that all are computed directly"
        )
    chosen = tuner.kernels(WinogradConvolutions(tiles.get)(graph))
    tuner.pick(chosen, stop)
    return chosen, f"{len(tiles)} of {len(layers)} layers are computed by Winograd's algorithm"


def faster_inside(
    kernels: ModelKernels,
    last: CompiledModel,
    database: Database,
    target: Target,
    inputs: Sequence[np.ndarray],
) -> tuple[CompiledModel, dict[int, TuningRecord]] | None:
    """Compile the model with the near-best schedules that are fastest inside it.

    Schedules that were already chosen stay. If the new model is faster than ``last`` in alternating
    runs, returns it and the schedules of the compared kernels, by the structural hash of the
    workload. Returns None otherwise.
    """
    schedules = kernels.schedules()
    near = near_best(database, target)
    open_ones = {key: records for key, records in near.items() if key not in kernels.chosen}
    ranked = _after_those_of(schedules, open_ones)
    variants = [last]
    for rank in range(1, max((len(records) for records in ranked.values()), default=0)):
        ranks = dict.fromkeys(ranked, rank)
        variants.append(kernels.compile(with_ranks(schedules, ranked, ranks)))
    ranks = fastest_variant(_secs_inside(kernels, variants, inputs))
    if not any(ranks.values()):
        return None
    taken = with_ranks(schedules, ranked, ranks)
    chosen = kernels.compile(taken)
    timers = {"last": last.timer(inputs), "chosen": chosen.timer(inputs)}
    secs = time_in_alternation(timers, ROUNDS)
    if median(secs["chosen"]) >= median(secs["last"]):
        return None
    return chosen, {key: record for key, record in by_workload(taken).items() if key in ranked}


def _after_those_of(schedules: Database, ranked: Ranked) -> Ranked:
    """Put each kernel's current schedule first; omit kernels whose schedule is not a choice."""
    ordered: Ranked = {}
    for key, current in by_workload(schedules).items():
        text = str(current.trace)
        records = ranked.get(key, [])
        others = [record for record in records if str(record.trace) != text]
        if len(others) < len(records):
            ordered[key] = [current, *others]
    return ordered


def _secs_inside(
    kernels: ModelKernels, variants: Sequence[CompiledModel], inputs: Sequence[np.ndarray]
) -> list[dict[int, list[float]]]:
    """Return the seconds of each workload in each variant, measured in alternation."""
    if len(variants) == 1:
        return [{}]
    rounds = [[variant.kernel_secs(inputs, runs=1) for variant in variants] for _ in range(ROUNDS)]
    secs = []
    for runs in zip(*rounds, strict=True):
        names = set(runs[0]).intersection(*runs[1:])
        merged = {name: [run[name][0] for run in runs] for name in names}
        secs.append(secs_by_workload(kernels.lowered, merged))
    return secs
