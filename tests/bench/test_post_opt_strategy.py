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

import random
from collections import Counter

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
from tvm_droplet_ms.search_strategy.candidates import Replayer
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


@pytest.mark.parametrize("mended", [False, True])
def test_explores_as_evolution_does(mended):
    """The first phase is TVM's search with fewer trials, to the candidate."""

    def run(strategy, max_trials):
        database = ms.database.MemoryDatabase()
        context = make_context(strategy)
        return drive(context, timed(rugged), max_trials=max_trials, database=database)

    driven = run(make(mended=mended), 30)
    assert driven.modules[:10] == run(make_evolution(), 10).modules
    assert [len(batch) for batch in driven.batches[:2]] == [7, 3]


def test_the_descent_starts_from_the_best():
    """TVM's measures it again; the mended one goes to its neighbours."""
    for mended in (False, True):
        trials = drive(make_context(make(mended=mended)), timed(bowl), max_trials=30).trials
        best = min(trials[:10], key=lambda trial: trial.secs)
        if not mended:
            assert trials[10].module == best.module
            continue
        assert sum(a != b for a, b in zip(best.decisions, trials[10].decisions)) == 1


@pytest.mark.parametrize("max_trials", [5, 10, 13])
@pytest.mark.parametrize("mended", [False, True])
def test_all_trials_are_in_the_budget(mended, max_trials):
    driven = drive(make_context(make(mended=mended)), timed(rugged), max_trials=max_trials)
    assert len(driven.trials) == max_trials
    assert driven.ended
    assert all(driven.batches)
    assert max(len(batch) for batch in driven.batches) <= 7


@pytest.mark.parametrize("mended", [False, True])
def test_ends_with_trials_left(mended):
    """Where nothing is faster, one round ends the descent and the task."""
    driven = drive(make_context(make(mended=mended)), timed(constant), max_trials=500)
    assert driven.ended
    assert 15 < len(driven.trials) < 100


def test_descent_trials():
    shipped = drive(make_context(make(descent_trials=4)), timed(rugged), max_trials=500)
    assert len(shipped.trials) == 10 + 3
    mended = drive(make_context(make(descent_trials=4, mended=True)), timed(rugged), max_trials=500)
    assert len(mended.trials) == 10 + 4


@pytest.mark.parametrize("mended", [False, True])
@pytest.mark.parametrize("space", [tile_all, tile_and_annotate])
def test_is_reproducible(mended, space):
    def run(seed):
        context = make_context(make(mended=mended), space=space, postprocs=[Mark()], seed=seed)
        return drive(context, timed(rugged), max_trials=60).modules

    assert run(1) == run(1)
    assert run(1) != run(2)


def test_a_quarter_loses_its_postprocessors_and_the_rest_keeps_stale_ones():
    descent = drive(
        make_context(make(explore_trials=3), postprocs=[Mark()]), timed(rugged), max_trials=99
    ).trials[3:]
    marks = [_replayed_mark(trial) for trial in descent]
    lost = sum(mark is None for mark in marks)
    assert 0.1 * len(marks) < lost < 0.4 * len(marks)
    assert any(
        mark is not None and mark != trial.decisions[0][-1] for mark, trial in zip(marks, descent)
    )


def test_mended_runs_the_postprocessors_again():
    trials = drive(
        make_context(make(mended=True), postprocs=[Mark()]), timed(rugged), max_trials=60
    ).trials
    assert all(_replayed_mark(trial) == trial.decisions[0][-1] for trial in trials)


def _replayed_mark(trial):
    sch = Schedule(matmul())
    trial.trace.apply_to_schedule(sch, remove_postproc=False)
    mark = sch.get(sch.get_sblock("root")).annotations.get(MARK)
    return None if mark is None else int(mark)


def test_shipped_measures_again_and_mended_does_not():
    options = {"space": tile_and_annotate, "postprocs": [Mark()]}
    shipped = drive(make_context(make(), **options), timed(rugged), max_trials=60)
    assert shipped.repeated
    mended = drive(make_context(make(mended=True), **options), timed(rugged), max_trials=60)
    assert not mended.repeated


def test_mended_moves_every_decision_and_shipped_does_not():
    a = te.placeholder((16, 24), name="A")
    b = te.compute((16, 24), lambda i, j: a[i, j] * 2.0, name="B")
    c = te.compute((16, 24), lambda i, j: b[i, j] + 1.0, name="C")
    mod = IRModule({"main": te.create_prim_func([a, c])})
    moved = {}
    for mended in (False, True):
        context = make_context(make(mended=mended, explore_trials=3), mod, tile_two_stages)
        trials = drive(context, timed(constant), max_trials=200).trials
        sketch = Sketch.from_trace(trials[0].trace)
        start = sketch.read(trials[0].trace)
        points = [sketch.read(trial.trace) for trial in trials[3:]]
        moved[mended] = {
            decision.kind
            for decision in sketch.decisions
            if any(decision.of(point) != decision.of(start) for point in points)
        }
    assert moved[False] == {"SamplePerfectTile", "Annotate"}
    assert moved[True] == moved[False] | {"SampleCategorical", "SampleComputeLocation"}


def test_mended_measures_a_module_once_whatever_its_decisions():
    """A choice of which two values are the same, and 50 modules, of which evolution knows 10."""

    def space(sch):
        tile_two(sch)
        choice = sch.sample_categorical([1, 2, 2], [1 / 3, 1 / 3, 1 / 3])
        sch.annotate(sch.get_sblock("C"), "a_choice", choice)

    def cost(decisions):
        return rugged(decisions) * (1.0 + decisions[2][0])

    context = make_context(make(mended=True, batch_size=30), space=space)
    modules = drive(context, timed(cost), max_trials=100).modules
    assert len(modules) == len(set(modules)) > 15


def test_mended_keeps_the_innermost_limit():
    """Where a larger innermost factor is always faster: 16 is the limit of an extent of 32."""

    def cost(decisions):
        return 1e-3 / (decisions[0][-1] * decisions[1][-1])

    tuned = make_context(make(mended=True, explore_trials=1), space=tile_two)
    driven = drive(tuned, timed(cost), max_trials=100)
    assert max(tile[-1] for trial in driven.trials for tile in trial.decisions) == 16
    best = min(driven.trials, key=lambda trial: trial.secs)
    assert best.decisions == ((2, 16), (2, 16))


def test_mended_ends_where_no_single_factor_helps():
    """In tiles of two positions, so that a neighbour differs by one divisor, by brute force."""

    def space(sch):
        for loop in sch.get_loops(sch.get_sblock("C")):
            sch.split(loop, sch.sample_perfect_tile(loop, n=2, max_innermost_factor=16))

    mod = matmul(24, 36, 30)
    context = make_context(make(mended=True, explore_trials=4), mod, space)
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


def test_modules_keep_a_shipped_descent_inside_where_postprocessors_can():
    """With a table's modules, what is outside gets the task's postprocessors, and is measured."""
    replayer = Replayer(make_context(make_evolution()).mod, [Mark()], random.Random(1))
    sch = Schedule(replayer.mod, seed=1)
    tile_two(sch)
    sketch = Sketch.from_trace(sch.trace)
    powers = [1, 2, 4, 8, 16]
    points = [(32 // j, j, 32 // k, k) for j in powers for k in powers]
    inside = {replayer.replay(sketch.write(sch.trace, point)).module for point in points}
    assert len(inside) == 25

    def run(**options):
        context = make_context(make(**options), space=tile_two, postprocs=[Mark()])
        return drive(context, timed(bowl), max_trials=60)

    assert set(run().modules) - inside
    kept = run(modules=inside)
    assert set(kept.modules) <= inside
    cloned = make_context(make(modules=inside).clone(), space=tile_two, postprocs=[Mark()])
    assert drive(cloned, timed(bowl), max_trials=60).modules == kept.modules
    assert len(set(kept.modules[10:])) > 2


def refuse_above(sch):
    """A tile of which each instance with an inner factor above 2 is refused by the next step."""
    i, _, _ = sch.get_loops(sch.get_sblock("C"))
    _, inner = sch.sample_perfect_tile(i, n=2, max_innermost_factor=2)
    sch.loop_partition(i, [inner, None])


def test_what_cannot_be_replayed_is_counted_for_who_asks():
    """In the counter that the strategy was given, though TVM runs a clone of the strategy."""
    dropped = Counter()
    # Partitions of a loop of 4: of the powers of two that TVM's droplet tries, only 1 and 2 fit.
    context = make_context(
        make(dropped=dropped, explore_trials=2).clone(), matmul(4, 8, 8), refuse_above
    )
    drive(context, timed(constant), max_trials=60)
    assert set(dropped) == {"TVM's droplet: ScheduleError"}
    assert dropped.total() > 0


@pytest.mark.parametrize("mended", [False, True])
def test_nothing_to_descend_from(mended):
    """All measurements fail: the task ends with the exploration."""
    driven = drive(make_context(make(mended=mended)), fail, max_trials=60)
    assert driven.ended
    assert len(driven.trials) == 10


@pytest.mark.parametrize("mended", [False, True])
def test_a_space_without_decisions(mended):
    context = make_context(make(mended=mended), space=sample_nothing)
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
    options = {"explore_trials": 4, "descent_trials": 5, "mended": True, "batch_size": 2}
    original = drive(make_context(make(**options)), timed(bowl), max_trials=60)
    cloned = drive(make_context(make(**options).clone().clone()), timed(bowl), max_trials=60)
    assert cloned.modules == original.modules
    assert len(original.trials) == 9
