# SPDX-License-Identifier: Apache-2.0
"""Test Meta Schedule's Droplet search strategy"""

# pylint: disable=missing-function-docstring,missing-class-docstring

from collections import Counter

import pytest
from tvm_ffi import structural_hash

import tvm
import tvm.testing
from tvm import te
from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.schedule import Schedule

TARGET = tvm.target.Target({"kind": "llvm", "num-cores": 1})


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


def _context(strategy, postprocs=(), sch_fn=_schedule_matmul) -> ms.TuneContext:
    return ms.TuneContext(
        mod=_matmul(),
        target=TARGET,
        space_generator=ms.space_generator.ScheduleFn(
            sch_fn, sch_rules=[], postprocs=list(postprocs), mutator_probs=_MUTATORS
        ),
        search_strategy=strategy,
        rand_state=1,
        num_threads=1,
    )


_MUTATORS = {ms.mutator.MutateTileSize(): 1.0}


def _droplet(**options) -> ms.SearchStrategy:
    evolution = ms.search_strategy.EvolutionarySearch(
        population_size=16, init_min_unmeasured=8, genetic_num_iters=1
    )
    return ms.search_strategy.DropletSearch(evolution=evolution, **options)


def _tiles(sch: Schedule) -> list[list[int]]:
    trace = sch.trace
    insts = [inst for inst in trace.insts if inst.kind.name == "SamplePerfectTile"]
    return [[int(factor) for factor in trace.decisions[inst]] for inst in insts]


def _cost(sch: Schedule) -> float:
    return 1e-3 * (1 + sum(abs(tile[-1].bit_length() - 4) for tile in _tiles(sch)))


def _tune(context, max_trials=20, num_trials_per_iter=7, database=None, fails=False):
    """Measure what the strategy proposes with made-up times; returns the batches."""
    strategy = context.search_strategy
    database = ms.database.MemoryDatabase() if database is None else database
    model = ms.cost_model.RandomModel(seed=1)
    context.pre_tuning(max_trials, num_trials_per_iter, database=database, cost_model=model)
    batches = []
    while (candidates := strategy.generate_measure_candidates()) is not None:
        secs = [_cost(candidate.sch) for candidate in candidates]
        results = [
            ms.runner.RunnerResult(None, "failed")
            if fails
            else ms.runner.RunnerResult([0.99 * sec, sec, 1.01 * sec], None)
            for sec in secs
        ]
        strategy.notify_runner_results(candidates, results)
        workload = database.commit_workload(context.mod)
        for candidate, result in zip(candidates, results):
            record = ms.database.TuningRecord(
                candidate.sch.trace,
                workload,
                [1e10] if fails else list(result.run_secs),
                context.target,
                candidate.args_info,
            )
            database.commit_tuning_record(record)
        batches.append(candidates)
    strategy.post_tuning()
    return batches


def test_meta_schedule_droplet():
    batches = _tune(_context(_droplet(explore_trials=10)), max_trials=60)
    assert [len(batch) for batch in batches][:2] == [7, 3]
    assert all(0 < len(batch) <= 7 for batch in batches)
    modules = Counter(structural_hash(one.sch.mod) for batch in batches for one in batch)
    assert max(modules.values()) == 1
    costs = [_cost(candidate.sch) for batch in batches for candidate in batch]
    assert min(costs) == 1e-3
    assert len(costs) < 60, "the search ends at a local optimum"


def test_meta_schedule_droplet_explores_for_half_of_the_trials():
    batches = _tune(_context(_droplet()), max_trials=20)
    assert [len(batch) for batch in batches][:2] == [7, 3]


def test_meta_schedule_droplet_is_reproducible():
    tiles = [
        [_tiles(candidate.sch) for batch in _tune(_context(strategy)) for candidate in batch]
        for strategy in (_droplet(), _droplet().clone())
    ]
    assert tiles[0] == tiles[1]


def test_meta_schedule_droplet_resumes():
    database = ms.database.MemoryDatabase()
    first = _tune(_context(_droplet(explore_trials=10)), max_trials=12, database=database)
    second = _tune(_context(_droplet(explore_trials=10)), max_trials=60, database=database)
    modules = [
        {structural_hash(one.sch.mod) for batch in batches for one in batch}
        for batches in (first, second)
    ]
    assert len(modules[0]) == 12
    assert modules[1] and not modules[0] & modules[1]


def test_meta_schedule_droplet_all_fail():
    batches = _tune(_context(_droplet(explore_trials=4)), max_trials=15, fails=True)
    assert sum(map(len, batches)) == 15


def test_meta_schedule_droplet_early_stop():
    batches = _tune(_context(_droplet(), sch_fn=lambda sch: None), max_trials=100)
    assert [len(batch) for batch in batches] == [1]


def test_meta_schedule_droplet_fail_init_population():
    @derived_object
    class AlwaysFailPostproc(ms.postproc.PyPostproc):
        """A postproc that always fails."""

        def _initialize_with_tune_context(self, context: ms.TuneContext) -> None:
            pass

        def apply(self, sch: Schedule) -> bool:
            return False

        def clone(self) -> "AlwaysFailPostproc":
            return AlwaysFailPostproc()

    assert _tune(_context(_droplet(), postprocs=[AlwaysFailPostproc()])) == []


def test_meta_schedule_droplet_calls_out_of_turn():
    context = _context("droplet")
    strategy = context.search_strategy
    with pytest.raises(ValueError, match="call pre_tuning first"):
        strategy.generate_measure_candidates()
    context.pre_tuning(10, 5)
    with pytest.raises(ValueError, match="pre_tuning was called twice"):
        context.pre_tuning(10, 5)
    candidates = strategy.generate_measure_candidates()
    with pytest.raises(ValueError, match="call notify_runner_results first"):
        strategy.generate_measure_candidates()
    with pytest.raises(ValueError, match="expected 5 of each"):
        strategy.notify_runner_results(candidates, [])
    strategy.post_tuning()
    with pytest.raises(ValueError, match="call pre_tuning first"):
        strategy.post_tuning()


def test_search_strategy_create_droplet():
    strategy = ms.SearchStrategy.create("droplet", explore_trials=3)
    assert isinstance(strategy, ms.SearchStrategy)
    assert isinstance(strategy.clone(), ms.SearchStrategy)
    with pytest.raises(ValueError, match="explore_trials is 0"):
        ms.SearchStrategy.create("droplet", explore_trials=0)


def test_tune_tir_droplet(tmp_path):
    database = ms.tune_tir(
        _matmul(),
        TARGET,
        str(tmp_path),
        max_trials_global=12,
        num_trials_per_iter=6,
        builder=ms.builder.LocalBuilder(
            max_workers=1, f_build=lambda mod, target, _: tvm.tirx.build(mod, target=target)
        ),
        runner=ms.runner.LocalRunner(
            evaluator_config=ms.runner.EvaluatorConfig(number=1, repeat=3, min_repeat_ms=0)
        ),
        cost_model="random",
        strategy="droplet",
        space=ms.space_generator.ScheduleFn(
            _schedule_matmul, sch_rules=[], postprocs=[], mutator_probs=_MUTATORS
        ),
        num_tuning_cores=1,
        seed=1,
    )
    records = database.get_all_tuning_records()
    assert 6 < len(records) <= 12
    assert all(float(record.run_secs[0]) < 1.0 for record in records)


if __name__ == "__main__":
    tvm.testing.main()
