# SPDX-License-Identifier: Apache-2.0
"""Displays of a run, and the callback that feeds them from any strategy."""

import gc
import io
import json
import logging
import math
import re
import sys
import tempfile
from pathlib import Path

import pytest
from conformance.driving import OneMillisecond
from rich.console import Console

from tvm import te
from tvm.ir import IRModule
from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.builder import BuilderResult, PyBuilder
from tvm.s_tir.meta_schedule.testing import te_workload
from tvm.target import Target
from tvm_droplet_ms import DropletStrategy
from tvm_droplet_ms.display import (
    JsonLinesDisplay,
    LineDisplay,
    ProgressCallback,
    RunState,
    SeveralDisplays,
    TaskState,
    callback,
)
from tvm_droplet_ms.display.callback import failure_kind
from tvm_droplet_ms.display.live import MOST_TASKS, LiveDisplay, table_of
from tvm_droplet_ms.display.phases import followed_phases, quiet_tvm
from tvm_droplet_ms.display.state import shortened, shown_us
from tvm_droplet_ms.search_strategy.log import SearchProgress
from tvm_droplet_ms.search_strategy.logger import logger


class Clock:
    """A clock that is set by hand."""

    now = 0.0

    def __call__(self):
        return self.now


def test_the_state_of_a_task_worked_by_hand():
    clock = Clock()
    task = TaskState("k", trials=24, known=4, best_secs=5e-3)
    run = RunState([task], clock, started=1e9)
    assert math.isnan(run.secs_left)
    clock.now = 2.0
    task.tell([6e-3, 4e-3, None, None], [("build", "no compiler\nat all"), ("timeout", "late")])
    assert (task.done, task.best_secs, task.since_gain) == (8, 4e-3, 2)
    # Four trials took two seconds, and 16 are left.
    assert run.event("batch", task) == {
        "event": "batch",
        "started": 1e9,
        "secs": 2.0,
        "task": "k",
        "phase": None,
        "trials": 8,
        "of": 24,
        "best_us": pytest.approx(4000.0),
        "since_gain": 2,
        "failures": {"build": 1, "timeout": 1},
        "messages": {"build": "no compiler", "timeout": "late"},
        "secs_left": 8.0,
    }


def test_times_have_no_power_of_ten():
    shown = {0.5: "0.5", 57.725: "57.73", 9999.4: "9999", 28340.2: "28340", 1.5e6: "1500000"}
    assert {us: shown_us(us / 1e6) for us in shown} == shown


def test_what_is_not_known_is_none():
    task = TaskState("k")
    task.tell([None], [("run", "")])
    event = RunState([task], Clock()).event("batch", task)
    assert (event["of"], event["best_us"], event["secs_left"]) == (None, None, None)


def test_lines_come_every_five_seconds_and_at_the_end():
    clock, shown = Clock(), []
    task = TaskState("k", trials=64)
    run = RunState([task], clock)
    lines = LineDisplay(shown.append)
    for second in range(1, 17):
        clock.now = float(second)
        task.tell([2e-3, 3e-3, 3e-3, None], [("run", "exit code 1")])
        lines.batch(run, task)
    lines.close()
    lines.close()
    assert len(shown) == 4
    assert shown[0] == (
        "k: 4 of 64 trials, best 2000 us, 3 since the last gain, 1 failed (1 run), 1 s, "
        "about 15 s left"
    )
    assert shown[-1].endswith("16 s, about 0 s left")


def test_a_live_table_has_a_row_for_each_task():
    file = io.StringIO()
    first, second = TaskState("first", 8), TaskState("second", 8)
    run = RunState([first, second], Clock())
    display = LiveDisplay(Console(file=file, force_terminal=True, width=100))
    first.tell([1e-3, None], [("build", "")])
    first.phase = "explore"
    display.batch(run, first)
    second.tell([2e-3])
    display.batch(run, second)
    display.close()
    rows = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", file.getvalue()).splitlines()[-4:]
    cells = [re.split(r"\s*│\s*", row.strip("│ ")) for row in rows]
    assert ["first", "explore", "2/8", "1000", "1", "1 failed (1 build)"] in cells
    assert ["second", "", "1/8", "2000", "0", "0"] in cells


def test_tasks_of_one_name_are_rows_of_their_own():
    tasks = [TaskState("k", key=key) for key in range(MOST_TASKS + 3)]
    run, file = RunState(tasks, Clock()), io.StringIO()
    display = LiveDisplay(Console(file=file, force_terminal=True, width=100, height=100))
    for task in tasks:
        display.batch(run, task)
    display.close()
    assert table_of(run, display._last).row_count == MOST_TASKS


def test_of_a_traceback_the_error_is_kept():
    text = "WarmBuilder: Traceback (most recent call last):\n  File x\nValueError: no\n"
    assert shortened(text) == "WarmBuilder: ValueError: no"
    lines = "  File x\n    launch()\n    ^^^\nInternalError: CUDA\n grid=(2,1,1)\n// main_kernel\n"
    assert shortened(f"Runner: Traceback:\n{lines}") == "Runner: InternalError: CUDA"
    assert shortened("exit code -11\nmore") == "exit code -11"
    assert shortened("") == ""


def test_kinds_of_failures():
    assert failure_kind(None, "machinery failure: the disk is full") == "machinery"
    assert failure_kind("LLVM ERROR", "LLVM ERROR") == "build"
    assert failure_kind(None, "WarmBuilder: Traceback") == "build"
    assert failure_kind(None, "PromptRunner: killed after 10 s, its time limit") == "timeout"
    assert failure_kind(None, "LocalRunner: Timeout, killed after 30 seconds") == "timeout"
    assert failure_kind(None, "PromptRunner: exit code -11") == "run"


@derived_object
class EveryThirdFails(PyBuilder):
    """Builds nothing, and fails at every third module."""

    def build(self, build_inputs):
        return [self._result(number) for number, _ in enumerate(build_inputs)]

    @staticmethod
    def _result(number):
        if number % 3 == 2:
            return BuilderResult(None, "no luck")
        # TVM deletes the directory of the artifact.
        return BuilderResult(str(Path(tempfile.mkdtemp()) / "kernel"), None)


def tune(mod, tmp_path, strategy, callbacks):
    with quiet_tvm():
        ms.tune_tir(
            mod,
            Target({"kind": "llvm", "num-cores": 1}),
            str(tmp_path),
            max_trials_global=12,
            num_trials_per_iter=6,
            builder=EveryThirdFails(),
            runner=OneMillisecond(),
            strategy=strategy,
            cost_model="none",
            measure_callbacks=callbacks,
            task_scheduler="round-robin",
            seed=0,
        )


def test_the_callback_follows_the_tasks_of_any_strategy(tmp_path):
    mod = IRModule(
        {
            name: te.create_prim_func(te_workload.matmul(16, 16, n))
            for name, n in zip("ab", (16, 32))
        }
    )
    shown, path = [], tmp_path / "progress.jsonl"
    display = SeveralDisplays([LineDisplay(shown.append), JsonLinesDisplay(path)])
    callbacks = [*ms.MeasureCallback.create("default"), ProgressCallback(display)]
    tune(mod, tmp_path, "replay-trace", callbacks)
    events = [json.loads(line) for line in path.read_text().splitlines()]
    last = {event["task"]: event for event in events}
    assert sorted(last) == ["a", "b"]
    for event in last.values():
        assert event["trials"] == 6 and event["failures"] == {"build": 2}
        assert event["messages"] == {"build": "no luck"}
        assert event["best_us"] == pytest.approx(1000.0)
    assert shown[0].startswith(
        "a: 6 trials, best 1000 us, 5 since the last gain, 2 failed (2 build)"
    )
    records = (tmp_path / "database_tuning_record.json").read_text().splitlines()
    assert len(records) == sum(event["trials"] for event in last.values())


def test_the_callback_takes_names_and_what_was_known(tmp_path):
    mod = IRModule({"main": te.create_prim_func(te_workload.matmul(16, 16, 16))})
    shown = []
    task = TaskState("product", trials=16, known=4, best_secs=1e-6)
    callback = ProgressCallback(LineDisplay(shown.append), RunState([task]), {0: "product"})
    with followed_phases(task):
        tune(mod, tmp_path, DropletStrategy(prior=None, draft=None), [callback])
    assert (task.done, task.best_secs, task.since_gain) == (16, 1e-6, 12)
    assert task.phase == "descend"
    assert shown[0].startswith("product: explore, ")


def test_a_display_that_fails_does_not_end_the_run(tmp_path, caplog):
    def broken(_line):
        raise BrokenPipeError("nobody reads")

    mod = IRModule({"main": te.create_prim_func(te_workload.matmul(16, 16, 16))})
    callbacks = [*ms.MeasureCallback.create("default"), ProgressCallback(LineDisplay(broken))]
    tune(mod, tmp_path, "replay-trace", callbacks)
    records = (tmp_path / "database_tuning_record.json").read_text().splitlines()
    assert len(records) == 12
    assert caplog.messages == ["the progress is not shown any more: nobody reads"]


def test_phases_are_followed_and_the_log_is_shown_as_before(caplog):
    task = TaskState("k")
    before = (logger.level, logger.propagate, list(logger.handlers))
    progress = SearchProgress("main", "phase", "descend", 0, math.inf, None, {})
    with followed_phases(task):
        logger.info("a phase", extra={"progress": progress})
        logger.warning("a warning")
    assert task.phase == "descend"
    assert [record.message for record in caplog.records] == ["a warning"]
    assert (logger.level, logger.propagate, list(logger.handlers)) == before
    with caplog.at_level(logging.INFO, logger="tvm_droplet_ms"), followed_phases(task):
        logger.info("asked for")
    assert [record.message for record in caplog.records] == ["a warning", "asked for"]


def alone(tmp_path, display, monkeypatch):
    """Tune with a callback that nobody keeps and nobody closes."""
    monkeypatch.setattr(callback, "console_display", lambda: display)
    mod = IRModule({"main": te.create_prim_func(te_workload.matmul(16, 16, 16))})
    tune(mod, tmp_path, "replay-trace", [ProgressCallback()])
    gc.collect()


def test_a_callback_alone_shows_the_last_line(tmp_path, monkeypatch):
    shown = []
    alone(tmp_path, LineDisplay(shown.append), monkeypatch)
    assert [line.split(",")[0] for line in shown] == ["main: 6 trials", "main: 12 trials"]


def test_a_callback_alone_gives_the_terminal_back(tmp_path, monkeypatch):
    file, streams = io.StringIO(), (sys.stdout, sys.stderr)
    display = LiveDisplay(Console(file=file, force_terminal=True))
    alone(tmp_path, display, monkeypatch)
    assert (sys.stdout, sys.stderr) == streams
    hidden, shown = "\x1b[?25l", "\x1b[?25h"
    assert hidden in file.getvalue() and file.getvalue().rstrip().endswith(shown)


def test_a_callback_can_be_closed(monkeypatch, caplog):
    class Broken(LineDisplay):
        def close(self):
            raise BrokenPipeError("nobody reads")

    shown = []
    display = LineDisplay(shown.append)
    display.batch(RunState([], Clock()), TaskState("first"))
    display.batch(RunState([], Clock()), TaskState("second"))
    ProgressCallback(display).close()
    assert [line.split(":")[0] for line in shown] == ["first", "second"]
    ProgressCallback(Broken(shown.append)).close()
    assert caplog.messages == ["the end of the progress is not shown: nobody reads"]


def test_a_live_table_takes_no_output_of_the_program(capsys):
    file, stdout = io.StringIO(), sys.stdout
    display = LiveDisplay(Console(file=file, force_terminal=True, width=100))
    task = TaskState("first", 8)
    display.batch(RunState([task], Clock()), task)
    assert sys.stdout is stdout
    # A warning of the log is written above the table.
    print("a warning", file=sys.stderr)
    print("a result")
    display.close()
    assert capsys.readouterr() == ("a result\n", "")
    plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", file.getvalue())
    assert plain.index("a warning") < plain.rindex("first") and "a result" not in plain
