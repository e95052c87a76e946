# SPDX-License-Identifier: Apache-2.0
"""Legal values found by replay, against brute force with TVM on real design spaces."""

from math import prod

import pytest
from real_spaces import EVERY_SPACE, SOME_SPACES, Space

import tvm
from tvm.s_tir import Schedule, Trace
from tvm.s_tir import meta_schedule as ms
from tvm_droplet_ms.search_strategy.published.decisions import Sketch
from tvm_droplet_ms.search_strategy.published.neighborhood import ChoiceAxis, OrderedAxis


@pytest.fixture(params=EVERY_SPACE, ids=lambda case: f"{case[0]}-{case[1]}")
def every_space(request):
    return Space(*request.param)


@pytest.fixture(params=SOME_SPACES, ids=lambda case: f"{case[0]}-{case[1]}")
def space(request):
    return Space(*request.param)


def loop_extents(mod, trace):
    """The extents of the loops that a trace tiles, counted from the module as it is scheduled."""
    sch = Schedule(mod, debug_mask="none")
    extents = []

    def count(inst, inputs, _attrs, decision):
        if inst.kind.name == "SamplePerfectTile":
            extents.append(int(sch.get(inputs[0]).extent))
        return decision

    trace.apply_to_schedule(sch, remove_postproc=True, decision_provider=count)
    return extents


def legal_locations(mod, trace, position):
    """The realized value for every value from -3 to 60 of a ``SampleComputeLocation``."""
    insts = list(trace.insts)[: position + 1]
    made = {inst: trace.decisions[inst] for inst in insts if inst in trace.decisions}
    realized = set()
    for value in range(-3, 61):
        sch = Schedule(mod, debug_mask="none")
        Trace(insts, {**made, insts[-1]: value}).apply_to_schedule(sch, remove_postproc=True)
        realized.add(int(sch.trace.decisions[sch.trace.insts[-1]]))
    return realized


def test_every_neighbor_replays_with_the_decisions_asked_for(every_space):
    space = every_space
    for _ in range(2):
        candidate = space.sample()
        sketch, point = space.sketch, space.sketch.read(candidate.trace)
        neighborhood = space.neighborhood(candidate)
        tiles = space.decisions("SamplePerfectTile")
        assert any(neighborhood.directions(point))
        for direction in neighborhood.directions(point):
            asked = neighborhood.step(point, direction)
            assert asked != point
            neighbor = space.replayer.replay(sketch.write(candidate.trace, asked))
            assert neighbor is not None, space.replayer.dropped
            assert Sketch.from_trace(neighbor.trace) == sketch
            realized = sketch.read(neighbor.trace)
            for decision in sketch.decisions:
                place = slice(decision.start, decision.start + decision.length)
                if (
                    decision.kind.name == "SampleComputeLocation"
                    and asked[place] != realized[place]
                ):
                    # A tile or an earlier location made it illegal: the one before it is taken.
                    legal = legal_locations(space.context.mod, neighbor.trace, decision.inst)
                    assert asked[decision.start] not in legal
                    assert realized[decision.start] == max(
                        location for location in legal if location < asked[decision.start]
                    )
                    changed = sketch.decisions[direction.axis]
                    assert changed.kind.name != "Annotate"
                    assert changed.inst < decision.inst
                else:
                    assert realized[place] == asked[place]
            extents = loop_extents(space.context.mod, neighbor.trace)
            for decision, extent in zip(tiles, extents, strict=True):
                tile = realized[decision.start : decision.start + decision.length]
                limit = int(space.design.insts[decision.inst].attrs[1])
                assert prod(tile) == extent
                assert limit == -1 or tile[-1] <= limit


def test_products_of_tiles_are_the_extents_of_the_workload():
    """Worked by hand, so that the count above rests on something."""
    expected = {
        ("matmul", 0): [60, 257, 1470],
        ("depthwise", 0): [1, 14, 14, 30, 3, 3],
        ("primes", 0): [257, 1, 1470, 8],
    }
    for case, extents in expected.items():
        space = Space(*case)
        candidate = space.sample()
        point = space.sketch.read(candidate.trace)
        tiles = [
            prod(point[decision.start : decision.start + decision.length])
            for decision in space.decisions("SamplePerfectTile")
        ]
        assert tiles == extents


def test_compute_locations_equal_those_of_brute_force(space):
    for _ in range(3):
        candidate = space.sample()
        neighborhood = space.neighborhood(candidate)
        for decision, axis in zip(space.sketch.decisions, neighborhood.axes, strict=True):
            if decision.kind.name == "SampleComputeLocation":
                legal = legal_locations(space.context.mod, candidate.trace, decision.inst)
                assert isinstance(axis, OrderedAxis)
                assert axis.values == tuple(sorted(legal))
                assert space.sketch.read(candidate.trace)[decision.start] in legal


def test_some_spaces_have_several_compute_locations():
    for case in [("conv2d_nhwc", 0), ("softmax", 4), ("primes", 0)]:
        space = Space(*case)
        decisions = space.decisions("SampleComputeLocation")
        assert any(len(space.axis(space.sample(), decision).values) > 2 for decision in decisions)


def test_parallel_extents_equal_those_of_brute_force(space):
    (decision,) = space.decisions("Annotate")
    candidate, axis = space.sample_with_parallel_plans()
    # The design space annotates the largest extent: descend from a smaller one, too.
    for incumbent in [candidate, space.changed(candidate, decision, axis.values[0])]:
        axis = space.axis(incumbent, decision)
        assert list(axis.values) == sorted(axis.values)
        assert space.sketch.read(incumbent.trace)[decision.start] in axis.values
        found = [space.changed(incumbent, decision, value).module for value in axis.values]
        assert len(found) == len(set(found))
        assert set(found) == {
            space.changed(incumbent, decision, extent).module
            for extent in range(1, space.limit + 1)
        }


def test_parallel_extents_include_every_distinct_plan():
    space = Space("powers", 0)
    (decision,) = space.decisions("Annotate")
    candidate = space.sample()
    modules = [space.changed(candidate, decision, extent).module for extent in range(1, 65)]
    values = space.axis(candidate, decision).values
    found = [modules[value - 1] for value in values]
    assert len(found) == len(set(found))
    assert set(found) == set(modules)
    assert len(found) >= 6


def test_parallel_extents_include_all_that_mutate_parallel_makes(space):
    (decision,) = space.decisions("Annotate")
    mutator = ms.mutator.MutateParallel(max_jobs_per_core=16)
    mutator._initialize_with_tune_context(space.context)
    mutate = tvm.get_global_func("s_tir.meta_schedule.MutatorApply")
    for _ in range(2):
        candidate, axis = space.sample_with_parallel_plans()
        reachable = {space.changed(candidate, decision, value).module for value in axis.values}
        mutated = {
            space.replayer.replay(trace).module
            for trace in (mutate(mutator, candidate.trace, seed) for seed in range(1, 25))
            if trace is not None
        }
        assert mutated
        assert mutated <= reachable


def test_categorical_neighbors_replay(space):
    candidate = space.sample()
    (decision,) = space.decisions("SampleCategorical")
    values = [int(value) for value in space.design.insts[decision.inst].attrs[0]]
    axis = space.axis(candidate, decision)
    if values == [4, 1, 16]:
        assert axis == ChoiceAxis(decision.start, 3)
        expected = {0: {1, 2}, 1: {0, 2}, 2: {0, 1}}
    else:
        assert values == [0, 16, 64, 512]
        expected = {0: {1}, 1: {0, 2}, 2: {1, 3}, 3: {2}}
    for index, others in expected.items():
        changed = space.changed(candidate, decision, index)
        point = space.sketch.read(changed.trace)
        assert point[decision.start] == index
        found = {axis.apply(point, move)[decision.start] for move in axis.moves(point)}
        assert found == others


def test_probing_drops_nothing(space):
    """Probing for compute locations and parallel extents drops nothing of itself."""
    space.neighborhood(space.sample())
    assert not space.replayer.dropped
