# SPDX-License-Identifier: Apache-2.0
"""The command line and the demo."""

import functools
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import filelock
import numpy as np
import pytest

from tvm import te
from tvm.ir import IRModule
from tvm.ir.utils import derived_object
from tvm.s_tir.meta_schedule.builder import BuilderInput, BuilderResult, PyBuilder
from tvm.s_tir.meta_schedule.testing import te_workload
from tvm_droplet_ms import DropletStrategy, cli, open_database
from tvm_droplet_ms.cli.demo import kernels
from tvm_droplet_ms.cli.demo import run as demo_run
from tvm_droplet_ms.host import host_target
from tvm_droplet_ms.measure import PromptRunner, build_scheduled

N = 32


def _matmul() -> IRModule:
    return IRModule({"main": te.create_prim_func(te_workload.matmul(N, N, N))})


def _sum() -> IRModule:
    """A module with the signature of ``_matmul`` but a different result."""
    a, b = (te.placeholder((N, N), name=name) for name in "ab")
    c = te.compute((N, N), lambda i, j: a[i, j] + b[i, j], name="c")
    return IRModule({"main": te.create_prim_func([a, b, c])})


# ---- Arguments ----


@pytest.mark.skipif(os.name != "posix", reason="pipes into another program")
def test_closed_stdout_exits_quietly() -> None:
    """For example ``droplet-ms space show odd | head``."""
    command = [sys.executable, "-m", "tvm_droplet_ms", "space", "show", "odd"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == ""
    assert process.wait() == 1


def test_other_broken_pipe_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    def break_a_pipe(**_: Any) -> None:
        raise BrokenPipeError("of a worker")

    monkeypatch.setattr(demo_run, "run_demo", break_a_pipe)
    with pytest.raises(BrokenPipeError, match="of a worker"):
        cli.main(["demo"])


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_help_and_version_exit_with_0(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main([option])
    assert end.value.code == 0
    assert "droplet-ms" in capsys.readouterr().out


@pytest.mark.parametrize("trials", ["1", "0", "-4", "many"])
def test_demo_rejects_too_few_trials(trials: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main(["demo", f"--trials={trials}"])
    assert end.value.code == 2
    assert f"{trials!r} is not a number of trials" in capsys.readouterr().err


def test_demo_receives_its_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[dict[str, Any]] = []
    monkeypatch.setattr(demo_run, "run_demo", lambda **options: calls.append(options))
    assert cli.main(["demo", "--trials", "8", "--seed", "3", "--work-dir", "x", "--verbose"]) == 0
    expected = {"trials": 8, "seed": 3, "work_dir": "x", "verbose": True, "profile": False}
    assert calls == [expected]


def test_demo_reports_bad_work_directory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "database_workload.json").write_text("torn\n")
    (tmp_path / "database_tuning_record.json").write_text("")
    assert cli.main(["demo", "--work-dir", str(tmp_path)]) == 1
    assert "database_workload.json" in capsys.readouterr().err
    below = tmp_path / "database_workload.json" / "below"
    assert cli.main(["demo", "--work-dir", str(below)]) == 1
    assert str(below.parent) in capsys.readouterr().err


def test_demo_is_the_only_writer_of_its_directory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with filelock.FileLock(tmp_path / ".lock"):
        assert cli.main(["demo", "--work-dir", str(tmp_path)]) == 1
    assert "another process tunes in" in capsys.readouterr().err
    (tmp_path / "database_tuning_record.json").write_text("[0, [to")

    def look(*_: object) -> None:
        assert (tmp_path / "database_tuning_record.json").read_text() == ""
        with pytest.raises(filelock.Timeout), filelock.FileLock(tmp_path / ".lock", timeout=0):
            pass

    monkeypatch.setattr(demo_run, "_run", look)
    assert cli.main(["demo", "--work-dir", str(tmp_path)]) == 0


# ---- The demo ----


def test_demo_rejects_other_systems_than_linux(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert cli.main(["demo"]) == 1
    assert "it needs Linux" in capsys.readouterr().err


def test_demo_tunes_with_the_defaults_unless_trials_are_few(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(demo_run, "DropletStrategy", dict)
    assert demo_run._strategy(64) == demo_run._strategy(16) == {"explore_trials": None}
    assert demo_run._strategy(4) == {"explore_trials": 2}


def test_check_outputs_rejects_wrong_kernel() -> None:
    target = host_target()
    right, wrong = (build_scheduled(mod, target) for mod in (_matmul(), _sum()))
    arrays = [np.ones((N, N), dtype=np.float32) for _ in range(3)]
    kernels.check_outputs("matmul", [right, right], arrays)
    with pytest.raises(kernels.DemoError, match="matmul: the output of a tuned"):
        kernels.check_outputs("matmul", [right, wrong], arrays)


@pytest.fixture
def small_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the demo tune one small kernel in small batches."""
    kernel = kernels.Kernel("small", _matmul(), ((N, N), (N, N), (N, N)), 2 * N**3)
    strategy = functools.partial(DropletStrategy, explore_trials=2)
    monkeypatch.setattr(demo_run, "demo_kernels", lambda: [kernel])
    monkeypatch.setattr(demo_run, "DropletStrategy", strategy)


@pytest.mark.usefixtures("small_demo")
def test_demo_tunes_and_resumes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["demo", "--trials", "4", "--work-dir", str(tmp_path)]) == 0
    first = capsys.readouterr().out
    assert _trials_of(first, "small") == (2, 2)
    assert len(open_database(tmp_path)) == 4
    # The records count as exploration, so the second run descends at once.
    assert cli.main(["demo", "--trials", "2", "--work-dir", str(tmp_path)]) == 0
    assert _trials_of(capsys.readouterr().out, "small") == (0, 2)
    assert len(open_database(tmp_path)) == 6


@pytest.mark.usefixtures("small_demo")
def test_demo_reports_first_build_error(
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
    """Trials of both phases, read from the printed table."""
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
        # The signal arrives inside TVM's C++, where a KeyboardInterrupt would crash the process.
        pytest.param("exploring for", marks=pytest.mark.slow),
        pytest.param("descending from", marks=pytest.mark.slow),
    ],
)
def test_interrupted_demo_prints_how_to_continue(line: str, tmp_path: Path) -> None:
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
def test_whole_demo_in_its_own_process(tmp_path: Path) -> None:
    process = _start_demo("--trials", "8", "--work-dir", str(tmp_path))
    output, _ = process.communicate()
    assert process.returncode == 0, output
    for kernel in ("matmul", "conv2d_3x3"):
        explored, descended = _trials_of(output, kernel)
        assert explored >= 4 and explored + descended == 8
    assert "wall time" in output
