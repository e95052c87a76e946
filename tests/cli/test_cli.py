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
import pytest

from tvm import te
from tvm.ir.utils import derived_object
from tvm.s_tir.meta_schedule.builder import BuilderInput, BuilderResult, PyBuilder
from tvm.s_tir.meta_schedule.testing import te_workload
from tvm_droplet_ms import DropletStrategy, cli, open_database, search_strategy
from tvm_droplet_ms.cli import demo
from tvm_droplet_ms.measure import PromptRunner
from tvm_droplet_ms.tuning import kernel as tuning_kernel
from tvm_droplet_ms.tuning.kernel import measuring

N = 32


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
    def break_a_pipe(*_: Any) -> None:
        raise BrokenPipeError("of a worker")

    monkeypatch.setattr(demo, "_tune", break_a_pipe)
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


def test_demo_passes_its_arguments_on(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[dict[str, Any]] = []

    def refuse(_kernel: object, **options: Any) -> None:
        calls.append(options)
        raise tuning_kernel.KernelError("seen")

    monkeypatch.setattr(tuning_kernel, "tune_kernel", refuse)
    assert cli.main(["demo", "--trials", "8", "--seed", "3", "--work-dir", "x"]) == 1
    (options,) = calls
    expected = {"trials": 8, "seed": 3, "work_dir": Path("x/matmul"), "name": "matmul"}
    assert {name: options[name] for name in expected} == expected


def test_demo_reports_bad_work_directory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "matmul"
    folder.mkdir()
    (folder / "database_workload.json").write_text("torn\n")
    (folder / "database_tuning_record.json").write_text("")
    assert cli.main(["demo", "--work-dir", str(tmp_path)]) == 1
    assert "database_workload.json" in capsys.readouterr().err
    below = folder / "database_workload.json" / "below"
    assert cli.main(["demo", "--work-dir", str(below)]) == 1
    assert str(below.parent) in capsys.readouterr().err


def test_demo_is_the_only_writer_of_its_directory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "matmul").mkdir()
    with filelock.FileLock(tmp_path / "matmul" / ".lock"):
        assert cli.main(["demo", "--work-dir", str(tmp_path)]) == 1
    assert "another process tunes in" in capsys.readouterr().err


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
    explored: list[int | None] = []

    def refuse(_kernel: object, strategy: dict[str, int | None], **_options: object) -> None:
        explored.append(strategy["explore_trials"])
        raise tuning_kernel.KernelError("seen")

    monkeypatch.setattr(tuning_kernel, "tune_kernel", refuse)
    monkeypatch.setattr(search_strategy, "DropletStrategy", dict)
    for trials in (64, 16, 4):
        assert cli.main(["demo", "--trials", str(trials)]) == 1
    assert explored == [None, None, 2]


@pytest.fixture
def small_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the demo tune one small kernel in small batches."""
    kernel = te.create_prim_func(te_workload.matmul(N, N, N))
    strategy = functools.partial(DropletStrategy, explore_trials=2)
    monkeypatch.setattr(demo, "demo_kernels", lambda: {"small": kernel})
    monkeypatch.setattr(search_strategy, "DropletStrategy", lambda **_: strategy())


@pytest.mark.usefixtures("small_demo")
def test_demo_tunes_and_resumes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["demo", "--trials", "4", "--work-dir", str(tmp_path)]) == 0
    first = capsys.readouterr().out
    assert _trials_of(first, "small") == (2, 2)
    assert len(open_database(tmp_path / "small")) == 4
    # The trials and the exploration of the first run count.
    assert cli.main(["demo", "--trials", "6", "--work-dir", str(tmp_path)]) == 0
    assert _trials_of(capsys.readouterr().out, "small") == (2, 4)
    assert len(open_database(tmp_path / "small")) == 6


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
    monkeypatch.setattr(measuring, "fast_measure", lambda *_, **__: nothing)
    assert cli.main(["demo", "--trials", "4", "--work-dir", str(tmp_path)]) == 1
    assert "all 4 failed; the first: the compiler is out of ink" in capsys.readouterr().err


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
        # Ignored signals, as of a shell's background jobs, would stay so.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


@pytest.mark.skipif(os.name != "posix", reason="sends SIGINT to a process group")
@pytest.mark.parametrize(
    "line",
    [
        "trials each",
        # The signal arrives inside TVM's C++, where a KeyboardInterrupt would crash the process.
        pytest.param("matmul: explore", marks=pytest.mark.slow),
        pytest.param("matmul: descend", marks=pytest.mark.slow),
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
    open_database(tmp_path / "matmul")


@pytest.mark.slow
def test_whole_demo_in_its_own_process(tmp_path: Path) -> None:
    process = _start_demo("--trials", "8", "--work-dir", str(tmp_path))
    output, _ = process.communicate()
    assert process.returncode == 0, output
    for kernel in ("matmul", "conv2d_3x3"):
        explored, descended = _trials_of(output, kernel)
        assert explored >= 4 and explored + descended == 8
