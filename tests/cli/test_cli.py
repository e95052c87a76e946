# Licensed to the Apache Software Foundation (ASF) under one
# or more contributor license agreements.  See the NOTICE file
# distributed with this work for additional information
# regarding copyright ownership.  The ASF licenses this file
# to you under the Apache License, Version 2.0 (the
# "License"); you may not use this file except in compliance
# with the License.  You may obtain a copy of the License at
#
#   http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing,
# software distributed under the License is distributed on an
# "AS IS" BASIS, WITHOUT WARRANTIES OR CONDITIONS OF ANY
# KIND, either express or implied.  See the License for the
# specific language governing permissions and limitations
# under the License.
"""The command line, the demo behind it, and the progress that it shows."""

import functools
import io
import logging
import math
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tvm import te
from tvm.ir import IRModule
from tvm.ir.utils import derived_object
from tvm.s_tir.meta_schedule.builder import BuilderInput, BuilderResult, PyBuilder
from tvm.s_tir.meta_schedule.logging import get_loggers_from_work_dir
from tvm.s_tir.meta_schedule.testing import te_workload
from tvm_droplet_ms import DropletStrategy, cli, open_database
from tvm_droplet_ms.cli.demo import kernels
from tvm_droplet_ms.cli.demo import run as demo_run
from tvm_droplet_ms.host import host_target
from tvm_droplet_ms.measure import PromptRunner, build_scheduled
from tvm_droplet_ms.progress import quieten_tvm, show_progress
from tvm_droplet_ms.search_strategy.log import Event, Phase, SearchProgress, logger

N = 32


def _matmul() -> IRModule:
    return IRModule({"main": te.create_prim_func(te_workload.matmul(N, N, N))})


def _sum() -> IRModule:
    """A module of the same signature as ``_matmul`` that computes something else."""
    a, b = (te.placeholder((N, N), name=name) for name in "ab")
    c = te.compute((N, N), lambda i, j: a[i, j] + b[i, j], name="c")
    return IRModule({"main": te.create_prim_func([a, b, c])})


# ---- Arguments ----


@pytest.mark.skipif(os.name != "posix", reason="pipes into another program")
def test_an_output_that_is_closed_ends_quietly() -> None:
    """As ``droplet-ms space show odd | head`` does."""
    command = [sys.executable, "-m", "tvm_droplet_ms", "space", "show", "odd"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == ""
    assert process.wait() == 1


def test_another_broken_pipe_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def break_a_pipe(**_: Any) -> None:
        raise BrokenPipeError("of a worker")

    monkeypatch.setattr(demo_run, "run_demo", break_a_pipe)
    with pytest.raises(BrokenPipeError, match="of a worker"):
        cli.main(["demo"])


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_help_and_version_end_well(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main([option])
    assert end.value.code == 0
    assert "droplet-ms" in capsys.readouterr().out


@pytest.mark.parametrize("trials", ["1", "0", "-4", "many"])
def test_too_few_trials_are_refused(trials: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main(["demo", f"--trials={trials}"])
    assert end.value.code == 2
    assert f"{trials!r} is not a number of trials" in capsys.readouterr().err


def test_arguments_reach_the_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[dict[str, Any]] = []
    monkeypatch.setattr(demo_run, "run_demo", lambda **options: calls.append(options))
    assert cli.main(["demo", "--trials", "8", "--seed", "3", "--work-dir", "x", "--verbose"]) == 0
    expected = {"trials": 8, "seed": 3, "work_dir": "x", "verbose": True, "profile": False}
    assert calls == [expected]


def test_a_database_that_does_not_open_is_a_worded_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "database_workload.json").write_text("torn\n")
    (tmp_path / "database_tuning_record.json").write_text("")
    assert cli.main(["demo", "--work-dir", str(tmp_path)]) == 1
    assert "database_workload.json" in capsys.readouterr().err


def test_a_work_directory_that_cannot_be_made_is_a_worded_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    assert cli.main(["demo", "--work-dir", str(tmp_path / "file" / "below")]) == 1
    assert str(tmp_path / "file") in capsys.readouterr().err


# ---- Progress ----


def _say(
    event: Event, phase: Phase, trials: int, best_secs: float, best_trace: Any, text: str = "..."
) -> None:
    progress = SearchProgress("task", event, phase, trials, best_secs, best_trace)
    logger.info(text, extra={"progress": progress})


def test_progress_is_one_line_a_record() -> None:
    stream = io.StringIO()
    with show_progress({"task": 2e9}, stream=stream):
        _say("phase", "explore", 0, math.inf, None, "it begins")
        _say("batch", "explore", 32, 0.02, "trace", "of several\n  lines")
        logger.warning("a warning\nof two lines")
        logger.info("another task, without a rate")
    logger.warning("after the run, elsewhere")
    lines = [re.sub(r"^\[ *\d+\.\d s\] *", "", line) for line in stream.getvalue().splitlines()]
    assert lines == [
        "- GFLOP/s  it begins",
        "100.0 GFLOP/s  of several lines",
        "WARNING: a warning of two lines",
        "another task, without a rate",
    ]


def test_progress_leaves_the_logger_as_it_was() -> None:
    before = (logger.level, logger.propagate, list(logger.handlers))
    with pytest.raises(RuntimeError), show_progress({}, stream=io.StringIO()):
        raise RuntimeError
    assert (logger.level, logger.propagate, list(logger.handlers)) == before


def test_elapsed_seconds_count_from_the_start() -> None:
    stream = io.StringIO()
    with show_progress({}, start=100.0, stream=stream):
        record = logging.makeLogRecord({"name": logger.name, "msg": "hello", "levelno": 20})
        record.created = 112.5
        logger.handle(record)
    assert stream.getvalue().startswith("[  12.5 s] ")


def test_trials_are_charged_to_the_phase_that_measured_them() -> None:
    with show_progress({}, stream=io.StringIO()) as recorder:
        _say("phase", "explore", 0, math.inf, None)
        _say("batch", "explore", 32, 5.0, "a")
        _say("batch", "explore", 40, 4.0, "b")
        _say("phase", "descend", 40, 4.0, "b")
        _say("batch", "descend", 56, 3.0, "c")
        _say("step", "descend", 56, 3.0, "c")
        _say("phase", "explore", 56, 3.0, "c")
        _say("batch", "explore", 60, 2.0, "d")
        _say("phase", "descend", 60, 2.0, "d")
        _say("batch", "descend", 64, 2.0, "d")
        _say("finished", "descend", 64, 2.0, "d")
    summary = recorder.tasks["task"]
    assert summary.trials == {"explore": 44, "descend": 20}
    # What exploration had reached is what the first descent began with.
    assert summary.explored == "b"


def test_the_last_warning_is_kept() -> None:
    with show_progress({}, stream=io.StringIO()) as recorder:
        logger.warning("a first one")
        logger.warning("all %d failed", 3)
        logger.info("it ends")
    assert recorder.last_warning == "all 3 failed"


def test_tvm_is_quiet_on_the_console_and_writes_its_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for run in ("first", "second"):
        quieten_tvm()
        get_loggers_from_work_dir(str(tmp_path), ["task"])
        logging.getLogger("tvm.s_tir.meta_schedule").info("the table of the %s run", run)
        logging.getLogger("tvm.s_tir.meta_schedule").warning("a warning of the %s run", run)
    console = capsys.readouterr().out
    assert "the table" not in console
    assert "a warning of the first run" in console and "a warning of the second run" in console
    written = "".join(path.read_text() for path in (tmp_path / "logs").iterdir())
    assert "the table of the first run" in written and "the table of the second run" in written


# ---- The demo ----


def test_an_output_that_differs_is_a_worded_failure() -> None:
    target = host_target()
    right, wrong = (build_scheduled(mod, target) for mod in (_matmul(), _sum()))
    arrays = [np.ones((N, N), dtype=np.float32) for _ in range(3)]
    kernels.check_outputs("matmul", [right, right], arrays)
    with pytest.raises(kernels.WrongOutputError, match="matmul: the output of a tuned"):
        kernels.check_outputs("matmul", [right, wrong], arrays)


@pytest.fixture
def small_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the demo tune one small kernel, in small batches."""
    kernel = kernels.Kernel("small", _matmul(), ((N, N), (N, N), (N, N)), 2 * N**3)
    strategy = functools.partial(DropletStrategy, explore_trials=2, descent_batch_size=2)
    monkeypatch.setattr(demo_run, "demo_kernels", lambda: [kernel])
    monkeypatch.setattr(demo_run, "DropletStrategy", strategy)


@pytest.mark.usefixtures("small_demo")
def test_the_demo_tunes_and_resumes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["demo", "--trials", "4", "--work-dir", str(tmp_path)]) == 0
    first = capsys.readouterr().out
    assert _trials_of(first, "small") == (2, 2)
    assert len(open_database(tmp_path)) == 4
    # What was measured counts as explored, so the second run descends at once.
    assert cli.main(["demo", "--trials", "2", "--work-dir", str(tmp_path)]) == 0
    assert _trials_of(capsys.readouterr().out, "small") == (0, 2)
    assert len(open_database(tmp_path)) == 6


@pytest.mark.usefixtures("small_demo")
def test_a_demo_in_which_nothing_builds_fails_with_the_first_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @derived_object
    class NothingBuilds(PyBuilder):
        def build(self, build_inputs: list[BuilderInput]) -> list[BuilderResult]:
            return [BuilderResult(None, "the compiler is out of ink") for _ in build_inputs]

        def close(self) -> None:
            pass

    nothing = {"builder": NothingBuilds(), "runner": PromptRunner()}
    monkeypatch.setattr(demo_run, "fast_measure", lambda target: nothing)
    assert cli.main(["demo", "--trials", "4", "--work-dir", str(tmp_path)]) == 1
    assert "the first error: the compiler is out of ink" in capsys.readouterr().err


def _trials_of(output: str, kernel: str) -> tuple[int, int]:
    """The trials of both phases, from the table."""
    (line,) = re.findall(rf"^\| {kernel} .*$", output, flags=re.MULTILINE)
    explored, descended = line.split("|")[6:8]
    return int(explored), int(descended)


def _start_demo(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-u", "-m", "tvm_droplet_ms", "demo", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


@pytest.mark.skipif(os.name != "posix", reason="sends SIGINT to a process group")
@pytest.mark.parametrize(
    "line",
    [
        "trials each",
        # Within TVM's C++, where a KeyboardInterrupt would crash the process.
        pytest.param("exploring for", marks=pytest.mark.slow),
        pytest.param("descending from", marks=pytest.mark.slow),
    ],
)
def test_an_interruption_says_how_to_go_on(line: str, tmp_path: Path) -> None:
    process = _start_demo("--trials", "4", "--work-dir", str(tmp_path))
    assert process.stdout is not None
    while line not in process.stdout.readline():
        assert process.poll() is None
    os.killpg(process.pid, signal.SIGINT)
    output = process.stdout.read()
    assert process.wait() == 130
    assert f"droplet-ms demo --work-dir {tmp_path}" in output
    open_database(tmp_path)


@pytest.mark.slow
def test_the_whole_demo_in_a_process_of_its_own(tmp_path: Path) -> None:
    process = _start_demo("--trials", "8", "--work-dir", str(tmp_path))
    output, _ = process.communicate()
    assert process.returncode == 0, output
    for kernel in ("matmul", "conv2d_3x3"):
        explored, descended = _trials_of(output, kernel)
        assert explored >= 4 and explored + descended == 8
    assert "wall time" in output
