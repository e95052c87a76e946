# SPDX-License-Identifier: Apache-2.0
"""Known decisions of other models are kept, and refitted to new tasks."""

import pytest
from conformance.driving import FixedModel

from tvm import te
from tvm.ir import IRModule
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.database import JSONDatabase, TuningRecord
from tvm.s_tir.meta_schedule.testing import te_workload
from tvm.target import Target
from tvm_droplet_ms.search_strategy.design_spaces import EncodedSpaces
from tvm_droplet_ms.search_strategy.known_schedules import (
    TunedTask,
    find_schedules,
    nearest_points,
    read_schedules,
    write_schedules,
)
from tvm_droplet_ms.tuning.experience.shipped_schedules import best_schedules, main
from tvm_droplet_ms.tuning.picks.pick_sampling import PickRequest, sample_pick

TARGET = Target({"kind": "llvm", "num-cores": 1})


def matmul(rows, columns, depth):
    return IRModule({"main": te.create_prim_func(te_workload.matmul(rows, columns, depth))})


def schedules_of(mod):
    context = ms.TuneContext(
        mod, target=TARGET, space_generator="post-order-apply", rand_state=3, num_threads=1
    )
    return context.generate_design_space()


def record(database, mod, times):
    """Commit one schedule for each time; returns their traces."""
    workload = database.commit_workload(mod)
    traces = [schedules_of(mod)[index % 3].trace for index in range(len(times))]
    for trace, secs in zip(traces, times, strict=True):
        database.commit_tuning_record(TuningRecord(trace, workload, secs, TARGET))
    return traces


def test_best_record_of_each_workload_is_kept(tmp_path):
    one = JSONDatabase(work_dir=make(tmp_path / "a"))
    other = JSONDatabase(work_dir=make(tmp_path / "b"))
    slow, fast, failed = record(one, matmul(32, 64, 16), [[2e-3], [1e-3], [1e10]])
    (faster,) = record(other, matmul(32, 64, 16), [[5e-4, 7e-4]])
    (alone,) = record(other, matmul(64, 64, 64), [[1.0]])
    assert best_schedules([one]) == [TunedTask.from_trace(fast)]
    assert set(best_schedules([one, other])) == {
        TunedTask.from_trace(faster),
        TunedTask.from_trace(alone),
    }


def make(folder):
    folder.mkdir()
    return str(folder)


def test_command_writes_what_is_read_again(tmp_path, capsys):
    database = JSONDatabase(work_dir=make(tmp_path / "logs"))
    traces = record(database, matmul(32, 64, 16), [[1e-3]])
    main([str(tmp_path / "logs"), "--out", str(tmp_path / "known.jsonl")])
    assert read_schedules(tmp_path / "known.jsonl") == (TunedTask.from_trace(traces[0]),)
    assert "1 schedules" in capsys.readouterr().out


@pytest.mark.parametrize(
    "line", ["{", "[]", '["s", [["SampleNothing", 1]]]', '["s", [["SamplePerfectTile", 1.5]]]']
)
def test_faulty_line_is_named(tmp_path, line):
    path = tmp_path / "known.jsonl"
    write_schedules(path, [TunedTask("s", ("SamplePerfectTile",), ((2, 4),))])
    path.write_text(path.read_text() + line + "\n")
    with pytest.raises(ValueError, match=r"line 2 of .*known\.jsonl"):
        read_schedules(path)


@pytest.mark.parametrize("cpu", ["znver4", "haswell", "x86-64"])
def test_shipped_schedules_are_read(cpu):
    shipped = find_schedules("auto", Target({"kind": "llvm", "mcpu": cpu}))
    assert len(shipped) > 100
    assert len(set(shipped)) == len(shipped)


def test_narrow_vectors_have_schedules_of_their_own():
    wide, *others = (
        set(find_schedules("auto", Target({"kind": "llvm", **target})))
        for target in (
            {"mcpu": "znver4"},
            {"mcpu": "znver3"},
            {"mcpu": "x86-64"},
            {"mcpu": "znver4", "mattr": ["-avx512f"]},
            {"mtriple": "aarch64-linux-gnu"},
        )
    )
    assert all(other == others[0] for other in others) and wide != others[0]


def test_nearest_of_known_schedules_come_first_and_keep_inner_tiles():
    new = EncodedSpaces([schedule.trace for schedule in schedules_of(matmul(128, 64, 16))])
    near = TunedTask.from_trace(schedules_of(matmul(64, 64, 16))[0].trace)
    far = TunedTask.from_trace(schedules_of(matmul(4, 4, 2))[0].trace)
    (index, point), *others = nearest_points([far, near], new, 3)
    assert len(others) <= 2
    tile = new.sketches[index].decisions[0].value(point)
    old = near.values[0]
    # One loop is twice as long: the outermost factor takes the rest of a power of two.
    assert tile == (2 * old[0], *old[1:])
    assert nearest_points([far, near], new, 1) == [(index, point)]
    assert nearest_points([], new, 3) == []


pytestmark = pytest.mark.usefixtures("fast_contexts")


def recording(seen, wanted=()):
    """A cost model that adds modules to ``seen``, and predicts 1 for a wanted one, 0 for others."""

    def score(candidate):
        seen.add(text := str(candidate.sch.mod))
        return float(text in wanted)

    return FixedModel(score)


@pytest.fixture
def known(tmp_path):
    """A kernel, a file with a known schedule, and the kernel's points nearest to it, first best."""
    mod = matmul(128, 64, 16)
    donor = TunedTask.from_trace(schedules_of(matmul(64, 64, 16))[0].trace)
    path = tmp_path / "known.jsonl"
    write_schedules(path, [donor])
    spaces = EncodedSpaces([schedule.trace for schedule in schedules_of(mod)])
    return mod, path, nearest_points([donor], spaces, 16)


def test_pick_is_a_known_schedule_where_the_model_prefers_it(known):
    mod, path, points = known
    random_only, asked = set(), set()
    without = PickRequest(mod, TARGET, 4, 0, known=None)
    request = PickRequest(mod, TARGET, 4, 0, known=path)
    assert not set(points) & set(sample_pick(without, recording(random_only)).points)
    sample_pick(request, recording(asked))
    added = asked - random_only
    assert len(added) == len(points)
    assert sample_pick(request, recording(set(), added)).points[0] in points


def test_without_a_model_the_nearest_known_schedule_is_picked(known):
    mod, path, points = known
    request = PickRequest(mod, TARGET, 1, 0, known=path)
    assert sample_pick(request, None).points == tuple(points[:1])


def test_missing_file_is_named(tmp_path):
    with pytest.raises(ValueError, match="nothing-here.*no such file"):
        find_schedules(tmp_path / "nothing-here.jsonl", Target("llvm"))
