# SPDX-License-Identifier: Apache-2.0
"""Replays of traces, against TVM itself on real design spaces."""

import json
import random
import threading
from collections import Counter

import pytest
from real_spaces import SOME_SPACES, TARGET, Space, two_stages
from tvm_ffi import structural_equal, structural_hash

import tvm
from tvm import te
from tvm.ir.utils import derived_object
from tvm.s_tir import Schedule, ScheduleError, Trace
from tvm.s_tir import meta_schedule as ms
from tvm.te import create_prim_func
from tvm_droplet_ms.search_strategy.candidates import ScreenedReplayer


@pytest.fixture(params=SOME_SPACES, ids=lambda case: f"{case[0]}-{case[1]}")
def space(request):
    return Space(*request.param)


def test_replay_makes_the_same_module_as_tvm(space):
    """The postprocessors are run again, and not taken from the trace."""
    candidate = space.sample()
    sch = Schedule(space.context.mod, debug_mask="none")
    candidate.trace.apply_to_schedule(sch, remove_postproc=True)
    sch.enter_postproc()
    assert all(post.apply(sch) for post in space.context.space_generator.postprocs)
    again = space.replayer.replay(candidate.trace)
    assert structural_equal(again.schedule.mod, sch.mod)
    assert again.module == candidate.module == structural_hash(sch.mod)


def test_measure_candidate_has_the_module_and_the_argument_shapes():
    candidate = Space("matmul", 0).sample()
    measured = candidate.measure_candidate()
    assert structural_equal(measured.sch.mod, candidate.schedule.mod)
    shapes = [[int(extent) for extent in info.shape] for info in measured.args_info]
    assert shapes == [[60, 1470], [1470, 257], [60, 257]]


def test_restore_makes_the_module_that_was_recorded(space):
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


def test_restore_of_a_trace_of_another_workload_raises():
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


def test_rejecting_postprocessor_is_counted_by_name():
    mod, trace = dynamic_module_and_trace()
    replayer = ScreenedReplayer(mod, [ms.postproc.DisallowDynamicLoop()], random.Random(1))
    assert replayer.replay(trace) is None
    assert replayer.replay(trace) is None
    assert replayer.dropped == Counter({"s_tir.meta_schedule.DisallowDynamicLoop": 2})
    assert ScreenedReplayer(mod, [], random.Random(1)).replay(trace) is not None


def dynamic_module_and_trace():
    rows = te.var("n")
    a = te.placeholder((rows, 8), name="A")
    b = te.compute((rows, 8), lambda i, j: a[i, j] + 1.0, name="B")
    mod = tvm.IRModule({"main": create_prim_func([a, b])})
    return mod, Schedule(mod).trace


@pytest.mark.parametrize(
    ("answer", "suffix"), [(False, ""), (ValueError("made up"), ": ValueError")]
)
def test_postprocessor_of_the_user_that_rejects_or_raises_is_counted(answer, suffix):
    mod = two_stages(8, 8)
    post = Fickle(answer)
    passes = Fickle(True)
    replayer = ScreenedReplayer(mod, [passes, post], random.Random(1))
    assert replayer.replay(Schedule(mod).trace) is None
    assert replayer.dropped == Counter({f"{post}{suffix}": 1})
    accepting = ScreenedReplayer(mod, [passes], random.Random(1))
    assert accepting.replay(Schedule(mod).trace) is not None
    assert not accepting.dropped


@pytest.mark.parametrize("case", [("conv2d_nhwc", 0), ("primes", 0)])
def test_same_seed_samples_the_same_modules(case):
    first, second = Space(*case), Space(*case)
    modules = [first.sample().module for _ in range(5)]
    assert modules == [second.sample().module for _ in range(5)]
    assert len(set(modules)) > 1


@pytest.mark.parametrize("case", [("conv2d_nhwc", 0), ("primes", 0)])
def test_threads_replay_what_one_thread_replays(case):
    space = Space(*case)
    mod, postprocs = space.context.mod, space.context.space_generator.postprocs
    alone = ScreenedReplayer(mod, postprocs, random.Random(1))
    shared = ScreenedReplayer(mod, postprocs, random.Random(1), num_threads=3)
    other = Space("softmax", 0).sample().trace
    traces = [Trace(space.sample().trace.insts, {}) for _ in range(12)] + [other]
    expected = [alone.replay(trace) for trace in traces]
    found = shared.replay_all(traces)
    assert [c and c.module for c in found] == [c and c.module for c in expected]
    assert expected[-1] is None
    assert shared.dropped == alone.dropped


@derived_object
class Meeting(ms.postproc.PyPostproc):
    """Passes where as many threads apply it at once as the barrier has parties."""

    def __init__(self, barrier):
        super().__init__()
        self.barrier = barrier

    def _initialize_with_tune_context(self, context):
        pass

    def apply(self, sch):
        self.barrier.wait(timeout=20.0)
        return True

    def clone(self):
        return Meeting(self.barrier)


def test_traces_are_replayed_at_once():
    mod = two_stages(8, 8)
    replayer = ScreenedReplayer(
        mod, [Meeting(threading.Barrier(2))], random.Random(1), num_threads=2
    )
    assert None not in replayer.replay_all([Schedule(mod).trace] * 4)
    assert replayer.replay_all([]) == []
