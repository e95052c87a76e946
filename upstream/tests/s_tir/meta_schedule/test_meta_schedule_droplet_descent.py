# SPDX-License-Identifier: Apache-2.0
"""Test the decisions of traces, and the coordinate descent over them"""

# pylint: disable=missing-function-docstring,missing-class-docstring

import random
from itertools import product

import pytest

import tvm
import tvm.testing
from tvm import te
from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.search_strategy.droplet_candidates import (
    Candidate,
    History,
    Replayer,
    valid_secs,
)
from tvm.s_tir.meta_schedule.search_strategy.droplet_coordinate_descent import (
    coordinate_descent,
    is_faster,
    students_t_test,
)
from tvm.s_tir.meta_schedule.search_strategy.droplet_decisions import (
    DesignSpaces,
    Prober,
    Sketch,
    largest_parallel_extent,
)
from tvm.s_tir.meta_schedule.search_strategy.droplet_neighborhood import (
    ChoiceAxis,
    Neighborhood,
    OrderedAxis,
    TileAxis,
    prime_factors,
)
from tvm.s_tir.schedule import Schedule

TARGET = tvm.target.Target({"kind": "llvm", "num-cores": 1})
LATTICE = Neighborhood(tuple(OrderedAxis(slot, tuple(range(9))) for slot in range(3)))


def _matmul() -> tvm.IRModule:
    a = te.placeholder((32, 32), name="a")
    b = te.placeholder((32, 32), name="b")
    k = te.reduce_axis((0, 32), name="k")
    c = te.compute((32, 32), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="matmul")
    return tvm.IRModule({"main": te.create_prim_func([a, b, c])})


def _schedule_matmul(sch: Schedule) -> None:
    block = sch.get_sblock("matmul")
    i, j, k = sch.get_loops(block)
    i_0, i_1 = sch.split(i, sch.sample_perfect_tile(i, n=2))
    j_0, j_1 = sch.split(j, sch.sample_perfect_tile(j, n=2))
    k_0, k_1 = sch.split(k, sch.sample_perfect_tile(k, n=2))
    sch.reorder(i_0, j_0, k_0, i_1, k_1, j_1)


def _tiles(sch: Schedule) -> list[list[int]]:
    trace = sch.trace
    insts = [inst for inst in trace.insts if inst.kind.name == "SamplePerfectTile"]
    return [[int(factor) for factor in trace.decisions[inst]] for inst in insts]


def _chain() -> tvm.IRModule:
    a = te.placeholder((16, 16), name="a")
    b = te.compute((16, 16), lambda i, j: a[i, j] * 2.0, name="first")
    c = te.compute((16, 16), lambda i, j: b[i, j] + 1.0, name="second")
    return tvm.IRModule({"main": te.create_prim_func([a, c])})


def _schedule_chain(sch: Schedule) -> None:
    root = sch.get_sblock("root")
    sch.annotate(root, "unroll", sch.sample_categorical([0, 16, 64], [0.3, 0.3, 0.4], 1))
    sch.annotate(root, "meta_schedule.parallel", 8)
    first = sch.get_sblock("first")
    sch.compute_at(first, sch.sample_compute_location(first, 0))


def _scheduled() -> Schedule:
    sch = Schedule(_matmul(), seed=1)
    _schedule_matmul(sch)
    return sch


def _replayer(mod=None, postprocs=()) -> Replayer:
    return Replayer(_matmul() if mod is None else mod, postprocs, random.Random(1))


def _descend(times, start, batch_size):
    search = coordinate_descent(
        start, times[start], lambda _: LATTICE, {start: times[start]}.get, lambda: batch_size
    )
    batches = []
    try:
        batch = next(search)
        while True:
            batches.append(batch)
            batch = search.send({point: times[point] for point in batch})
    except StopIteration as end:
        return end.value, batches


@pytest.mark.parametrize("batch_size", [1, 5, 64])
def test_coordinate_descent_ends_at_a_local_optimum(batch_size):
    times = {
        (x, y, z): (float(1 + (x - 6) ** 2 + (y - 2) ** 2 + (z - 4) ** 2),)
        for x, y, z in product(range(9), repeat=3)
    }
    optimum, batches = _descend(times, (0, 8, 0), batch_size)
    assert optimum == (6, 2, 4)
    assert all(0 < len(batch) <= batch_size for batch in batches)


def test_coordinate_descent_does_not_follow_noise():
    times = {point: (1.0, 1.2, 0.8) for point in product(range(9), repeat=3)}
    times[4, 4, 5] = (0.99, 1.19, 0.79)
    optimum, _ = _descend(times, (4, 4, 4), 8)
    assert optimum == (4, 4, 4)


def test_significance():
    # Means 3 and 5, both variances 2.5: t = -2 with 8 degrees of freedom.
    assert students_t_test([1, 2, 3, 4, 5], [3, 4, 5, 6, 7]) == pytest.approx(0.0805, abs=1e-4)
    # One degree more in one sample: t = -2.0412 with 9 degrees of freedom.
    assert students_t_test([1, 2], [4, 5]) == pytest.approx(0.0513, abs=1e-4)
    assert not is_faster([1, 2, 3, 4, 5], [3, 4, 5, 6, 7])
    assert is_faster([1, 2, 3, 4, 5], [3, 4, 5, 6, 7], p_value=0.1)
    assert is_faster([0.9, 0.91, 0.89], [1.0, 1.01, 0.99])
    assert not is_faster([1.0, 1.01, 0.99], [0.9, 0.91, 0.89])
    # A single time cannot be tested: the lower one decides.
    assert is_faster([0.9], [1.0, 1.1])


def test_tile_steps_move_a_prime_factor():
    assert prime_factors(360) == (2, 3, 5)
    around = Neighborhood((TileAxis(0, 3, max_innermost_factor=4),))
    assert set(around.steps((6, 1, 4), 1)) == {(3, 2, 4), (2, 3, 4), (12, 1, 2), (6, 2, 2)}


def test_ordered_steps_go_to_the_next_value():
    around = Neighborhood((OrderedAxis(0, (1, 4, 16)), ChoiceAxis(1, 3)))
    assert set(around.steps((4, 0), 1)) == {(1, 0), (16, 0), (4, 1), (4, 2)}
    # A value that is not legal itself has the next legal ones around it.
    assert set(around.steps((5, 0), 1)) == {(4, 0), (16, 0), (5, 1), (5, 2)}


def test_points_are_read_and_written():
    context = ms.TuneContext(
        mod=_matmul(),
        target=TARGET,
        space_generator=ms.space_generator.ScheduleFn(
            _schedule_matmul, sch_rules=[], postprocs=[], mutator_probs={}
        ),
        rand_state=1,
    )
    (space,) = context.generate_design_space()
    spaces = DesignSpaces([space.trace])
    index, point = spaces.find(space.trace)
    assert point == tuple(factor for tile in _tiles(space) for factor in tile)
    sch = Schedule(context.mod)
    spaces.trace((index, (4, 8, 32, 1, 2, 16))).apply_to_schedule(sch, remove_postproc=True)
    assert _tiles(sch) == [[4, 8], [32, 1], [2, 16]]


def test_trace_of_another_space_is_no_point():
    spaces = DesignSpaces([_scheduled().trace])
    sch = Schedule(_matmul())
    sch.get_sblock("matmul")
    assert spaces.find(sch.trace) is None


def test_all_kinds_of_decisions_are_points():
    sch = Schedule(_chain(), seed=1)
    _schedule_chain(sch)
    spaces = DesignSpaces([sch.trace])
    _, point = spaces.find(sch.trace)
    # The choice, the parallel extent, and the compute location of the first block.
    assert point == (1, 8, 0)
    replayed = _replayer(_chain()).replay(spaces.trace((0, (2, 4, 1))))
    assert spaces.find(replayed.trace) == (0, (2, 4, 1))


def test_legal_values_are_found_by_replay():
    sch = Schedule(_chain(), seed=1)
    _schedule_chain(sch)
    trace = DesignSpaces([sch.trace]).trace((0, (1, 8, 0)))
    replayer = _replayer(_chain(), [ms.postproc.RewriteParallelVectorizeUnroll()])
    prober = Prober(replayer, largest_parallel_extent([sch.trace]))
    sketch = Sketch.from_trace(trace)
    around = prober.neighborhood(sketch, trace)
    # The first block may stay where it is (-1), be inlined (-2), or go to one of two loops.
    assert around.axes[2] == OrderedAxis(2, (-2, -1, 0, 1))
    assert around.axes[0] == OrderedAxis(0, (0, 1, 2))
    assert 8 in around.axes[1].values


def test_replayer_counts_what_it_drops():
    @derived_object
    class AlwaysFailPostproc(ms.postproc.PyPostproc):
        """A postproc that always fails."""

        def _initialize_with_tune_context(self, context: ms.TuneContext) -> None:
            pass

        def apply(self, sch: Schedule) -> bool:
            return False

        def clone(self) -> "AlwaysFailPostproc":
            return AlwaysFailPostproc()

    trace = _scheduled().trace
    assert _replayer().replay(trace).module == Candidate.from_schedule(_scheduled()).module
    fails = _replayer(postprocs=[AlwaysFailPostproc()])
    assert fails.replay(trace) is None
    assert sum(fails.dropped.values()) == 1


def test_history_takes_over_a_database():
    mod, sch = _matmul(), _scheduled()
    database = ms.database.MemoryDatabase()
    workload = database.commit_workload(mod)
    for target, secs in [
        (TARGET, [2.0, 4.0]),
        (tvm.target.Target({"kind": "llvm", "num-cores": 2}), [1.0]),
    ]:
        record = ms.database.TuningRecord(sch.trace, workload, secs, target)
        database.commit_tuning_record(record)
    history = History(mod, TARGET)
    history.load(database, _replayer(mod))
    assert len(history) == 1
    assert history.ignored == {"another target": 1}
    assert history.best().secs == (2.0, 4.0)
    assert Candidate.from_schedule(sch) in history


def test_failures_have_no_times():
    assert valid_secs([0.5, 0.25]) == (0.5, 0.25)
    for failed in (None, [], [1e10], [0.5, float("inf")], [0.0], [float("nan")]):
        assert valid_secs(failed) == ()


if __name__ == "__main__":
    tvm.testing.main()
