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
"""Design spaces as vectors of indices, against enumeration and TVM's own replay."""

import random
from itertools import product
from math import prod

import pytest
from conformance.workloads import (
    Reject,
    make_context,
    matmul,
    sample_nothing,
    tile_all,
    tile_and_annotate,
    tile_two,
)

from tvm import te
from tvm.ir import IRModule
from tvm.s_tir import meta_schedule as ms
from tvm_droplet_ms.bench.baselines.decision_space import DecisionSpace
from tvm_droplet_ms.bench.enumeration import enumerate_space
from tvm_droplet_ms.search_strategy.candidates import Replayer
from tvm_droplet_ms.search_strategy.decisions import Sketch

POSTPROCS = ms.postproc.Postproc.create("llvm")


def two_stages(*extents):
    """``B = A * 2; C = B + 1``."""
    a = te.placeholder(extents, name="A")
    b = te.compute(extents, lambda *i: a(*i) * 2.0, name="B")
    c = te.compute(extents, lambda *i: b(*i) + 1.0, name="C")
    return IRModule({"main": te.create_prim_func([a, c])})


def compute_producer(sch):
    """Tile the consumer and compute the producer at one of its loops."""
    consumer, producer = sch.get_sblock("C"), sch.get_sblock("B")
    for loop in sch.get_loops(consumer):
        sch.split(loop, sch.sample_perfect_tile(loop, n=2, max_innermost_factor=16))
    root = sch.get_sblock("root")
    sch.annotate(root, "meta_schedule.parallel", 64)
    unroll = sch.sample_categorical([0, 16], [0.5, 0.5])
    sch.annotate(root, "meta_schedule.unroll_explicit", unroll)
    sch.compute_at(producer, sch.sample_compute_location(producer), preserve_unit_loops=True)


def make(space, mod=None, postprocs=()):
    """The decision space of a schedule function, and its context."""
    replay = ms.search_strategy.ReplayTrace()
    context = make_context(replay, mod or matmul(), space, postprocs=postprocs)
    traces = [schedule.trace for schedule in context.generate_design_space()]
    replayer = Replayer(context.mod, list(postprocs), random.Random(1))
    return DecisionSpace(traces, replayer), context


def points_of(space):
    return [
        (sketch, *indices)
        for sketch, sizes in enumerate(space.sizes)
        for indices in product(*map(range, sizes))
    ]


def test_number_of_values():
    """2^5 has 56 factorisations in 4 factors and 6 in 2, of which 1 exceeds the limit of 16."""
    assert make(tile_all)[0].sizes == ((56, 56, 5),)
    assert make(tile_two)[0].sizes == ((5, 5),)
    assert make(sample_nothing)[0].sizes == ((),)


def test_kinds_and_values():
    (decisions,) = make(compute_producer, two_stages(32, 32), POSTPROCS)[0].decisions
    kinds = [decision.decision.kind.name for decision in decisions]
    tile, location = "SamplePerfectTile", "SampleComputeLocation"
    assert kinds == [tile, tile, "Annotate", "SampleCategorical", location]
    # Sorted from the innermost outwards.
    assert decisions[0].values == ((32, 1), (16, 2), (8, 4), (4, 8), (2, 16))
    assert decisions[2].values == ((1,), (2,), (4,), (8,), (16,), (32,), (64,))
    assert decisions[3].values == ((0,), (1,))
    # Inlined, at the root, and in each of the consumer's four loops.
    assert decisions[4].values == ((-2,), (-1,), (0,), (1,), (2,), (3,))


def test_parallel_extents_end_with_largest():
    def space(sch):
        sch.annotate(sch.get_sblock("root"), "meta_schedule.parallel", 48)

    ((decision,),) = make(space)[0].decisions
    assert decision.values == ((1,), (2,), (4,), (8,), (16,), (32,), (48,))


def test_only_a_categorical_can_be_unordered():
    def space(sch):
        # A choice that nothing uses is no decision.
        sch.sample_categorical([2, 8, 4], [1 / 3] * 3)
        for name, candidates in (("first", [4, 1, 16]), ("second", [1, 4, 16])):
            choice = sch.sample_categorical(candidates, [1 / 3] * 3)
            sch.annotate(sch.get_sblock("C"), name, choice)

    assert make(space)[0].ordered == ((False, True),)


def test_point_replays_with_its_decisions():
    space, _ = make(tile_all)
    for _ in range(20):
        point = space.sample(random.Random(str(_)))
        candidate = space.realise(point)
        assert Sketch.from_trace(candidate.trace).read(candidate.trace) == space.decode(point)
        assert space.encode(0, space.decode(point)) == point


def test_unknown_values_have_no_point():
    space, _ = make(tile_two)
    assert space.encode(0, (2, 16, 4, 8)) is not None
    assert space.encode(0, (1, 32, 4, 8)) is None


@pytest.mark.parametrize(
    "workload",
    [(tile_and_annotate, matmul(4, 4, 4)), (compute_producer, two_stages(4, 6))],
    ids=["matmul", "two stages"],
)
def test_reaches_every_module_of_the_space(workload):
    """And no others: those that enumeration finds by another way."""
    space, context = make(*workload, POSTPROCS)
    reached = [space.realise(point) for point in points_of(space)]
    assert {candidate.module for candidate in reached} == set(enumerate_space(context).modules)


def test_sample_is_point_and_any_point_is_sampled():
    space, _ = make(tile_two)
    generator = random.Random(1)
    assert {space.sample(generator) for _ in range(400)} == set(points_of(space))


def test_parallel_extents_are_sampled_too():
    space, _ = make(tile_and_annotate, postprocs=POSTPROCS)
    generator = random.Random(1)
    samples = [space.sample(generator) for _ in range(60)]
    assert {point[3] for point in samples} == set(range(7))
    assert all(space.realise(point) is not None for point in samples)


def test_neighbours_of_tile():
    """One prime factor from one place to another; the innermost one at most 16."""
    space, _ = make(tile_two)
    point = space.encode(0, (2, 16, 4, 8))
    neighbours = [space.decode(neighbour) for neighbour in space.neighbours(point)]
    assert sorted(neighbours) == [(2, 16, 2, 16), (2, 16, 8, 4), (4, 8, 4, 8)]


def test_neighbour_is_another_module():
    """Steps over compute locations and parallel extents that mean the same."""
    space, _ = make(compute_producer, two_stages(8, 12), POSTPROCS)
    generator = random.Random(1)
    changed = set()
    for _ in range(10):
        point = space.sample(generator)
        neighbours = space.neighbours(point)
        assert len(neighbours) == len(set(neighbours))
        for neighbour in neighbours:
            places = [place for place in range(6) if point[place] != neighbour[place]]
            assert len(places) == 1
            changed.update(places)
            if places[0] in (3, 5):
                assert space.realise(neighbour).module != space.realise(point).module
                between = range(*sorted((point[places[0]], neighbour[places[0]])))[1:]
                for value in between:
                    same = (*point[: places[0]], value, *point[places[0] + 1 :])
                    assert space.realise(same).module == space.realise(point).module
    assert changed == {1, 2, 3, 4, 5}


def test_rejected_point_has_no_candidate():
    space, _ = make(tile_two, postprocs=[Reject()])
    assert {space.realise(point) for point in points_of(space)} == {None}
    assert space.sample(random.Random(1)) in points_of(space)


def test_two_sketches():
    def two(sch):
        other = sch.copy()
        tile_all(sch)
        tile_two(other)
        return [sch, other]

    space, _ = make(two)
    assert space.sizes == ((56, 56, 5), (5, 5))
    generator = random.Random(1)
    samples = [space.sample(generator) for _ in range(20)]
    assert {point[0] for point in samples} == {0, 1}
    for point in samples:
        assert space.realise(point) is not None
        assert {neighbour[0] for neighbour in space.neighbours(point)} == {point[0]}


@pytest.mark.parametrize("extents", [(257, 1470, 1), (1, 7, 2)])
def test_awkward_extents(extents):
    space, _ = make(tile_all, matmul(*extents))
    for decision, extent, limit in zip(space.decisions[0], extents, (32, 32, 16), strict=True):
        assert all(prod(tile) == extent for tile in decision.values)
        assert all(tile[-1] <= limit for tile in decision.values)
        assert len(set(decision.values)) == len(decision.values)
