# SPDX-License-Identifier: Apache-2.0
"""Choose among near-best schedules by their times inside the model."""

from collections.abc import Sequence
from statistics import median

import numpy as np

from tvm.s_tir.meta_schedule.database import Database, TuningRecord
from tvm.target import Target

from ..compile.compiled_model import CompiledModel, time_in_alternation
from ..kernel_table import secs_by_workload
from ..model_kernels import ModelKernels
from ..schedules import Ranked, by_workload, fastest_variant, near_best, with_ranks

ROUNDS = 15
"""Number of runs of each variant."""


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
