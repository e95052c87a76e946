# SPDX-License-Identifier: Apache-2.0
"""A trace's decisions as a point and back, on schedules written by hand."""

import random
from dataclasses import dataclass
from math import prod

import pytest
from real_spaces import two_stages

import tvm
from tvm import te
from tvm.s_tir import Schedule, Trace
from tvm.te import create_prim_func
from tvm_droplet_ms.search_strategy.published.decision_kinds import PARALLEL
from tvm_droplet_ms.search_strategy.published.decisions import Sketch, largest_parallel_extent
from tvm_droplet_ms.search_strategy.published.neighborhood import ChoiceAxis, OrderedAxis, TileAxis
from tvm_droplet_ms.search_strategy.search import describe, describe_change

EXTENTS = (257, 1, 1470, 8)
MAX_INNERMOST = 16


MODULE = two_stages(*EXTENTS)


def schedule(seed, tile_length=3, parallel=16, candidates=(4, 1, 16)):
    """Every kind of decision, in the order tile x 4, parallel, categorical, location."""
    sch = Schedule(MODULE, seed=seed, debug_mask="none")
    consumer, producer = sch.get_sblock("C"), sch.get_sblock("B")
    loops = []
    for loop in sch.get_loops(consumer):
        tile = sch.sample_perfect_tile(loop, tile_length, max_innermost_factor=MAX_INNERMOST)
        loops.append(sch.split(loop, tile))
    sch.reorder(*[split[level] for level in range(tile_length) for split in loops])
    sch.annotate(sch.get_sblock("root"), PARALLEL, parallel)
    probs = [1.0 / len(candidates)] * len(candidates)
    sch.annotate(loops[0][0], "unroll", sch.sample_categorical(list(candidates), probs))
    sch.compute_at(producer, sch.sample_compute_location(producer), preserve_unit_loops=True)
    return sch


def replayed(trace, seed=1):
    sch = Schedule(MODULE, seed=seed, debug_mask="none")
    trace.apply_to_schedule(sch, remove_postproc=True)
    return sch.trace


@dataclass(frozen=True)
class GivenValues:
    """Legal values that are given, in place of those that a replay finds."""

    locations: tuple[int, ...]

    def compute_locations(self):
        return self.locations

    def parallel_extents(self):
        return (1, 4, 16, 64)


def neighborhood(sketch, trace):
    """The neighborhood with the present compute location and four parallel extents as legal."""
    point = sketch.read(trace)
    return sketch.neighborhood(trace, lambda decision: GivenValues(decision.value(point)))


def test_sketch_lists_every_decision_of_a_schedule():
    sketch = Sketch.from_trace(schedule(1).trace)
    found = [(d.kind.name, d.start, d.length) for d in sketch.decisions]
    assert found == [
        ("SamplePerfectTile", 0, 3),
        ("SamplePerfectTile", 3, 3),
        ("SamplePerfectTile", 6, 3),
        ("SamplePerfectTile", 9, 3),
        ("Annotate", 12, 1),
        ("SampleCategorical", 13, 1),
        ("SampleComputeLocation", 14, 1),
    ]
    trace = schedule(1).trace
    assert all(
        trace.insts[decision.inst].kind.name == decision.kind.name for decision in sketch.decisions
    )


@pytest.mark.parametrize("seed", range(1, 6))
def test_point_equals_the_decisions_in_the_json_of_the_trace(seed):
    """Against the trace's own JSON."""
    trace = schedule(seed).trace
    insts, decisions = trace.as_json()
    by_position = {int(position): value for position, value in decisions}
    expected = []
    for position, inst in enumerate(insts):
        if position in by_position:
            value = by_position[position]
            expected += [int(v) for v in value] if hasattr(value, "__len__") else [int(value)]
        elif str(inst[0]) == "Annotate" and str(inst[2][0]) == PARALLEL:
            expected.append(int(inst[1][1]))
    point = Sketch.from_trace(trace).read(trace)
    assert list(point) == expected
    for place, extent in enumerate(EXTENTS):
        assert prod(point[3 * place : 3 * place + 3]) == extent


@pytest.mark.parametrize("seed", range(1, 6))
def test_replay_of_a_written_point_has_its_decisions(seed):
    """All neighbors of a point, and theirs, with extents that are prime, 1, 1470 and 8."""
    trace = schedule(seed).trace
    sketch = Sketch.from_trace(trace)
    generator = random.Random(seed)
    point = sketch.read(trace)
    location = sketch.decisions[-1].start
    for _ in range(3):
        space = neighborhood(sketch, trace)
        steps = [space.step(point, direction) for direction in space.directions(point)]
        for step in steps:
            realized = sketch.read(replayed(sketch.write(trace, step)))
            # Whether a location is legal depends on the tiles; the rest is as asked for.
            assert realized[:location] == step[:location]
            for place, extent in enumerate(EXTENTS):
                tile = realized[3 * place : 3 * place + 3]
                assert prod(tile) == extent
                assert tile[-1] <= MAX_INNERMOST
        trace = replayed(sketch.write(trace, generator.choice(steps)))
        point = sketch.read(trace)


def test_write_of_the_present_point_changes_nothing():
    trace = schedule(1).trace
    sketch = Sketch.from_trace(trace)
    written = sketch.write(trace, sketch.read(trace))
    assert str(replayed(written)) == str(trace)


def test_write_does_not_change_its_argument():
    trace = schedule(1).trace
    before = str(trace)
    sketch = Sketch.from_trace(trace)
    point = list(sketch.read(trace))
    point[12], point[13] = 3, 2
    changed = sketch.write(trace, tuple(point))
    assert str(trace) == before
    assert sketch.read(changed) == tuple(point)


def test_sketch_ignores_the_instructions_of_postprocessors():
    sch = schedule(1)
    before = Sketch.from_trace(sch.trace)
    sch.enter_postproc()
    value = sch.sample_categorical([1, 2, 4], [0.5, 0.25, 0.25])
    sch.annotate(sch.get_sblock("root"), "made up", value)
    sch.annotate(sch.get_sblock("C"), PARALLEL, 999)
    assert Sketch.from_trace(sch.trace) == before
    assert largest_parallel_extent([sch.trace]) == 16
    written = before.write(sch.trace, before.read(sch.trace))
    assert "EnterPostproc" not in {inst.kind.name for inst in written.insts}


def test_traces_of_one_space_share_a_sketch():
    assert Sketch.from_trace(schedule(1).trace) == Sketch.from_trace(schedule(2).trace)
    trace = schedule(1).trace
    assert Sketch.from_trace(replayed(trace)) == Sketch.from_trace(trace)
    others = [schedule(1, tile_length=2), schedule(1, candidates=(1, 4, 16))]
    keys = {Sketch.from_trace(other.trace).key for other in others} | {Sketch.from_trace(trace).key}
    assert len(keys) == 3


def test_traces_that_tile_different_loops_have_different_sketches():
    """MetaSchedule has such sketches: they fuse a consumer at different levels."""

    def split(which):
        sch = Schedule(two_stages(8, 8), seed=1, debug_mask="none")
        loop = sch.get_loops(sch.get_sblock("C"))[which]
        sch.split(loop, sch.sample_perfect_tile(loop, 2, 8, decision=[2, 4]))
        return Sketch.from_trace(sch.trace)

    assert split(0) == split(0)
    assert split(0).key != split(1).key
    assert split(0).decisions == split(1).decisions


def test_parallel_extent_is_not_part_of_the_key():
    assert (
        Sketch.from_trace(schedule(1, parallel=4).trace).key
        == Sketch.from_trace(schedule(1).trace).key
    )
    trace = schedule(1, parallel=4).trace
    assert Sketch.from_trace(trace).read(trace)[12] == 4


@pytest.mark.parametrize(
    ("candidates", "neighbors"),
    [
        ((0, 16, 64, 512), {0: [1], 1: [2, 0], 2: [3, 1], 3: [2]}),
        ((64, 16, 4), {0: [1], 1: [2, 0], 2: [1]}),
        ((4, 1, 16), {0: [1, 2], 1: [0, 2], 2: [0, 1]}),
        ((1, 1, 4), {0: [1, 2], 1: [0, 2], 2: [0, 1]}),
        ((7,), {0: []}),
    ],
)
def test_neighbors_of_a_categorical(candidates, neighbors):
    trace = schedule(1, candidates=candidates).trace
    sketch = Sketch.from_trace(trace)
    axis = neighborhood(sketch, trace).axes[5]
    for index, expected in neighbors.items():
        point = (*sketch.read(trace)[:13], index, -1)
        assert sorted(axis.apply(point, move)[13] for move in axis.moves(point)) == sorted(expected)


def test_axes_of_a_schedule():
    trace = schedule(1).trace
    sketch = Sketch.from_trace(trace)
    here = sketch.read(trace)[-1]
    assert neighborhood(sketch, trace).axes == (
        TileAxis(0, 3, MAX_INNERMOST),
        TileAxis(3, 3, MAX_INNERMOST),
        TileAxis(6, 3, MAX_INNERMOST),
        TileAxis(9, 3, MAX_INNERMOST),
        OrderedAxis(12, (1, 4, 16, 64)),
        ChoiceAxis(13, 3),
        OrderedAxis(14, (here,)),
    )


def test_descriptions_of_a_point_and_of_a_change():
    trace = schedule(1).trace
    sketch = Sketch.from_trace(trace)
    point = sketch.read(trace)
    described = describe(sketch, point)
    for decision in sketch.decisions:
        value = point[decision.start : decision.start + decision.length]
        assert f"{decision.kind.name}#{decision.inst} {list(value)}" in described
    assert describe_change(sketch, point, point) == "no decision"
    after = (257, 1, 1, *point[3:12], 4, *point[13:])
    before = (1, 257, 1, *after[3:12], 16, *after[13:])
    tile, parallel = sketch.decisions[0].inst, sketch.decisions[4].inst
    assert describe_change(sketch, before, after) == (
        f"SamplePerfectTile#{tile} [1, 257, 1] -> [257, 1, 1], Annotate#{parallel} [16] -> [4]"
    )


def test_tile_of_a_loop_of_unknown_extent_is_not_a_decision():
    rows = te.var("n")
    a = te.placeholder((rows, 8), name="A")
    b = te.compute((rows, 8), lambda i, j: a[i, j] + 1.0, name="B")
    sch = Schedule(tvm.IRModule({"main": create_prim_func([a, b])}), seed=1)
    outer, inner = sch.get_loops(sch.get_sblock("B"))
    sch.sample_perfect_tile(outer, 2)
    sch.sample_perfect_tile(inner, 2)
    sketch = Sketch.from_trace(sch.trace)
    assert [decision.length for decision in sketch.decisions] == [2]
    assert prod(sketch.read(sch.trace)) == 8


def test_sampled_parallel_extent_is_one_decision():
    sch = Schedule(MODULE, seed=1)
    extent = sch.sample_categorical([4, 8], [0.5, 0.5])
    sch.annotate(sch.get_sblock("root"), PARALLEL, extent)
    (decision,) = Sketch.from_trace(sch.trace).decisions
    assert decision.kind.name == "SampleCategorical"
    assert largest_parallel_extent([sch.trace]) == 1


def test_largest_parallel_extent_of_several_traces():
    assert largest_parallel_extent([]) == 1
    assert largest_parallel_extent([Trace([], {})]) == 1
    traces = [schedule(1, parallel=extent).trace for extent in (4, 64, 16)]
    assert largest_parallel_extent(traces) == 64


def test_sketch_of_trace_without_decisions():
    sch = Schedule(MODULE)
    sketch = Sketch.from_trace(sch.trace)
    assert sketch.decisions == ()
    assert sketch.read(sch.trace) == ()
    assert list(neighborhood(sketch, sch.trace).directions(())) == []
