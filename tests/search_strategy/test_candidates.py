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
"""Replays and what they find, against TVM itself on real design spaces."""

import json
import random
from collections import Counter
from functools import lru_cache
from math import prod

import pytest
from tvm_ffi import structural_equal, structural_hash

import tvm
from tvm import te
from tvm.ir.utils import derived_object
from tvm.s_tir import Schedule, ScheduleError, Trace
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.testing import te_workload
from tvm.target import Target
from tvm.te import create_prim_func
from tvm_droplet_ms.search_strategy.candidates import Replayer
from tvm_droplet_ms.search_strategy.decisions import Sketch, largest_parallel_extent
from tvm_droplet_ms.search_strategy.neighbourhood import ChoiceAxis, OrderedAxis

TARGET = Target({"kind": "llvm", "num-cores": 4})
WORKLOADS = {
    "matmul": lambda: te_workload.matmul(60, 257, 1470),
    "conv2d_nhwc": lambda: te_workload.conv2d_nhwc(1, 14, 14, 6, 10, 3, 1, 1),
    "depthwise": lambda: te_workload.depthwise_conv2d_nhwc(1, 14, 14, 30, 3, 1, 1),
    "softmax": lambda: te_workload.softmax_mn(30, 257),
}
EVERY_SPACE = [
    *[("matmul", index) for index in range(3)],
    *[("conv2d_nhwc", index) for index in range(3)],
    *[("depthwise", index) for index in range(3)],
    *[("softmax", index) for index in range(9)],
    ("primes", 0),
]
SOME_SPACES = [("matmul", 1), ("conv2d_nhwc", 0), ("depthwise", 2), ("softmax", 4), ("primes", 0)]


def two_stages(*extents):
    """``B = A * 2; C = B + 1``."""
    a = te.placeholder(extents, name="A")
    b = te.compute(extents, lambda *i: a(*i) * 2.0, name="B")
    c = te.compute(extents, lambda *i: b(*i) + 1.0, name="C")
    return tvm.IRModule({"main": create_prim_func([a, c])})


def primes_space(sch):
    """Tiles of three, an unordered categorical, the parallel annotation, a compute location."""
    consumer, producer = sch.get_sblock("C"), sch.get_sblock("B")
    loops = []
    for loop in sch.get_loops(consumer):
        loops.append(sch.split(loop, sch.sample_perfect_tile(loop, 3, max_innermost_factor=16)))
    sch.reorder(*[split[level] for level in range(3) for split in loops])
    sch.annotate(sch.get_sblock("root"), "meta_schedule.parallel", 64)
    unroll = sch.sample_categorical([4, 1, 16], [0.25, 0.5, 0.25])
    sch.annotate(sch.get_sblock("root"), "meta_schedule.unroll_explicit", unroll)
    sch.compute_at(producer, sch.sample_compute_location(producer), preserve_unit_loops=True)
    return sch


def powers_space(sch):
    """Nothing but the parallel annotation."""
    sch.annotate(sch.get_sblock("root"), "meta_schedule.parallel", 64)
    return sch


# Of extents that are prime, 1, of many primes and a power; and with a plan at every power of two.
SCHEDULE_FUNCTIONS = {
    "primes": (primes_space, (257, 1, 1470, 8)),
    "powers": (powers_space, (2, 2, 2, 2, 2, 2, 2)),
}


@lru_cache
def context(name):
    """A task's context, with its design spaces: TVM's own, or a schedule function above."""
    if name in SCHEDULE_FUNCTIONS:
        apply, extents = SCHEDULE_FUNCTIONS[name]
        space = ms.space_generator.ScheduleFn(
            apply, sch_rules=[], postprocs=ms.Postproc.create("llvm"), mutator_probs={}
        )
        mod = two_stages(*extents)
    else:
        space = "post-order-apply"
        mod = tvm.IRModule({"main": create_prim_func(WORKLOADS[name]())})
    made = ms.TuneContext(mod, target=TARGET, space_generator=space, rand_state=1, num_threads=1)
    return made, made.generate_design_space()


class Space:
    """A design space, and what replays its traces."""

    def __init__(self, name, index):
        self.context, schedules = context(name)
        self.design = schedules[index].trace
        self.limit = largest_parallel_extent([self.design])
        self.sketch = Sketch.from_trace(self.design)
        self.replayer = Replayer(
            self.context.mod,
            self.context.space_generator.postprocs,
            random.Random(f"{name}{index}"),
        )

    def sample(self):
        """A random point of the space, replayed."""
        candidate = self.replayer.replay(Trace(self.design.insts, {}))
        assert candidate is not None, self.replayer.dropped
        return candidate

    def sample_with_parallel_plans(self):
        """A random point with more than one parallel plan, and its parallel axis."""
        (decision,) = self.decisions("Annotate")
        for _ in range(20):
            candidate = self.sample()
            axis = self.axis(candidate, decision)
            if len(axis.values) > 1:
                return candidate, axis
        raise AssertionError("none of 20 samples has two parallel plans")

    def neighbourhood(self, candidate):
        return self.replayer.neighbourhood(self.sketch, candidate.trace, self.limit)

    def changed(self, candidate, decision, value):
        """A replay with another value for a decision of one integer."""
        point = list(self.sketch.read(candidate.trace))
        point[decision.start] = value
        return self.replayer.replay(self.sketch.write(candidate.trace, tuple(point)))

    def decisions(self, kind):
        return [decision for decision in self.sketch.decisions if decision.kind == kind]

    def axis(self, candidate, decision):
        return self.neighbourhood(candidate).axes[self.sketch.decisions.index(decision)]


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
    """What every value from -3 to 60 of a ``SampleComputeLocation`` is realised as."""
    insts = list(trace.insts)[: position + 1]
    made = {inst: trace.decisions[inst] for inst in insts if inst in trace.decisions}
    realised = set()
    for value in range(-3, 61):
        sch = Schedule(mod, debug_mask="none")
        Trace(insts, {**made, insts[-1]: value}).apply_to_schedule(sch, remove_postproc=True)
        realised.add(int(sch.trace.decisions[sch.trace.insts[-1]]))
    return realised


def test_every_neighbour_replays_as_it_was_asked_for(every_space):
    space = every_space
    for _ in range(2):
        candidate = space.sample()
        sketch, point = space.sketch, space.sketch.read(candidate.trace)
        neighbourhood = space.neighbourhood(candidate)
        tiles = space.decisions("SamplePerfectTile")
        assert any(neighbourhood.directions(point))
        for direction in neighbourhood.directions(point):
            asked = neighbourhood.step(point, direction)
            assert asked != point
            neighbour = space.replayer.replay(sketch.write(candidate.trace, asked))
            assert neighbour is not None, space.replayer.dropped
            assert Sketch.from_trace(neighbour.trace) == sketch
            realised = sketch.read(neighbour.trace)
            for decision in sketch.decisions:
                place = slice(decision.start, decision.start + decision.length)
                if decision.kind == "SampleComputeLocation" and asked[place] != realised[place]:
                    # A tile or an earlier location made it illegal: the one before it is taken.
                    legal = legal_locations(space.context.mod, neighbour.trace, decision.inst)
                    assert asked[decision.start] not in legal
                    assert realised[decision.start] == max(
                        location for location in legal if location < asked[decision.start]
                    )
                    changed = sketch.decisions[direction.axis]
                    assert changed.kind != "Annotate"
                    assert changed.inst < decision.inst
                else:
                    assert realised[place] == asked[place]
            extents = loop_extents(space.context.mod, neighbour.trace)
            for decision, extent in zip(tiles, extents, strict=True):
                tile = realised[decision.start : decision.start + decision.length]
                limit = int(space.design.insts[decision.inst].attrs[1])
                assert prod(tile) == extent
                assert limit == -1 or tile[-1] <= limit


def test_the_extents_of_the_tiles_are_those_of_the_workload():
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


def test_compute_locations_are_those_of_brute_force(space):
    for _ in range(3):
        candidate = space.sample()
        neighbourhood = space.neighbourhood(candidate)
        for decision, axis in zip(space.sketch.decisions, neighbourhood.axes, strict=True):
            if decision.kind == "SampleComputeLocation":
                legal = legal_locations(space.context.mod, candidate.trace, decision.inst)
                assert isinstance(axis, OrderedAxis)
                assert axis.values == tuple(sorted(legal))
                assert space.sketch.read(candidate.trace)[decision.start] in legal


def test_some_space_has_compute_locations_to_choose_from():
    for case in [("conv2d_nhwc", 0), ("softmax", 4), ("primes", 0)]:
        space = Space(*case)
        decisions = space.decisions("SampleComputeLocation")
        assert any(len(space.axis(space.sample(), decision).values) > 2 for decision in decisions)


def test_parallel_extents_are_those_of_brute_force(space):
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


def test_parallel_plans_that_lie_close_together_are_all_found():
    space = Space("powers", 0)
    (decision,) = space.decisions("Annotate")
    candidate = space.sample()
    modules = [space.changed(candidate, decision, extent).module for extent in range(1, 65)]
    values = space.axis(candidate, decision).values
    found = [modules[value - 1] for value in values]
    assert len(found) == len(set(found))
    assert set(found) == set(modules)
    assert len(found) >= 6


def test_parallel_extents_reach_what_the_mutator_reaches(space):
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


def test_categoricals(space):
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


def test_a_replay_is_the_module_that_tvm_makes(space):
    """The postprocessors are run again, and not taken from the trace."""
    candidate = space.sample()
    sch = Schedule(space.context.mod, debug_mask="none")
    candidate.trace.apply_to_schedule(sch, remove_postproc=True)
    sch.enter_postproc()
    assert all(post.apply(sch) for post in space.context.space_generator.postprocs)
    again = space.replayer.replay(candidate.trace)
    assert structural_equal(again.schedule.mod, sch.mod)
    assert again.module == candidate.module == structural_hash(sch.mod)


def test_a_measure_candidate_is_what_a_builder_takes():
    candidate = Space("matmul", 0).sample()
    measured = candidate.measure_candidate()
    assert structural_equal(measured.sch.mod, candidate.schedule.mod)
    shapes = [[int(extent) for extent in info.shape] for info in measured.args_info]
    assert shapes == [[60, 1470], [1470, 257], [60, 257]]


def test_a_restored_record_is_the_module_that_was_recorded(space):
    workload = ms.database.Workload(space.context.mod)
    for _ in range(3):
        candidate = space.sample()
        assert space.replayer.restore(candidate.trace).module == candidate.module
        record = ms.database.TuningRecord(candidate.trace, workload, [1e-3], TARGET)
        text = json.dumps(_plain(record.as_json()))
        read = ms.database.TuningRecord.from_json(json.loads(text), workload)
        restored = space.replayer.restore(read.trace)
        assert restored.module == candidate.module
        assert structural_equal(restored.schedule.mod, candidate.schedule.mod)


def _plain(value):
    """TVM's JSON objects as Python's."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return str(value)
    if hasattr(value, "items"):
        return {str(key): _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value]


def test_restoring_a_trace_of_another_workload_raises():
    trace = Space("matmul", 0).sample().trace
    other = Space("softmax", 0)
    with pytest.raises(ScheduleError):
        other.replayer.restore(trace)
    assert other.replayer.replay(trace) is None
    ((reason, count),) = other.replayer.dropped.items()
    assert reason.startswith("replay: ")
    assert count == 1


@derived_object
class Fickle(ms.postproc.PyPostproc):
    """Rejects, raises or passes, as it is told."""

    def __init__(self, answer):
        super().__init__()
        self.answer = answer

    def _initialize_with_tune_context(self, context):
        pass

    def apply(self, sch):
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def clone(self):
        return Fickle(self.answer)


def test_a_postprocessor_that_rejects_is_counted_by_name():
    mod, trace = dynamic_module_and_trace()
    replayer = Replayer(mod, [ms.postproc.DisallowDynamicLoop()], random.Random(1))
    assert replayer.replay(trace) is None
    assert replayer.replay(trace) is None
    assert replayer.dropped == Counter({"s_tir.meta_schedule.DisallowDynamicLoop": 2})
    assert Replayer(mod, [], random.Random(1)).replay(trace) is not None


def dynamic_module_and_trace():
    rows = te.var("n")
    a = te.placeholder((rows, 8), name="A")
    b = te.compute((rows, 8), lambda i, j: a[i, j] + 1.0, name="B")
    mod = tvm.IRModule({"main": create_prim_func([a, b])})
    return mod, Schedule(mod).trace


@pytest.mark.parametrize(
    ("answer", "suffix"), [(False, ""), (ValueError("made up"), ": ValueError")]
)
def test_a_postprocessor_of_the_user_that_rejects_or_raises(answer, suffix):
    mod = two_stages(8, 8)
    post = Fickle(answer)
    passes = Fickle(True)
    replayer = Replayer(mod, [passes, post], random.Random(1))
    assert replayer.replay(Schedule(mod).trace) is None
    assert replayer.dropped == Counter({f"{post}{suffix}": 1})
    accepting = Replayer(mod, [passes], random.Random(1))
    assert accepting.replay(Schedule(mod).trace) is not None
    assert not accepting.dropped


def test_no_dropped_replay_is_counted_while_probing(space):
    """Probing for compute locations and parallel extents drops nothing of itself."""
    space.neighbourhood(space.sample())
    assert not space.replayer.dropped


@pytest.mark.parametrize("case", [("conv2d_nhwc", 0), ("primes", 0)])
def test_the_same_seed_samples_the_same_modules(case):
    first, second = Space(*case), Space(*case)
    modules = [first.sample().module for _ in range(5)]
    assert modules == [second.sample().module for _ in range(5)]
    assert len(set(modules)) > 1
