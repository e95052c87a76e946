# SPDX-License-Identifier: Apache-2.0
"""Runs that must come out the same in every process."""

from tvm.s_tir import meta_schedule as ms

from .driving import drive
from .objectives import Noisy, rugged, timed
from .strategies import STRATEGIES, make_droplet
from .workloads import Chance, make_context, tile_and_annotate


def _context(strategy: ms.SearchStrategy, seed: int) -> ms.TuneContext:
    return make_context(
        strategy,
        space=tile_and_annotate,
        postprocs=ms.postproc.Postproc.create("llvm"),
        mutators=ms.mutator.Mutator.create("llvm"),
        seed=seed,
    )


def reproduce() -> dict[str, list[list[int]]]:
    """The modules of each batch, by strategy; with noise, and from a database, for ours."""
    runs = {}
    for case in STRATEGIES:
        runs[case.name] = drive(_context(case.make(), 1), timed(rugged), max_trials=60)
        chance = make_context(case.make(), postprocs=[Chance()])
        runs[f"{case.name}, chance"] = drive(chance, timed(rugged))
    noisy = _context(make_droplet(), 1)
    runs["noisy"] = drive(noisy, Noisy(rugged, 0.1), max_trials=60)
    database = ms.database.MemoryDatabase()
    drive(_context(make_droplet(), 1), timed(rugged), database=database)
    runs["resumed"] = drive(_context(make_droplet(), 2), timed(rugged), database=database)
    return {
        name: [[trial.module for trial in batch] for batch in run.batches]
        for name, run in runs.items()
    }
