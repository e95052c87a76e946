# SPDX-License-Identifier: Apache-2.0
"""Enumerations are complete, by counting and by comparison with TVM's mutators."""

from collections.abc import Callable

import pytest
from conformance.workloads import LLVM, make_context, matmul, tile_all, tile_and_annotate, tile_two
from tvm_ffi import structural_hash

from tvm.s_tir import Schedule
from tvm.s_tir import meta_schedule as ms
from tvm_droplet_ms.bench.definition import DEFINITIONS, UnknownDefinitionError, find_definition
from tvm_droplet_ms.bench.making.enumeration import enumerate_space
from tvm_droplet_ms.measure import fast_start

fast_start()

MUTATORS = [
    ms.mutator.MutateTileSize(),
    ms.mutator.MutateUnroll(),
    ms.mutator.MutateComputeLocation(),
    ms.mutator.MutateParallel(max_jobs_per_core=16),
]
POSTPROCS = [ms.postproc.RewriteParallelVectorizeUnroll(), ms.postproc.RewriteReductionBlock()]


def context_of(space: Callable[[Schedule], None], size: int) -> ms.TuneContext:
    return make_context(
        "replay-trace",
        matmul(size, size, size),
        space,
        postprocs=POSTPROCS,
        mutators={mutator: 0.25 for mutator in MUTATORS},
    )


def test_points_are_the_product_of_independent_decisions():
    assert len(enumerate_space(context_of(tile_two, 32)).points) == 5 * 5


@pytest.mark.parametrize("space, size", [(tile_and_annotate, 4), (tile_two, 32), (tile_all, 4)])
def test_tvms_mutators_do_not_lead_out(space: Callable[[Schedule], None], size: int):
    context = context_of(space, size)
    enumeration = enumerate_space(context)
    replayer = enumeration.design_space.replayer
    reached = set()
    for place in list(enumeration.points)[:: max(1, len(enumeration.points) // 40)]:
        trace = enumeration.design_space.trace(place)
        for mutator in context.space_generator.mutator_probs:
            for _ in range(5):
                mutated = mutator.apply(trace)
                candidate = None if mutated is None else replayer.replay(mutated)
                if candidate is not None:
                    reached.add(candidate.module)
    assert len(reached) > 10
    assert reached <= set(enumeration.modules)


def test_sampling_stays_in_space():
    context = context_of(tile_and_annotate, 8)
    enumeration = enumerate_space(context)
    modules, replayer = set(enumeration.modules), enumeration.design_space.replayer
    (schedule,) = context.generate_design_space()
    drawn = set()
    for _ in range(200):
        candidate = replayer.replay(type(schedule.trace)(schedule.trace.insts, {}))
        drawn.add(candidate.module)
    assert len(drawn) > 20
    assert drawn <= modules


def test_modules_are_those_of_their_points():
    context = context_of(tile_and_annotate, 4)
    enumeration = enumerate_space(context)
    for module, place in list(enumeration.modules.items())[::7]:
        candidate = enumeration.design_space.realize(place)
        assert structural_hash(candidate.schedule.mod) == module


def test_progress_is_reported():
    told = []
    enumerate_space(context_of(tile_two, 4), lambda done, total: told.append((done, total)))
    assert told == [(done, 9) for done in range(1, 10)]


@pytest.mark.parametrize("name", DEFINITIONS)
def test_definitions_have_a_design_space(name: str):
    definition = find_definition(name)
    assert definition.name == name
    assert definition.context(LLVM, "replay-trace").generate_design_space()


@pytest.mark.parametrize(
    "text", ["dens", "no.such.module:f", "math:no_such", "math:pi", "builtins:dict", "math:sqrt"]
)
def test_unknown_workload_is_named(text: str):
    with pytest.raises(UnknownDefinitionError, match=text.partition(":")[0]):
        find_definition(text)
