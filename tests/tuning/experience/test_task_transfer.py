# SPDX-License-Identifier: Apache-2.0
"""A task starts from its picks and from the refitted decisions of the nearest tuned tasks."""

import random
from dataclasses import replace

import pytest

import tvm
from tvm import te, topi
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.database import MemoryDatabase, TuningRecord
from tvm.target import Target
from tvm_droplet_ms.compat import fast_tune_contexts
from tvm_droplet_ms.design_space.factorizations import refit_tile
from tvm_droplet_ms.search_strategy.candidates import ScreenedReplayer, TaskHistory
from tvm_droplet_ms.search_strategy.design_spaces import EncodedSpaces
from tvm_droplet_ms.search_strategy.explorers.base import SearchContext
from tvm_droplet_ms.search_strategy.explorers.random_sampling import RandomExploration
from tvm_droplet_ms.search_strategy.known_schedules import (
    TunedTask,
    points_of_same_loops,
)
from tvm_droplet_ms.session.roofline import MachineRates
from tvm_droplet_ms.tuning.experience.strategy import NEIGHBORS, PICKED, TaskSeeds, model_strategy
from tvm_droplet_ms.tuning.picks.first_picks import pick_schedules
from tvm_droplet_ms.tuning.picks.pick_workers import WarmStart

TARGET = Target({"kind": "llvm", "num-cores": 1})
OTHER = Target({"kind": "llvm", "num-cores": 2})
RATES = MachineRates(100e9, (1000,), (10e9,))


def convolution(channels, activation=topi.nn.relu):
    """A 1x1 convolution of 8x8 pixels to 32 channels."""
    image = te.placeholder((1, 8, 8, channels), name="image")
    weight = te.placeholder((1, 1, channels, 32), name="weight")
    out = activation(topi.nn.conv2d_nhwc(image, weight, 1, 0, 1))
    return tvm.IRModule({"main": te.create_prim_func([image, weight, out])})


def doubled(out):
    """An activation of two operations: another sketch."""
    return topi.nn.relu(topi.add(out, out))


def search_of(mod):
    with fast_tune_contexts():
        context = ms.TuneContext(
            mod, target=TARGET, space_generator="post-order-apply", rand_state=1, num_threads=1
        )
    schedules = context.generate_design_space()
    return SearchContext(
        replayer=ScreenedReplayer(mod, context.space_generator.postprocs, random.Random(0)),
        history=TaskHistory(mod, TARGET),
        schedules=schedules,
        spaces=EncodedSpaces([schedule.trace for schedule in schedules]),
        generator=random.Random(0),
        prior=None,
        cost_model=None,
        seed=1,
    )


def measure(database, mod, count=4, target=TARGET, secs=1e-3):
    """Commit random schedules of a task; the last is the fastest. Returns its point."""
    search = search_of(mod)
    workload = database.commit_workload(mod)
    candidates = RandomExploration(search.replayer, search.schedules, search.history).ask(count)
    for rank, candidate in enumerate(candidates):
        time = secs * (count - rank)
        database.commit_tuning_record(TuningRecord(candidate.trace, workload, [time], target))
    return search.spaces.find(candidates[-1].trace)


def test_best_decisions_of_nearest_task_are_refitted():
    near, far, new = convolution(48), convolution(512), convolution(64)
    database = MemoryDatabase()
    sketch, best = measure(database, near)
    measure(database, far)
    search = search_of(new)
    first, *_ = TaskSeeds([far, near, new], database, TARGET).transferred(search.spaces)
    assert first[0] == sketch
    kind = search.spaces.sketches[sketch]
    changed = 0
    for decision in kind.decisions:
        old, fitted = decision.value(best), decision.value(first[1])
        if decision.kind.name == "SamplePerfectTile":
            extent = 64 if decision.length == 2 else None
            if extent:
                # The reduction over the input channels, or over a window of 1.
                total = old[0] * old[1]
                expected = refit_tile(old, 64 if total == 48 else 1, 64)
                changed += total == 48
                assert fitted == expected
                continue
        assert fitted == old
    assert changed == 1
    assert search.replayer.replay(search.spaces.trace(first)) is not None


def test_first_pick_comes_first_and_all_are_distinct():
    near, new = convolution(48), convolution(64)
    database = MemoryDatabase()
    measure(database, near)
    task = ms.ExtractedTask("new", new, TARGET, [new], 1)
    picks = pick_schedules([task], RATES, warm_start=WarmStart(None, None))
    search = search_of(new)
    seeds = TaskSeeds([near, new], database, TARGET, picks)
    points = seeds(search)
    (pick,) = picks
    assert points[0] == pick.points[0]
    assert points[1:2] == seeds.transferred(search.spaces)[:1]
    assert set(points[2:]) <= {*pick.points, *seeds.transferred(search.spaces)}
    assert len(points) == len(set(points)) > 3


def test_kernel_with_another_operation_is_a_farther_neighbor():
    same, other, new = convolution(16), convolution(64, doubled), convolution(64)
    search = search_of(new)
    nearest = []
    for mods in ([same], [other], [other, same]):
        database = MemoryDatabase()
        for mod in mods:
            measure(database, mod)
        nearest.append(TaskSeeds(mods, database, TARGET).transferred(search.spaces)[0])
    from_same, from_other, from_both = nearest
    assert from_same != from_other
    # Four times the channels are two doublings, another operation counts for four.
    assert from_both == from_same


@pytest.mark.parametrize("fault", ["nothing measured", "failures", "another target", "other kinds"])
def test_without_a_neighbor_there_are_no_seeds(fault):
    database = MemoryDatabase()
    donor = convolution(48)
    if fault == "failures":
        measure(database, donor, secs=1e10)
    if fault == "another target":
        measure(database, donor, target=OTHER)
    if fault == "other kinds":
        image = te.placeholder((64, 64), name="image")
        donor = tvm.IRModule({"main": te.create_prim_func([image, topi.sum(image, axis=1)])})
        measure(database, donor, count=2)
    search = search_of(convolution(64))
    assert TaskSeeds([donor], database, TARGET)(search) == []


def test_task_that_was_measured_has_the_best_of_its_siblings():
    """Those with the same loops, whatever follows them; not those of other extents."""
    new, other = convolution(64), convolution(48)
    slow, fast = convolution(64, topi.tanh), convolution(64, topi.exp)
    database = MemoryDatabase()
    _, own = measure(database, new, count=PICKED + NEIGHBORS)
    _, of_slow = measure(database, slow, count=10)
    _, of_fast = measure(database, fast, count=11, secs=1e-4)
    measure(database, other)
    search = search_of(new)
    search.history.load(database, search.replayer)
    seeds = TaskSeeds([new, other, slow, fast], database, TARGET)
    points = seeds(search)
    assert len({own, of_slow, of_fast}) == 3
    assert [values for _, values in points] == [of_fast, of_slow]
    # Once it has tried them, there is nothing new.
    for point in points:
        search.history.add(search.replayer.replay(search.spaces.trace(point)), (1.0,))
    assert seeds(search) == []


def test_task_that_had_just_begun_has_its_first_seeds():
    near, new = convolution(48), convolution(64)
    database = MemoryDatabase()
    measure(database, near)
    search, fresh = search_of(new), search_of(new)
    best = measure(database, new, count=2)
    search.history.load(database, search.replayer)
    seeds = TaskSeeds([near], database, TARGET)
    assert len(search.history) == 2
    assert seeds(search) == seeds(fresh) == seeds.transferred(fresh.spaces) != []
    # Its own best too; the explorer leaves out what was measured.
    assert best in TaskSeeds([new], database, TARGET).transferred(fresh.spaces)


def test_decisions_of_a_sibling_of_the_same_sketch_are_tried_in_that_one():
    mod = convolution(64)
    database = MemoryDatabase()
    best = measure(database, mod)
    (record,) = database.get_top_k(database.commit_workload(mod), 1)
    tuned = TunedTask.from_trace(record.trace)
    for preferred in range(3):
        spaces = search_of(mod).spaces
        assert points_of_same_loops([tuned], spaces, preferred) == [best]
        # A sketch that this task has not.
        (point,) = points_of_same_loops([replace(tuned, sketch="other")], spaces, preferred)
        assert point == (preferred, best[1])
    assert points_of_same_loops([tuned], search_of(convolution(48)).spaces, 0) == []


def test_strategy_of_a_model_starts_with_the_pick():
    new = convolution(64)
    task = ms.ExtractedTask("new", new, TARGET, [new], 1)
    picks = pick_schedules([task], RATES, warm_start=WarmStart(None, None))
    strategy = model_strategy([task], MemoryDatabase(), TARGET, picks, None, prior=None)
    with fast_tune_contexts():
        context = ms.TuneContext(
            new,
            target=TARGET,
            space_generator="post-order-apply",
            search_strategy=strategy,
            task_name="new",
            rand_state=1,
            num_threads=1,
        ).clone()
    context.pre_tuning(8, 8, database=MemoryDatabase())
    batch = context.search_strategy.generate_measure_candidates()
    spaces = search_of(new).spaces
    points = [spaces.find(candidate.sch.trace) for candidate in batch]
    (pick,) = picks
    assert len(points) == 8
    assert points[:PICKED] == list(pick.points[:PICKED])
