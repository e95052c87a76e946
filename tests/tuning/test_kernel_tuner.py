# SPDX-License-Identifier: Apache-2.0
"""KernelTuner: when the processes that measure start and end. Nothing is measured."""

from types import SimpleNamespace

import numpy as np
import pytest

from tvm.s_tir.meta_schedule.database import MemoryDatabase
from tvm.target import Target
from tvm_droplet_ms.session.stop import StopRequest
from tvm_droplet_ms.tuning import kernel_tuner
from tvm_droplet_ms.tuning.budget.tuning_run import in_whole_batches
from tvm_droplet_ms.tuning.kernel_tuner import KernelTuner
from tvm_droplet_ms.tuning.picks.pick_workers import WarmStart
from tvm_droplet_ms.tuning.picks.picks import FirstPicks
from tvm_droplet_ms.tuning.run_context import RunContext

TARGET = Target({"kind": "llvm", "num-cores": 1})


class Part:
    def __init__(self, log, name):
        self.log, self.name = log, name

    def close(self):
        self.log.append(f"{self.name} ends")


@pytest.fixture
def log(monkeypatch):
    """The events in order; a run is its size of a batch, and one of 7 fails."""
    log = []

    def start(*_, **__):
        log.append("start")
        return {"builder": None, "runner": None}

    def run(tasks, setup, limits, **_):
        assert (setup.builder.name, setup.runner.name) == ("builder", "runner")
        log.append(limits.batch)
        if limits.batch == 7:
            raise RuntimeError("made up")
        return SimpleNamespace(trials=5, why_ended="made up")

    monkeypatch.setattr(kernel_tuner, "fast_measure", start)
    monkeypatch.setattr(kernel_tuner, "BackgroundRunner", lambda _: Part(log, "runner"))
    monkeypatch.setattr(kernel_tuner, "PatientBuilder", lambda *_: Part(log, "builder"))
    monkeypatch.setattr(kernel_tuner, "tune_tasks_by_clock", run)
    workers = SimpleNamespace(directory=None, workers=2, close=lambda: log.append("workers end"))
    monkeypatch.setattr(kernel_tuner, "start_workers", lambda: workers)
    monkeypatch.setattr(kernel_tuner, "measure_machine", lambda threads: None)
    return log


def tuner(tmp_path):
    context = RunContext(TARGET, 1, tmp_path, warm_start=WarmStart(prior=None, known=None))
    return KernelTuner(context, MemoryDatabase())


KERNELS = SimpleNamespace(tasks=[], untouched=set(), picks=FirstPicks())


def test_each_call_ends_what_it_started(log, tmp_path):
    made = tuner(tmp_path)
    made.tune([], KERNELS, StopRequest(), None, 3)
    with pytest.raises(RuntimeError, match="made up"):
        made.tune([], KERNELS, StopRequest(), None, 7)
    made.close()
    ends = ["builder ends", "runner ends"]
    assert log == ["start", 3, *ends, "start", 7, *ends, "workers end"]
    assert made.trials == 5


def test_many_short_calls_share_what_measures(log, tmp_path):
    made = tuner(tmp_path)
    made.keep_measuring = True
    made.tune([], KERNELS, StopRequest(), None, 3)
    made.tune([], KERNELS, StopRequest(), None, 4)
    assert log == ["start", 3, 4]
    made.close()
    assert log[3:] == ["builder ends", "runner ends", "workers end"]


def test_without_a_batch_the_time_decides(log, tmp_path):
    made = tuner(tmp_path)
    made.tune([], KERNELS, StopRequest(), None)
    assert log[1] == 8


@pytest.mark.parametrize(
    ("trials", "why", "sizes"),
    [
        (None, "time", [8]),
        (16, "trials", [8]),
        (19, "trials", [8, 3]),
        (3, "trials", [3]),
        (1, "trials", [1]),
        *((19, why, [8]) for why in ("time", "stopped", "converged")),
    ],
)
def test_no_more_trials_than_asked_and_what_ends_a_run_ends_all_of_it(trials, why, sizes):
    """TVM measures whole batches until it has as many as the limit."""
    batches = []

    def run(size, most):
        batches.append(size)
        whole = -(-most // size) * size if why == "trials" else 5
        return SimpleNamespace(trials=whole, why_ended=why)

    done = in_whole_batches(run, 8, trials)
    assert batches == sizes and done == (trials if why == "trials" else 5, why)


@pytest.mark.parametrize("trials", [1, 5, 8, 19, 24])
def test_small_batches_do_not_add_up_to_more_than_asked(trials):
    """A task may have fewer seeds than a batch has room for."""
    generator = np.random.default_rng(trials)

    def run(size, most):
        done = 0
        while done < most:
            done += int(generator.integers(1, size + 1))
        return SimpleNamespace(trials=done, why_ended="trials")

    assert all(in_whole_batches(run, 8, trials) == (trials, "trials") for _ in range(50))


def test_the_trials_reach_each_run(tmp_path, log, monkeypatch):
    asked = []

    def run(tasks, setup, limits, **_):
        asked.append((limits.batch, limits.trials))
        whole = -(-limits.trials // limits.batch) * limits.batch
        return SimpleNamespace(trials=whole, why_ended="trials")

    monkeypatch.setattr(kernel_tuner, "tune_tasks_by_clock", run)
    made = tuner(tmp_path)
    made.tune([], KERNELS, StopRequest(), 19, 8)
    assert asked == [(8, 12), (3, 1)] and made.trials == 19
