# SPDX-License-Identifier: Apache-2.0
"""One call that tunes a kernel, on real kernels of microseconds."""

import json
import os
import re
import signal

import filelock
import numpy as np
import pytest
from made_up_measuring import quick_tune

import tvm
from tvm import te
from tvm.ir import IRModule
from tvm.ir.utils import derived_object
from tvm.s_tir import Schedule, TensorIntrin
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.testing import te_workload
from tvm.script import tirx as T
from tvm_droplet_ms.tuning.kernel import KernelError, tune_kernel
from tvm_droplet_ms.tuning.kernel.measuring import KernelRun

# After `tuned`, a kernel that is chosen as users have it.
pytestmark = pytest.mark.usefixtures("one_check")
MATMUL = IRModule({"main": te.create_prim_func(te_workload.matmul(64, 64, 64))})


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    lines = []
    work_dir = tmp_path_factory.mktemp("matmul")
    # Packed weights would not be the argument that the caller passes.
    kernel = MATMUL["main"].with_attr("layout_free_buffers", [1])
    result = tune_kernel(kernel, trials=8, work_dir=work_dir, name="product", progress=lines.append)
    return result, lines


def records(work_dir):
    path = work_dir / "database_tuning_record.json"
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_the_winner_computes_the_kernel_and_is_written(tuned, tmp_path):
    result, _ = tuned
    generator = np.random.default_rng(1)
    a, b = (generator.standard_normal((64, 64)).astype("float32") for _ in range(2))
    *_, c = result(a, b, np.zeros((64, 64), "float32"))
    np.testing.assert_allclose(c, a @ b, rtol=1e-4, atol=1e-4)
    result.export(tmp_path / "product.so")
    tensors = [tvm.runtime.tensor(array) for array in (a, b, np.zeros_like(a))]
    tvm.runtime.load_module(str(tmp_path / "product.so"))["main"](*tensors)
    np.testing.assert_array_equal(tensors[2].numpy(), c)
    with pytest.raises(KernelError, match="2 arrays are given, expected A, B, C"):
        result(a, b)


def test_the_result_says_what_was_done(tuned):
    result, lines = tuned
    assert (result.trials, result.known_trials, result.why_ended) == (8, 0, "trials")
    assert result.verified and result.deviation < 1e-5 and not result.wrong
    # LLVM's intermediate representation.
    assert re.search(r"^define .*main", result.source(), re.MULTILINE)
    assert result.time.low <= result.time.secs <= result.time.high < result.untuned.secs
    assert result.gflops == pytest.approx(2 * 64**3 / result.time.secs / 1e9)
    content = json.loads(result.as_json())
    assert content["microseconds"]["median"] == pytest.approx(1e6 * result.time.secs)
    assert content["verified"] is True
    assert "8 schedules measured" in str(result)
    assert re.match("product: (explore|descend), 8 of 8 trials, best ", lines[-1])


def test_each_batch_is_an_event_in_the_work_directory(tuned):
    result, _ = tuned
    path = result.work_dir / "progress.jsonl"
    events = [json.loads(line) for line in path.read_text().splitlines()][: result.trials]
    first = [event for event in events if event["of"] == 8]
    assert first[-1]["trials"] == 8 and first[-1]["task"] == "product"
    best = min(row[1][1][0] for row in records(result.work_dir) if row[1][1])
    assert 1e-6 * first[-1]["best_us"] == pytest.approx(best, rel=0.5)


def test_callbacks_are_told_each_batch(tmp_path, monkeypatch):
    """The processes that measure have the threads that are asked for."""
    told = []
    monkeypatch.setenv("TVM_NUM_THREADS", "7")

    @derived_object
    class Tell(ms.measure_callback.PyMeasureCallback):
        def apply(self, task_scheduler, task_id, measure_candidates, builder_results, results):
            told.append(len(results))
            assert os.environ["TVM_NUM_THREADS"] == "2"

    result = quick_tune(MATMUL, tmp_path, threads=2, callbacks=[Tell()])
    assert sum(told) == result.trials == 4
    assert os.environ["TVM_NUM_THREADS"] == "7"


def test_the_schedule_replays_as_python(tuned):
    result, _ = tuned
    schedule = Schedule(result.mod_before)
    scope = {"s_tir": tvm.s_tir}
    exec(result.trace.partition("\n")[2], scope)  # Without the comment on the import.
    scope["apply_trace"](schedule)
    tvm.ir.assert_structural_equal(schedule.mod, result.mod)


def test_tvm_applies_the_winner_too(tuned):
    result, _ = tuned
    database = ms.database.JSONDatabase(work_dir=str(result.work_dir))
    schedule = ms.tir_integration.compile_tir(database, MATMUL, result.target)
    tvm.ir.assert_structural_equal(schedule.mod, result.mod)


def test_the_same_directory_goes_on(tuned):
    result, _ = tuned
    before = records(result.work_dir)
    again = tune_kernel(MATMUL, trials=8, work_dir=result.work_dir, progress=None)
    assert (again.trials, again.known_trials) == (0, 8)
    assert len(records(result.work_dir)) == len(before)
    more = tune_kernel(MATMUL, trials=12, work_dir=result.work_dir, progress=None)
    assert (more.trials, more.known_trials) == (4, 8)
    found = records(result.work_dir)
    assert len(found) == 12
    assert len({json.dumps(row[1][0]) for row in found}) == 12


def test_a_target_latency_ends_after_the_first_batch(tmp_path):
    result = quick_tune(MATMUL, tmp_path, trials=64, target_latency_us=1e6)
    assert result.why_ended == "target"
    assert result.trials <= 8


def test_a_signal_ends_the_run_with_what_it_has(tmp_path):
    """SIGTERM, which nothing ignores, after the first line."""

    def end(_line):
        os.kill(os.getpid(), signal.SIGTERM)

    result = quick_tune(MATMUL, tmp_path, trials=64, progress=end)
    assert result.why_ended == "interrupt"
    assert result.verified and result.trials <= 8


def test_a_signal_during_the_check_ends_the_program_that_called(tmp_path, monkeypatch):
    """The result is complete; a caller with further kernels sees the interrupt."""
    choose = KernelRun.choose

    def interrupted(run, *arguments):
        os.kill(os.getpid(), signal.SIGTERM)
        return choose(run, *arguments)

    monkeypatch.setattr(KernelRun, "choose", interrupted)
    result = quick_tune(MATMUL, tmp_path, trials=2)
    assert result.why_ended == "interrupt"
    assert result.verified and result.trials == 2


def test_a_second_writer_is_refused(tmp_path):
    with filelock.FileLock(tmp_path / ".lock"):
        with pytest.raises(KernelError, match="another process tunes in"):
            tune_kernel(MATMUL, trials=4, work_dir=tmp_path)


@T.prim_func(s_tir=True)
def row_of_products(a: T.handle, b: T.handle, c: T.handle) -> None:
    A = T.match_buffer(a, (1, 64), "float32", offset_factor=1)
    B = T.match_buffer(b, (64, 64), "float32", offset_factor=1)
    C = T.match_buffer(c, (1, 64), "float32", offset_factor=1)
    with T.sblock("root"):
        T.reads(C[0:1, 0:64], A[0:1, 0:64], B[0:64, 0:64])
        T.writes(C[0:1, 0:64])
        for j, k in T.grid(64, 64):
            with T.sblock("update"):
                vj, vk = T.axis.remap("SR", [j, k])
                C[0, vj] = C[0, vj] + A[0, vk] * B[vk, vj]


@T.prim_func(s_tir=True)
def nothing(a: T.handle, b: T.handle, c: T.handle) -> None:
    A = T.match_buffer(a, (1, 64), "float32", offset_factor=1)
    B = T.match_buffer(b, (64, 64), "float32", offset_factor=1)
    C = T.match_buffer(c, (1, 64), "float32", offset_factor=1)
    with T.sblock("root"):
        T.reads(C[0:1, 0:64], A[0:1, 0:64], B[0:64, 0:64])
        T.writes(C[0:1, 0:64])
        C[0, 0] = A[0, 0] * B[0, 0]


TensorIntrin.register("droplet_ms_tests.nothing", row_of_products, nothing, override=True)


class TestWrong:
    """An intrinsic that is fast, because it computes nothing."""

    def test_is_never_handed_over(self, tmp_path):
        spaces = ms.space_generator.SpaceGeneratorUnion(
            [ms.space_generator.ScheduleFn(space) for space in (right, fast_and_wrong)]
        )
        result = quick_tune(MATMUL, tmp_path, space=spaces)
        assert result.verified
        assert len(result.wrong) == 1
        assert "argument 'C' differs by" in result.wrong[0]
        times = [row[1][1][0] for row in records(tmp_path)]
        assert times.count(1e10) == 1
        database = ms.database.JSONDatabase(work_dir=str(tmp_path))
        schedule = ms.tir_integration.compile_tir(database, MATMUL, result.target)
        assert "nothing" not in str(schedule.trace)

    def test_alone_ends_in_words(self, tmp_path):
        words = "none of the 1 measured schedules of kernel computes"
        with pytest.raises(KernelError, match=words):
            quick_tune(MATMUL, tmp_path, space=ms.space_generator.ScheduleFn(fast_and_wrong))


def right(schedule: Schedule) -> None:
    schedule.get_sblock("C")


def fast_and_wrong(schedule: Schedule) -> None:
    block = schedule.get_sblock("C")
    _, j, _ = schedule.get_loops(block)
    schedule.decompose_reduction(block, j)
    update = schedule.get_sblock("C_update")
    schedule.tensorize(schedule.get_loops(update)[1], "droplet_ms_tests.nothing")
