# SPDX-License-Identifier: Apache-2.0
"""A small space with made-up times, and a run on it."""

import tempfile
from typing import Any

from conformance.workloads import LLVM, make_context, matmul, tile_all, tile_and_annotate

from tvm.s_tir import meta_schedule as ms
from tvm_droplet_ms.bench.definition import Definition
from tvm_droplet_ms.bench.making.building import target_as_data
from tvm_droplet_ms.bench.making.enumeration import enumerate_space
from tvm_droplet_ms.bench.space import MeasuredModule, MeasuredPoint, Space
from tvm_droplet_ms.bench.table import ReplayTable
from tvm_droplet_ms.design_space.native_vectors import vectors_as_sampled
from tvm_droplet_ms.display.phases import quiet_tvm
from tvm_droplet_ms.measure import fast_start

PASSES = 7


def silent(what: str, done: int, total: int) -> None:
    """No progress."""


def annotated() -> Definition:
    """The workload named ``replaying:annotated``."""
    return Definition("annotated", "a small matrix product", matmul(8, 8, 8), make_generator)


def make_generator() -> ms.space_generator.SpaceGenerator:
    return ms.space_generator.ScheduleFn(
        tile_and_annotate,
        sch_rules=[],
        postprocs=[
            ms.postproc.RewriteParallelVectorizeUnroll(),
            ms.postproc.RewriteReductionBlock(),
        ],
        mutator_probs={
            ms.mutator.MutateTileSize(): 0.7,
            ms.mutator.MutateUnroll(): 0.1,
            ms.mutator.MutateComputeLocation(): 0.1,
            ms.mutator.MutateParallel(max_jobs_per_core=16): 0.1,
        },
    )


def tiled() -> Definition:
    """The workload named ``replaying:tiled``: a larger space of 35 * 35 * 5 points."""
    generator = make_context("replay-trace", space=tile_all).space_generator
    return Definition("tiled", "a small matrix product", matmul(16, 16, 16), lambda: generator)


def tiny() -> Definition:
    """The workload named ``replaying:tiny``: a space of 4 * 4 * 2 points."""
    generator = make_context("replay-trace", space=tile_all).space_generator
    return Definition("tiny", "a matrix product of 2", matmul(2, 2, 2), lambda: generator)


def annotated_space(failures: dict[int, str] | None = None, leave_out: int = 0) -> Space:
    """Every module of ``annotated``; the time of the module at index i is i + 1 microseconds.

    ``failures``: error message by index of each failed module. ``leave_out``: number of modules
    left out at the end.
    """
    fast_start()
    enumeration = enumerate_space(annotated().context(LLVM, "replay-trace"))
    names = list(enumeration.modules)
    names = names[: len(names) - leave_out]
    index = {name: i for i, name in enumerate(names)}
    failures = failures or {}
    modules = []
    for i, name in enumerate(names):
        time = (i + 1) * 1e-6
        secs = () if i in failures else tuple(time * (1 + 0.01 * n) for n in range(-3, 4))
        modules.append(MeasuredModule(name, secs, 0.5, 0.25, failures.get(i)))
    enumeration.points = {
        point: module for point, module in enumeration.points.items() if module in index
    }
    return Space(
        name="annotated",
        description="",
        definition="replaying:annotated",
        target=target_as_data(LLVM),
        machine={},
        versions={},
        date="",
        sketches=enumeration.design_space.layouts(),
        points=tuple(
            MeasuredPoint(sketch, decisions, index[module])
            for (sketch, decisions), module in enumeration.points.items()
        ),
        modules=tuple(modules),
    )


def tune(table: ReplayTable, strategy: Any, trials: int, **options: Any) -> ms.Database:
    """Tune ``annotated``, or another definition, on a table."""
    definition = options.pop("definition", None) or annotated()
    with tempfile.TemporaryDirectory() as work_dir, quiet_tvm(), vectors_as_sampled():
        return ms.tune_tir(
            definition.mod,
            options.pop("target", LLVM),
            work_dir,
            trials,
            num_trials_per_iter=options.pop("num_trials_per_iter", 8),
            space=definition.make_space(),
            strategy=strategy,
            cost_model="random",
            database=ms.database.MemoryDatabase(),
            num_tuning_cores=1,
            seed=options.pop("seed", 1),
            **table.measure(),
            **options,
        )
