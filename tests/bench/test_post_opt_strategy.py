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
"""PostOptStrategy through TuneContext, on made-up objectives."""

import pytest
from conformance.driving import drive
from conformance.objectives import bowl, constant, decisions_of, fail, rugged, timed
from conformance.strategies import SMALL_EVOLUTION, make_evolution
from conformance.workloads import (
    make_context,
    matmul,
    sample_nothing,
    tile_all,
    tile_and_annotate,
    tile_two,
)

from tvm import te
from tvm.ir import IRModule
from tvm.ir.utils import derived_object
from tvm.s_tir import Schedule
from tvm.s_tir import meta_schedule as ms
from tvm_droplet_ms.bench.baselines.post_opt_strategy import PostOptStrategy
from tvm_droplet_ms.search_strategy.decisions import Sketch

MARK = "marked_by_a_postprocessor"


@derived_object
class Mark(ms.postproc.PyPostproc):
    """A postprocessor whose work shows in the module, and depends on the first tile."""

    def _initialize_with_tune_context(self, context) -> None:
        pass

    def apply(self, sch) -> bool:
        sch.annotate(sch.get_sblock("root"), MARK, decisions_of(sch)[0][-1])
        return True

    def clone(self):
        return Mark()


def tile_two_stages(sch):
    """A decision of every kind, the compute location with more than one value."""
    block = sch.get_sblock("C")
    for loop in sch.get_loops(block):
        sch.split(loop, sch.sample_perfect_tile(loop, n=2, max_innermost_factor=16))
    root = sch.get_sblock("root")
    sch.annotate(root, "meta_schedule.parallel", 64)
    unroll = sch.sample_categorical([0, 16, 64], [1 / 3, 1 / 3, 1 / 3])
    sch.annotate(root, "meta_schedule.unroll_explicit", unroll)
    producer = sch.get_sblock("B")
    sch.compute_at(producer, sch.sample_compute_location(producer))


def make(**options):
    small = {"explore_trials": 10, "batch_size": 4, "evolutionary": SMALL_EVOLUTION}
    return PostOptStrategy(**small | options)


def test_explores_as_evolution_does():
    """The first phase is TVM's search with fewer trials, to the candidate."""

    def run(strategy, max_trials):
        database = ms.database.MemoryDatabase()
        context = make_context(strategy)
        return drive(context, timed(rugged), max_trials=max_trials, database=database)

    driven = run(make(), 30)
    assert driven.modules[:10] == run(make_evolution(), 10).modules
    assert [len(batch) for batch in driven.batches[:2]] == [7, 3]


@pytest.mark.parametrize("max_trials", [5, 10, 13])
def test_all_trials_are_in_the_budget(max_trials):
    driven = drive(make_context(make()), timed(rugged), max_trials=max_trials)
    assert len(driven.trials) == max_trials
    assert driven.ended
    assert all(driven.batches)
    assert max(len(batch) for batch in driven.batches) <= 7


def test_ends_with_trials_left():
    """Where nothing is faster, one round ends the descent and the task."""
    driven = drive(make_context(make()), timed(constant), max_trials=500)
    assert driven.ended
    assert 15 < len(driven.trials) < 100


@pytest.mark.parametrize("space", [tile_all, tile_and_annotate])
def test_is_reproducible(space):
    def run(seed):
        context = make_context(make(), space=space, postprocs=[Mark()], seed=seed)
        return drive(context, timed(rugged), max_trials=60).modules

    assert run(1) == run(1)
    assert run(1) != run(2)


def test_runs_the_postprocessors_again():
    trials = drive(make_context(make(), postprocs=[Mark()]), timed(rugged), max_trials=60).trials
    assert all(_replayed_mark(trial) == trial.decisions[0][-1] for trial in trials)


def _replayed_mark(trial):
    sch = Schedule(matmul())
    trial.trace.apply_to_schedule(sch, remove_postproc=False)
    mark = sch.get(sch.get_sblock("root")).annotations.get(MARK)
    return None if mark is None else int(mark)


def test_the_descent_goes_to_the_neighbours_of_the_best():
    trials = drive(make_context(make()), timed(bowl), max_trials=30).trials
    best = min(trials[:10], key=lambda trial: trial.secs)
    assert sum(a != b for a, b in zip(best.decisions, trials[10].decisions)) == 1


def test_descent_trials():
    driven = drive(make_context(make(descent_trials=4)), timed(rugged), max_trials=500)
    assert len(driven.trials) == 10 + 4


def test_nothing_is_measured_again():
    context = make_context(make(), space=tile_and_annotate, postprocs=[Mark()])
    assert not drive(context, timed(rugged), max_trials=60).repeated


def test_the_descent_moves_every_kind_of_decision():
    a = te.placeholder((16, 24), name="A")
    b = te.compute((16, 24), lambda i, j: a[i, j] * 2.0, name="B")
    c = te.compute((16, 24), lambda i, j: b[i, j] + 1.0, name="C")
    mod = IRModule({"main": te.create_prim_func([a, c])})
    context = make_context(make(explore_trials=3), mod, tile_two_stages)
    trials = drive(context, timed(constant), max_trials=200).trials
    sketch = Sketch.of(trials[0].trace)
    start = sketch.read(trials[0].trace)
    points = [sketch.read(trial.trace) for trial in trials[3:]]
    moved = {
        decision.kind
        for decision in sketch.decisions
        if any(decision.of(point) != decision.of(start) for point in points)
    }
    assert moved == {
        "SamplePerfectTile",
        "Annotate",
        "SampleCategorical",
        "SampleComputeLocation",
    }


def test_a_module_is_measured_once_for_all_its_decisions():
    """A choice of which two values are the same, and 50 modules, of which evolution knows 10."""

    def space(sch):
        tile_two(sch)
        choice = sch.sample_categorical([1, 2, 2], [1 / 3, 1 / 3, 1 / 3])
        sch.annotate(sch.get_sblock("C"), "a_choice", choice)

    def cost(decisions):
        return rugged(decisions) * (1.0 + decisions[2][0])

    context = make_context(make(batch_size=30), space=space)
    modules = drive(context, timed(cost), max_trials=100).modules
    assert len(modules) == len(set(modules)) > 15


def test_keeps_the_innermost_limit():
    """Where a larger innermost factor is always faster: 16 is the limit of an extent of 32."""

    def cost(decisions):
        return 1e-3 / (decisions[0][-1] * decisions[1][-1])

    tuned = make_context(make(explore_trials=1), space=tile_two)
    driven = drive(tuned, timed(cost), max_trials=100)
    assert max(tile[-1] for trial in driven.trials for tile in trial.decisions) == 16
    best = min(driven.trials, key=lambda trial: trial.secs)
    assert best.decisions == ((2, 16), (2, 16))


def test_ends_where_no_single_factor_helps():
    """In tiles of two positions, so that a neighbour differs by one divisor, by brute force."""

    def space(sch):
        for loop in sch.get_loops(sch.get_sblock("C")):
            sch.split(loop, sch.sample_perfect_tile(loop, n=2, max_innermost_factor=16))

    mod = matmul(24, 36, 30)
    context = make_context(make(explore_trials=4), mod, space)
    driven = drive(context, timed(rugged), max_trials=500)
    assert driven.ended
    inner = min(driven.trials, key=lambda trial: trial.secs).decisions
    measured = {tuple(tile[1] for tile in trial.decisions): trial.secs for trial in driven.trials}
    best = tuple(tile[1] for tile in inner)
    for axis, extent in enumerate((24, 36, 30)):
        divisors = [value for value in range(1, 17) if extent % value == 0]
        place = divisors.index(best[axis])
        for near in divisors[max(0, place - 1) : place + 2]:
            neighbour = (*best[:axis], near, *best[axis + 1 :])
            assert measured[neighbour] >= measured[best]


def test_nothing_to_descend_from():
    """All measurements fail: the task ends with the exploration."""
    driven = drive(make_context(make()), fail, max_trials=60)
    assert driven.ended
    assert len(driven.trials) == 10


def test_a_space_without_decisions():
    context = make_context(make(), space=sample_nothing)
    driven = drive(context, timed(constant), max_trials=60)
    assert driven.ended
    assert len(set(driven.modules)) == 1


@pytest.mark.parametrize(
    "options",
    [{"explore_trials": 0}, {"batch_size": 0}, {"descent_trials": 1}, {"batch_size": 1.5}],
)
def test_options_out_of_range(options):
    (name,) = options
    with pytest.raises(ValueError, match=f"{name} is {options[name]}"):
        PostOptStrategy(**options)


def test_clone_keeps_the_configuration():
    options = {"explore_trials": 4, "descent_trials": 5, "batch_size": 2}
    original = drive(make_context(make(**options)), timed(bowl), max_trials=60)
    cloned = drive(make_context(make(**options).clone().clone()), timed(bowl), max_trials=60)
    assert cloned.modules == original.modules
    assert len(original.trials) == 9
