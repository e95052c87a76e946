# SPDX-License-Identifier: Apache-2.0
"""The workbench: real lowering, a real database, and a tuner that makes its times up."""

import json

import pytest
from tvm_ffi import structural_hash

from tvm import relax
from tvm.s_tir import Schedule
from tvm.s_tir.meta_schedule.database import MemoryDatabase, TuningRecord
from tvm.target import Target
from tvm_droplet_ms.model.kernels.weights.weight_marks import reuses_weights
from tvm_droplet_ms.session.stop import StopRequest
from tvm_droplet_ms.tuning.budget.priorities import Stake
from tvm_droplet_ms.tuning.compile.lowering import lower
from tvm_droplet_ms.tuning.model_kernels import ModelKernels
from tvm_droplet_papers.graph.equality.language import Tensor, operator
from tvm_droplet_papers.graph.pricing import workbench
from tvm_droplet_papers.graph.pricing.deciding_kernels import FIRST_TRIALS as TRIALS
from tvm_droplet_papers.graph.pricing.kernel_module import kernel_module, workloads_of
from tvm_droplet_papers.graph.pricing.kernels import Kernel
from tvm_droplet_papers.graph.pricing.price_file import FILE_NAME, PriceFile, StoredPrice
from tvm_droplet_papers.graph.pricing.workbench import InTurns, Workbench

TARGET = Target({"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": 1})


def f32(*shape):
    return Tensor(shape, "float32")


def convolution(channels, layout="NHWC"):
    kernel_layout, image = {
        "NHWC": ("HWIO", f32(1, 8, 8, channels)),
        "NCHW": ("OIHW", f32(1, channels, 8, 8)),
    }[layout]
    shape = {"HWIO": (3, 3, channels, 16), "OIHW": (16, channels, 3, 3)}[kernel_layout]
    op = operator(
        "conv2d",
        strides=(1, 1),
        padding=(1, 1, 1, 1),
        dilation=(1, 1),
        groups=1,
        layout=layout,
        kernel_layout=kernel_layout,
    )
    return Kernel(op, (image, f32(*shape)), (False, True))


SOFTMAX = Kernel(operator("softmax", axis=1), (f32(4, 8),), (False,))
TRANSPOSE = Kernel(operator("permute_dims", axes=(1, 0)), (f32(4, 8),), (False,))


class FakeTuner:
    """A ``KernelTuner`` that measures nothing: it files times from a table."""

    def __init__(self, context, database, **_):
        self.target, self.database, self.note = context.target, database, context.note
        self.trials = 0
        self.tuned = []
        self.unscheduled = ()
        self.secs = lambda task: 1e-3
        made.append(self)

    def compile_by(self, deadline):
        """It compiles nothing."""

    def kernels(self, graph):
        return ModelKernels(graph, self.target, self.database)

    def pick(self, kernels, stop):
        for task in kernels.tasks:
            if any(task.task_name.startswith(name) for name in self.unscheduled):
                kernels.picks.unscheduled[task.task_name] = "made up"

    def tune(self, tasks, kernels, stop, trials, batch, each):
        assert each == batch
        for task in tasks:
            if task.task_name in kernels.picks.unscheduled:
                continue
            self.tuned.append(str(task.task_name))
            workload = self.database.commit_workload(task.dispatched[0])
            trace = Schedule(task.dispatched[0]).trace
            for index in range(batch):
                secs = self.secs(task) * (batch - index)
                self.database.commit_tuning_record(
                    TuningRecord(trace, workload, [secs], self.target)
                )
            self.trials += batch

    def close(self):
        pass


made = []


@pytest.fixture
def bench(tmp_path, monkeypatch):
    """Opens the directory anew with each call, as another process would."""
    notes = []
    monkeypatch.setattr(workbench, "KernelTuner", FakeTuner)

    def open_bench(target=TARGET):
        opened = Workbench(tmp_path, target, 1, notes.append, 0)
        return opened, made[-1], notes

    return open_bench


def timed(opened, kernels, trials=TRIALS):
    return opened.time(kernels, StopRequest(), trials)


def test_a_price_is_the_best_of_equal_trials_and_is_kept(bench):
    first, tuner, _ = bench()
    tuner.secs = lambda task: 3e-3 if "conv2d" in task.task_name else 1e-3
    kernels = [convolution(8), SOFTMAX]
    assert timed(first, kernels) == {kernels[0]: 3e-3, SOFTMAX: 1e-3}
    assert first.trials == 2 * TRIALS

    second, tuner, _ = bench()
    assert timed(second, [SOFTMAX, kernels[0]]) == {kernels[0]: 3e-3, SOFTMAX: 1e-3}
    assert second.trials == 0 and not tuner.tuned

    # What is new is timed, and only that.
    wanted = [*kernels, convolution(8, "NCHW")]
    assert len(timed(second, wanted)) == 3
    assert len(tuner.tuned) == 1 and second.trials == TRIALS


def test_kernels_have_prices_of_their_own(bench):
    """Layout, extents, and whether an operand is a weight each make another kernel."""
    one, opened = convolution(8), bench()[0]
    others = [
        convolution(8, "NCHW"),
        convolution(16),
        one._replace(weights=(False, False)),
        TRANSPOSE,
    ]
    timed(opened, [one, *others])
    assert made[-1].trials == 5 * TRIALS


def test_what_is_timed_is_the_kernel_of_the_model():
    """The hash of a kernel alone is that of the same call in a model with constants."""
    kernel = convolution(8)
    alone = lower(kernel_module([kernel]), TARGET)
    (workloads,) = workloads_of(alone, 1)
    image = relax.Var("image", relax.TensorType((1, 8, 8, 8), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [image]):
        with builder.dataflow():
            weight = relax.const([[[[0.5] * 16] * 8] * 3] * 3, "float32")
            call = relax.op.nn.conv2d(
                image, weight, padding=1, data_layout="NHWC", kernel_layout="HWIO"
            )
            result = builder.emit_output(call)
        builder.emit_func_output(result)
    tasks = ModelKernels(builder.get(), TARGET, MemoryDatabase()).tasks
    assert [structural_hash(task.dispatched[0]) for task in tasks] == workloads


def test_the_price_of_a_kernel_with_cached_weights_is_that_of_one_call(bench):
    product = Kernel(operator("matmul"), (f32(1, 8), f32(8, 16)), (False, True))
    opened, tuner, _ = bench()
    tuner.secs = lambda task: 1e-3 if reuses_weights(task.dispatched[0]) else 3e-3
    warm = product._replace(is_warm=True)
    assert timed(opened, [product, warm]) == {product: 3e-3, warm: 1e-3}
    assert opened.trials == 2 * TRIALS
    assert str(warm) == f"{product} with cached weights"


def test_more_trials_are_added_to_those_that_were_had(bench):
    first, tuner, _ = bench()
    tuner.secs = lambda task: 4e-3
    assert timed(first, [SOFTMAX]) == {SOFTMAX: 4e-3}
    tuner.secs = lambda task: 1e-3
    assert timed(first, [SOFTMAX], 3 * TRIALS) == {SOFTMAX: 1e-3}
    assert first.trials == 3 * TRIALS
    second, tuner, _ = bench()
    assert timed(second, [SOFTMAX]) == timed(second, [SOFTMAX], 3 * TRIALS) == {SOFTMAX: 1e-3}
    assert not tuner.tuned


def test_trials_that_an_interrupt_cut_off_are_made_up_for(bench):
    class Interrupted(StopRequest):
        is_due = False

    opened, tuner, _ = bench()
    timed(opened, [SOFTMAX])
    stop = Interrupted()
    tune = tuner.tune

    def cut_off(tasks, kernels, _stop, trials, batch, each):
        tune(tasks, kernels, _stop, trials, 1, 1)
        stop.is_due = True

    tuner.tune = cut_off
    opened.time([SOFTMAX], stop, 3 * TRIALS)
    assert opened.trials == TRIALS + 1
    again, tuner, _ = bench()
    timed(again, [SOFTMAX], 3 * TRIALS)
    assert again.trials == 2 * TRIALS - 1


def test_the_roofline_stays_where_nothing_can_be_scheduled(bench):
    first, tuner, notes = bench()
    tuner.unscheduled = ("softmax",)
    assert timed(first, [SOFTMAX, TRANSPOSE]) == {SOFTMAX: None, TRANSPOSE: 1e-3}
    assert any("softmax of 4x8 has no schedule" in note for note in notes)
    second, tuner, _ = bench()
    assert timed(second, [SOFTMAX]) == {SOFTMAX: None}
    assert not tuner.tuned


def test_one_kernel_that_tvm_refuses_does_not_take_the_others_with_it(bench):
    """A permutation of three axes of a matrix has no type."""
    refused = TRANSPOSE._replace(operator=operator("permute_dims", axes=(0, 1, 2)))
    opened, _, notes = bench()
    assert timed(opened, [refused, SOFTMAX]) == {refused: None, SOFTMAX: 1e-3}
    assert any("is no kernel of TVM's" in note for note in notes)


def test_failed_trials_are_no_price(bench):
    first, tuner, _ = bench()
    tuner.secs = lambda task: 1e10
    assert timed(first, [SOFTMAX]) == {SOFTMAX: None}
    assert timed(bench()[0], [SOFTMAX]) == {SOFTMAX: None}
    assert not made[-1].tuned


def test_without_time_only_known_prices_come_back(bench):
    opened, tuner, _ = bench()
    timed(opened, [SOFTMAX])
    late = StopRequest(deadline=0.0)
    assert opened.time([SOFTMAX, TRANSPOSE], late, TRIALS) == {SOFTMAX: 1e-3}
    # It was not found to be without a schedule: another call times it.
    assert timed(bench()[0], [TRANSPOSE]) == {TRANSPOSE: 1e-3}


def test_another_targets_prices_and_records_are_not_used(bench):
    timed(bench()[0], [SOFTMAX])
    other = Target({"kind": "llvm", "mcpu": "x86-64-v2", "num-cores": 1})
    opened, tuner, notes = bench(other)
    tuner.secs = lambda task: 7e-3
    assert timed(opened, [SOFTMAX]) == {SOFTMAX: 7e-3}
    assert any("1 prices of" in note and "other targets" in note for note in notes)


def test_trials_of_whole_graphs_are_topped_up(bench):
    opened, tuner, _ = bench()
    (graph,) = opened.graphs([kernel_module([SOFTMAX, TRANSPOSE])], StopRequest())
    timed(opened, [SOFTMAX])
    tuner.tuned.clear()
    assert opened.tune(graph, TRIALS, StopRequest())
    assert [name.rstrip("0123456789") for name in tuner.tuned] == ["transpose"]
    left_out = {w for w in graph.workloads if w not in workloads_of_softmax()}
    opened.tune(graph, 3 * TRIALS, StopRequest(), left_out)
    assert opened.trials == (1 + 1 + 2) * TRIALS
    assert opened.kernel_secs(graph) == pytest.approx(2e-3)


def workloads_of_softmax():
    return workloads_of(lower(kernel_module([SOFTMAX]), TARGET), 1)[0]


def test_torn_and_foreign_lines_are_skipped(tmp_path):
    file = PriceFile(tmp_path, "a")
    file.add("1", StoredPrice(8, 0.5))
    file.add("2", StoredPrice(0, None))
    with (tmp_path / FILE_NAME).open("a") as raw:
        raw.write(json.dumps({"key": "3", "target": "a", "trials": 8, "secs": -1.0}) + "\n")
        raw.write(json.dumps({"key": "4", "target": "b", "trials": 8, "secs": 1.0}) + "\n")
        raw.write('{"key": "5", "tar')
    again = PriceFile(tmp_path, "a")
    assert again.prices == {"1": StoredPrice(8, 0.5), "2": StoredPrice(0, None)}
    assert again.foreign == 1
    again.add("6", StoredPrice(8, 0.25))
    assert PriceFile(tmp_path, "a").prices["6"].secs == 0.25


def test_tasks_take_turns_until_they_end():
    rule = InTurns([Stake(1, 1.0), Stake(1, 3.0), Stake(1, 2.0)])
    rule.know(1, 0.1)
    assert rule.next() == 1
    assert rule.next(busy=[1]) == 2
    rule.tell(1, 1.0, 5.0)
    rule.end(0)
    assert rule.next(secs_left=0.1) == 2
    rule.tell(2, 1.0, 5.0)
    assert rule.next() == 1
    assert rule.next(busy=[1]) == 2
    rule.tell(1, 1.0, 5.0)
    rule.end(2)
    assert rule.next() == 1
    rule.end(1)
    assert rule.next() is None
