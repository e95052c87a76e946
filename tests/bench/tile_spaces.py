# SPDX-License-Identifier: Apache-2.0
"""Spaces of two tiles with made-up times."""

import itertools
import math
from functools import partial

from conformance.workloads import LLVM, matmul, tile_two
from tvm_ffi import structural_hash

from tvm.s_tir import Schedule
from tvm.s_tir import meta_schedule as ms
from tvm_droplet_ms.bench.definition import Definition
from tvm_droplet_ms.bench.making.building import target_as_data
from tvm_droplet_ms.bench.space import DecisionLayout, MeasuredModule, MeasuredPoint, Space
from tvm_droplet_ms.measure import fast_start

ROWS = {"tiny": 4, "short": 8, "middle": 16, "long": 64}
FACTORS = (1, 2, 4, 8, 16)
OPTIMUM = 100e-6


def make_generator() -> ms.space_generator.SpaceGenerator:
    return ms.space_generator.ScheduleFn(
        tile_two, sch_rules=[], postprocs=[], mutator_probs={ms.mutator.MutateTileSize(): 1.0}
    )


def definition_of(name: str) -> Definition:
    return Definition(name, "a matrix product", matmul(ROWS[name], 32, 32), make_generator)


# The workloads named ``tile_spaces:tiny``, and so on.
tiny, short, middle, long = (partial(definition_of, name) for name in ROWS)


def made_up_secs(inner_j: int, inner_k: int) -> float:
    """The optimum at 4 and 8 and for one row, and 40% more for each power of two away from it."""
    away = abs(math.log2(inner_j) - 2) + abs(math.log2(inner_k) - 3)
    return round(OPTIMUM * 1.4**away, 9)


def tiled(mod: object, inner_j: int, inner_k: int) -> Schedule:
    sch = Schedule(mod, debug_mask="none")
    _, *loops = sch.get_loops(sch.get_sblock("C"))
    for loop, inner in zip(loops, (inner_j, inner_k), strict=True):
        sch.split(loop, sch.sample_perfect_tile(loop, 2, 16, decision=[32 // inner, inner]))
    return sch


def make_space(name: str, failing: tuple[int, int] | None = None) -> Space:
    """All points of two tiles; the point of two inner factors may fail to build."""
    fast_start()
    mod = definition_of(name).context(LLVM, "replay-trace").mod
    points, modules = [], []
    for inner_j, inner_k in itertools.product(FACTORS, FACTORS):
        points.append(
            MeasuredPoint(0, (32 // inner_j, inner_j, 32 // inner_k, inner_k), len(modules))
        )
        secs = ROWS[name] * made_up_secs(inner_j, inner_k)
        passes, failure = (0.9 * secs, secs, 1.2 * secs), None
        if (inner_j, inner_k) == failing:
            passes, failure = (), "compile"
        digest = structural_hash(tiled(mod, inner_j, inner_k).mod)
        modules.append(MeasuredModule(digest, passes, 0.5, 0.25, failure))
    tiles = tuple(DecisionLayout("SamplePerfectTile", start, 2, 16) for start in (0, 2))
    return Space(
        name=name,
        description="",
        definition=f"tile_spaces:{name}",
        target=target_as_data(LLVM),
        machine={},
        versions={},
        date="",
        sketches=(tiles,),
        points=tuple(points),
        modules=tuple(modules),
    )
