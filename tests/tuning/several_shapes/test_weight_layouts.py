# SPDX-License-Identifier: Apache-2.0
"""Which schedule a kernel of another shape takes, by made-up times."""

from types import SimpleNamespace

import pytest
from tvm_ffi import structural_hash

from tvm import IRModule, te
from tvm.s_tir import Schedule
from tvm.s_tir.meta_schedule.database import JSONDatabase, MemoryDatabase, TuningRecord
from tvm.s_tir.meta_schedule.testing import te_workload
from tvm.target import Target
from tvm_droplet_ms.session.database import open_database
from tvm_droplet_ms.tuning.schedules import database_of
from tvm_droplet_ms.tuning.several_shapes import weight_layouts
from tvm_droplet_ms.tuning.several_shapes.weight_layouts import WeightLayouts

TARGET = Target({"kind": "llvm", "num-cores": 1})
MOD = IRModule({"main": te.create_prim_func(te_workload.matmul(8, 8, 8))})
KNOWN, OTHER = ("shapes", 1), ("shapes", 2)


def record(micros: float, parts: int) -> TuningRecord:
    """A schedule that splits the first loop into parts, of some microseconds."""
    schedule = Schedule(MOD)
    loop = schedule.get_loops(schedule.get_sblock("C"))[0]
    schedule.split(loop, [parts, None])
    workload = MemoryDatabase().commit_workload(MOD)
    return TuningRecord(schedule.trace, workload, [micros * 1e-6], TARGET)


@pytest.fixture
def layouts(tmp_path, monkeypatch):
    """Schedules in two parts have a layout that another shape has; others have another one."""
    JSONDatabase(work_dir=str(tmp_path))
    weights = frozenset({("float32 (8, 8)", b"weight")})
    monkeypatch.setattr(weight_layouts, "weights_of", lambda _: {structural_hash(MOD): weights})
    made = WeightLayouts(tmp_path, TARGET)
    made._taken = {(KNOWN, *weights)}
    monkeypatch.setattr(
        made, "_of", lambda one: frozenset({KNOWN if "[2, None]" in str(one.trace) else OTHER})
    )
    return made, open_database(tmp_path)


def chosen(layouts: WeightLayouts, current: TuningRecord) -> TuningRecord | None:
    kernels = SimpleNamespace(
        tasks=[SimpleNamespace(dispatched=[MOD])],
        chosen={},
        schedules=lambda: database_of([current]),
    )
    layouts.choose(kernels)
    return kernels.chosen.get(structural_hash(MOD))


@pytest.mark.parametrize(("micros", "is_taken"), [(10.9, True), (11.2, False)])
def test_a_known_layout_may_cost_a_tenth(layouts, micros, is_taken):
    made, database = layouts
    best, shared = record(10.0, 4), record(micros, 2)
    for one in (best, shared):
        database.commit_workload(MOD)
        database.commit_tuning_record(one)
    found = chosen(made, best)
    assert (found is not None) == is_taken
    if found is not None:
        assert str(found.trace) == str(shared.trace)


def test_a_measured_pick_that_is_faster_than_all_records_stays(layouts):
    made, database = layouts
    database.commit_workload(MOD)
    database.commit_tuning_record(record(20.0, 2))
    assert chosen(made, record(10.0, 4)) is None
    assert chosen(made, record(19.0, 4)) is not None


def test_a_faster_schedule_that_is_measured_later_takes_the_place_of_a_shared_one(layouts):
    made, database = layouts
    database.commit_workload(MOD)
    database.commit_tuning_record(record(10.0, 2))
    key = structural_hash(MOD)
    best = [record(10.0, 2)]
    kernels = SimpleNamespace(
        tasks=[SimpleNamespace(dispatched=[MOD])],
        chosen={},
        schedules=lambda: database_of(best),
    )
    made.choose(kernels)
    assert key in kernels.chosen
    best[0] = record(5.0, 4)
    database.commit_tuning_record(best[0])
    made.choose(kernels)
    assert key not in kernels.chosen


def test_a_schedule_that_was_chosen_for_its_outputs_stays(layouts):
    made, database = layouts
    database.commit_workload(MOD)
    database.commit_tuning_record(record(10.0, 2))
    right = record(50.0, 8)
    kernels = SimpleNamespace(
        tasks=[SimpleNamespace(dispatched=[MOD])],
        chosen={structural_hash(MOD): right},
        schedules=lambda: database_of([right]),
    )
    for _ in range(2):
        made.choose(kernels)
        assert kernels.chosen == {structural_hash(MOD): right}
