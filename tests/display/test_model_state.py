# SPDX-License-Identifier: Apache-2.0
"""What the displays show of a model while its kernels are tuned, on made-up events."""

import io
import re

import pytest
from rich.cells import cell_len
from rich.console import Console

from tvm_droplet_ms.display import LineDisplay, RunState, TaskState
from tvm_droplet_ms.display.live import LiveDisplay, view_of
from tvm_droplet_ms.display.model_state import ModelKernel, ModelState
from tvm_droplet_ms.display.tables import html_table

CONV, DENSE, OTHER = 1, 2, 3


class Clock:
    """A clock that is set by hand."""

    now = 100.0

    def __call__(self):
        return self.now


def model(first_secs=400e-6):
    """Four calls of 20 us and one of 100 us; the run has 42 s from the time 100."""
    kernels = {
        CONV: ModelKernel(4, 5e-6, 20e-6, 20e-6, trials=8),
        DENSE: ModelKernel(1, 50e-6, 100e-6, 100e-6),
    }
    return ModelState(first_secs, kernels, 100.0, 142.0, lambda kernels, secs: secs * 100)


def run_of(state, names=("conv", "dense")):
    tasks = [TaskState(name, key=key) for key, name in enumerate(names, 1)]
    return RunState(tasks, Clock(), model=state)


def test_the_latency_falls_by_what_each_call_gains():
    state = model()
    assert state.secs == 400e-6
    state.tell(CONV, 15e-6, 16)
    assert state.secs == pytest.approx(380e-6)
    state.tell(DENSE, 72e-6, 8)
    assert state.secs == pytest.approx(352e-6)
    conv = state.kernels[CONV]
    assert (conv.trials, conv.secs) == (16, pytest.approx(60e-6))
    assert conv.roofline_share == pytest.approx(1 / 3)


def test_slower_schedules_and_other_graphs_gain_nothing():
    state = model()
    state.tell(CONV, 15e-6, 16)
    state.tell(CONV, 30e-6, 24)
    state.tell(OTHER, 1e-6, 8)
    assert state.secs == pytest.approx(380e-6)
    # The first schedule may be slower when it is measured than it was inside the model.
    state.tell(DENSE, 120e-6, 8)
    assert state.secs == pytest.approx(380e-6)


def test_text_worked_by_hand():
    state = model()
    assert state.shown_latency(" than at first") == "model 0.4 ms"
    assert state.shown_time(100.4) == "0 of 42 s"
    state.tell(DENSE, 52e-6, 8)
    # 48 of 400 us; the made-up forecast is 100 times 352 us.
    assert state.shown_latency(" than at first") == "model about 0.352 ms, 12% less than at first"
    assert state.shown_time(122.0) == "22 of 42 s"
    assert state.shown_forecast() == "another minute about 3.5% less"


@pytest.mark.parametrize(
    ("secs", "shown"), [(1.23456, "1235"), (0.123456, "123"), (9.9996, "10000"), (4e-6, "0.004")]
)
def test_milliseconds_have_no_power_of_ten(secs, shown):
    assert model(secs).shown_latency() == f"model {shown} ms"


def test_the_forecast_gets_the_kernels_as_they_are_now():
    asked = []

    def forecast(kernels, secs):
        asked.append(([kernel.secs for kernel in kernels], secs))
        return 0.022

    state = ModelState(400e-6, model().kernels, 0.0, 1.0, forecast)
    state.tell(CONV, 10e-6, 16)
    assert state.shown_forecast() == "another minute about 2.2% less"
    assert asked == [([pytest.approx(40e-6), pytest.approx(100e-6)], pytest.approx(360e-6))]


def test_lines_begin_with_the_model():
    shown, run = [], run_of(model())
    run.clock.now = 122.0
    run.tasks[0].tell([20e-6, 8e-6])
    run.model.tell(CONV, 8e-6, 2)
    lines = LineDisplay(shown.append)
    lines.batch(run, run.tasks[0])
    lines.batch(run, run.tasks[0])
    assert shown == [
        "model about 0.352 ms, 12% less, 22 of 42 s, another minute about 3.5% less; "
        "conv: 2 trials, best 8 us, 0 since the last gain, 0 failed, 2 trials of all 2"
    ]


@pytest.mark.parametrize("state", [None, model(first_secs=1e-9)])
def test_what_is_not_known_is_left_out(state):
    run, shown = run_of(state), []
    run.tasks[0].tell([8e-6])
    if state is not None:
        state.tell(CONV, 8e-6, 1)
    LineDisplay(shown.append).batch(run, run.tasks[0])
    assert shown == [
        "conv: 1 trials, best 8 us, 0 since the last gain, 0 failed, 0 s, 1 trials of all 2"
    ]
    assert "model" not in rendered(run, 80)


def rendered(run, width):
    console = Console(file=io.StringIO(), width=width)
    console.print(view_of(run, run.tasks))
    return console.file.getvalue()


def test_the_view_begins_with_the_model_and_a_bar():
    run = run_of(model())
    run.clock.now = 121.0
    run.model.tell(CONV, 8e-6, 2)
    first, second, *table = rendered(run, 80).splitlines()
    assert first.rstrip() == "model about 0.352 ms, 12% less than the first executable"
    assert second.endswith("21 of 42 s, another minute about 3.5% less")
    # Half of the time is over: half of the bar.
    assert second.count("━") == 5
    assert table[-1].rstrip() == "0 trials of 2 task(s)"


@pytest.mark.parametrize("phase", ["", "explore"])
def test_at_60_columns_nothing_is_wrapped(phase):
    names = ("fused_nn_conv2d_add_nn_relu_add_multiply", "fused_nn_dense_add_nn_relu")
    run = run_of(ModelState(1.234, model(1.234).kernels, 100.0, 3700.0, lambda *_: 0.123), names)
    run.clock.now = 1334.0
    for task in run.tasks:
        task.phase = phase
        task.tell([12.3456e-3] * 1024 + [None] * 32, [("build", ""), ("timeout", "")] * 16)
    run.model.tell(DENSE, 1e-6, 8)
    lines = rendered(run, 60).splitlines()
    # Two lines of the model, three of the header, one of each task, the last rule, the caption.
    assert len(lines) == 2 + 3 + 2 + 1 + 1
    assert max(map(cell_len, lines)) <= 60
    assert lines[1].rstrip().endswith("1234 of 3600 s, another minute about 12.3% less")
    assert "12346" in lines[5] and "1056" in lines[5] and "fused" in lines[5]


def test_a_live_view_draws_the_model():
    file, run = io.StringIO(), run_of(model())
    display = LiveDisplay(Console(file=file, force_terminal=True, width=100))
    display.batch(run, run.tasks[0])
    display.close()
    shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", file.getvalue())
    assert "model 0.4 ms" in shown and "0 of 42 s" in shown


def test_html_is_escaped():
    found = html_table([("<script>", 'a & "b"'), ("x", "")])
    assert found.count("<tr") == 2 and found.count("<td>") == 4
    assert "&lt;script&gt;" in found and "a &amp; &quot;b&quot;" in found
    assert "<script>" not in found
