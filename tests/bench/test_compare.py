# SPDX-License-Identifier: Apache-2.0
"""Comparisons: the runs, their order, and the results kept after failures and interruptions."""

import contextlib
import io
import json
import math
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import Future
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tile_spaces import make_space

from tvm_droplet_ms.bench.compare import runs
from tvm_droplet_ms.bench.compare.replay import EXPERIMENTS, STRATEGIES, find_experiment, replay
from tvm_droplet_ms.bench.compare.results import CompareError, RunResult, RunSettings
from tvm_droplet_ms.bench.compare.runs import INTERRUPTED, Rules, plan, run_compare
from tvm_droplet_ms.bench.source_digest import DRAFTING, PACKAGE, REPLAYING, TUNING, source_digest
from tvm_droplet_ms.bench.space import MeasuredModule, MeasuredPoint, Space
from tvm_droplet_ms.bench.table import Trial

STRATEGIES_RUN = ["droplet without prior", "replay-trace"]


@cache
def tiny_space() -> Space:
    return make_space("tiny", failing=(1, 1))


@pytest.fixture(scope="module")
def tiny_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("spaces") / "tiny.json"
    tiny_space().save(path)
    return path


@pytest.fixture
def spaces(tmp_path: Path) -> list[Path]:
    """Two spaces that are only read for their names and times."""
    files = []
    for name in ("one", "two"):
        modules = tuple(MeasuredModule(i, (1e-3 * (1 + i),), 0.1, 0.1) for i in range(100))
        points = tuple(MeasuredPoint(0, (i,), i) for i in range(100))
        space = Space(name, "", "", {}, {}, {}, "", (), points, modules)
        files.append(tmp_path / f"{name}.json")
        space.save(files[-1])
    return files


def file_of(directory: Path, strategy: str, seed: int = 0, space: str = "one") -> Path:
    """File of a result."""
    folder = directory / "runs" / source_digest(REPLAYING)[:12] / space
    return folder / strategy.replace(" ", "-") / f"{seed}.json"


def note(space_file: Path, settings: RunSettings) -> None:
    """Leave a trace of a run beside its space."""
    with open(space_file.parent / "log", "a") as log:
        log.write(f"{settings.space} {settings.strategy} {settings.seed}\n")


def runs_of(spaces: list[Path]) -> list[str]:
    """The runs since the last call, in their order."""
    log = spaces[0].parent / "log"
    lines = log.read_text().splitlines() if log.exists() else []
    log.unlink(missing_ok=True)
    return lines


def fake(space_file: Path, settings: RunSettings, learned: object = None) -> RunResult:
    """A run that finds the best of a hundred in its second trial."""
    note(space_file, settings)
    trials = (
        Trial((1 << 64) - 5, 4e-3, 4e-3, None),
        Trial(7, math.inf, math.inf, "compile"),
        Trial((1 << 62) + 1, 1e-3, 1e-3, None),
    )
    return RunResult(settings, trials[: settings.trials])


def run_or_fail(space_file: Path, settings: RunSettings, learned: object) -> RunResult:
    """Three strategies fail, each in its own way."""
    result = fake(space_file, settings)
    if settings.strategy == "replay-trace":
        raise ValueError("the fault of this test")
    if settings.strategy == "evolutionary":
        os.abort()
    if settings.strategy == "droplet as published":
        time.sleep(1000)
    return result


def hang_second(space_file: Path, settings: RunSettings, learned: object) -> RunResult:
    result = fake(space_file, settings)
    if settings.strategy == "replay-trace":
        time.sleep(1000)
    return result


class PoolInThisProcess:
    """Executor that calls its tasks immediately, for tests without processes."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def submit(self, _timeout: float, function: Any, *arguments: Any) -> "Future[Any]":
        future: Future[Any] = Future()
        future.set_result(function(*arguments))
        return future

    def close(self) -> None:
        pass


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No processes, which take seconds to start."""
    monkeypatch.setattr(runs, "WorkerPool", PoolInThisProcess)


def compare(spaces: list[Path], directory: Path, **options: Any) -> tuple[int, str]:
    """Exit status and output of a comparison of fake runs."""
    defaults = {"trials": 16, "seeds": 1, "noisy": False, "workers": 1, "run": fake}
    names = options.pop("strategies", STRATEGIES_RUN)
    options = {**defaults, **options}
    rules = Rules(**{name: options.pop(name) for name in ("trials", "seeds", "noisy")})
    with contextlib.redirect_stdout(io.StringIO()) as stream:
        status = run_compare(spaces, names, directory, rules, **options)
    return status, stream.getvalue()


@pytest.mark.usefixtures("quick")
def test_all_runs_of_one_seed_precede_the_next_seed(
    spaces: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, text = compare(spaces, tmp_path / "out", seeds=2)
    assert status == 0
    assert runs_of(spaces) == [
        f"{space} {strategy} {seed}"
        for seed in range(2)
        for space in ("one", "two")
        for strategy in STRATEGIES_RUN
    ]
    # A line at most every five seconds, and the last one.
    progress = capsys.readouterr().err.splitlines()
    assert progress[-1] == "compare: runs 8/8, 0 s left" and len(progress) <= 3
    assert (tmp_path / "out/tables.md").read_text() in text


@pytest.mark.usefixtures("quick")
def test_finished_runs_are_kept(spaces: list[Path], tmp_path: Path) -> None:
    compare(spaces[:1], tmp_path / "out", strategies=["droplet without prior"])
    runs_of(spaces)
    before = file_of(tmp_path / "out", "droplet-without-prior").stat().st_mtime_ns
    _, text = compare(spaces, tmp_path / "out", seeds=2)
    assert sorted(runs_of(spaces)) == [
        "one droplet without prior 1",
        "one replay-trace 0",
        "one replay-trace 1",
        *(f"two {strategy} {seed}" for strategy in STRATEGIES_RUN for seed in range(2)),
    ]
    assert "8 runs, 1 of them done before" in text
    assert file_of(tmp_path / "out", "droplet-without-prior").stat().st_mtime_ns == before
    compare(spaces, tmp_path / "out", seeds=2)
    assert runs_of(spaces) == []


@pytest.mark.usefixtures("quick")
def test_result_survives_its_file(spaces: list[Path], tmp_path: Path) -> None:
    compare(spaces[:1], tmp_path / "out", strategies=["evolutionary"], seeds=3)
    path = file_of(tmp_path / "out", "evolutionary", 2)
    result = RunResult.load(path)
    assert (result.settings.space, result.settings.strategy, result.settings.seed) == (
        "one",
        "evolutionary",
        2,
    )
    assert result == fake(spaces[0], result.settings)
    content = json.loads(path.read_text())
    assert content["trials"] == [
        ["fffffffffffffffb", 4e-3, 4e-3, None],
        ["0000000000000007", None, None, "compile"],
        ["4000000000000001", 1e-3, 1e-3, None],
    ]


@pytest.mark.usefixtures("quick")
def test_results_of_other_settings_are_rejected(spaces: list[Path], tmp_path: Path) -> None:
    compare(spaces, tmp_path / "out")
    runs_of(spaces)
    with pytest.raises(CompareError, match=r"0\.json .*trials 16 instead of 8; choose another"):
        compare(spaces, tmp_path / "out", trials=8)
    with pytest.raises(CompareError, match="noisy False instead of True"):
        compare(spaces, tmp_path / "out", noisy=True)
    space = Space.load(spaces[0])
    Space(**{**vars(space), "modules": space.modules[:50], "points": space.points[:50]}).save(
        spaces[0]
    )
    with pytest.raises(CompareError, match="one.*space_digest"):
        compare(spaces, tmp_path / "out")
    assert runs_of(spaces) == []


@pytest.mark.usefixtures("quick")
def test_results_of_other_code_are_set_aside(
    spaces: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    compare(spaces, out)
    assert len(runs_of(spaces)) == 4
    monkeypatch.setattr(runs, "source_digest", lambda _: "other code")
    _, text = compare(spaces, out)
    assert len(runs_of(spaces)) == 4, "nothing of other code is used"
    assert "4 runs, 0 of them done before" in text
    monkeypatch.undo()
    monkeypatch.setattr(runs, "WorkerPool", PoolInThisProcess)
    _, text = compare(spaces, out)
    assert "4 runs, 4 of them done before" in text, "results of this code are still there"


def test_source_digest_covers_existing_files() -> None:
    assert all((PACKAGE / source).exists() for source in (*REPLAYING, *DRAFTING, *TUNING))
    assert len(source_digest(REPLAYING)) == 64


def test_digest_changes_with_models_and_ignores_comments_and_docstrings(tmp_path: Path) -> None:
    def digest(text: str, name: str = "code.py") -> str:
        (tmp_path / name).write_text(text)
        source_digest.cache_clear()
        return source_digest((".",), tmp_path)

    original = digest('"""Adds."""\n\ndef f(a):\n    """Adds one."""\n    return a + 1\n')
    assert digest('"""Sums."""\ndef f(a):\n    return a + 1  # one\n') == original
    assert digest('"""Adds."""\n\ndef f(a):\n    """Adds one."""\n    return a + 2\n') != original
    assert digest("before", "llvm.model") != digest("after", "llvm.model")


@pytest.mark.usefixtures("quick")
def test_torn_result_is_rejected(spaces: list[Path], tmp_path: Path) -> None:
    compare(spaces[:1], tmp_path / "out")
    path = file_of(tmp_path / "out", "droplet-without-prior")
    path.write_text(path.read_text()[:-20])
    with pytest.raises(CompareError, match=r"0\.json is no result of a run.*delete it"):
        compare(spaces[:1], tmp_path / "out")


def test_failed_runs_are_recorded_reported_and_repeated(
    spaces: list[Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    reasons = {
        "replay-trace": "ValueError: the fault of this test",
        "evolutionary": "crash: its process was ended by SIGABRT",
        "droplet as published": "timeout: killed after 2 s",
    }
    options = {"strategies": ["droplet without prior", *reasons]}
    status, text = compare(spaces[:1], tmp_path / "out", run=run_or_fail, timeout_secs=2, **options)
    assert status == 1
    assert len(runs_of(spaces)) == 4
    progress = capsys.readouterr().err
    assert "3 of 4 runs failed" in text
    for strategy, reason in reasons.items():
        assert f"compare: failed: one, {strategy}, seed 0; see " in progress
        assert f"{strategy} on one, seed 0: {reason}" in text
        content = json.loads(file_of(tmp_path / "out", strategy).read_text())
        assert reason in content["error"]
    monkeypatch.setattr(runs, "WorkerPool", PoolInThisProcess)
    status, text = compare(spaces[:1], tmp_path / "out", **options)
    assert status == 0 and "runs failed" not in text
    assert runs_of(spaces) == [f"one {strategy} 0" for strategy in reasons]


@pytest.mark.usefixtures("quick")
def test_finished_runs_survive_an_interruption(spaces: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "out"
    program = (
        # A job in the background ignores SIGINT, and so would its child.
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "import sys; from pathlib import Path; import test_compare as tests\n"
        f"spaces = [Path(path) for path in {[str(path) for path in spaces]!r}]\n"
        f"status, text = tests.compare(spaces, Path({str(out)!r}), run=tests.hang_second)\n"
        "print(text)\n"
        "sys.exit(status)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)},
        stdout=subprocess.PIPE,
        text=True,
    )
    end = time.monotonic() + 60
    while not file_of(out, "droplet-without-prior").exists():
        assert time.monotonic() < end and process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    text, _ = process.communicate(timeout=60)
    assert process.returncode == INTERRUPTED
    assert "Interrupted. 1 of 4 runs are done and kept" in text
    assert [path.name for path in out.rglob("*") if path.is_file()] == ["0.json"]
    runs_of(spaces)
    assert compare(spaces, out)[0] == 0
    assert runs_of(spaces) == [
        "one replay-trace 0",
        "two droplet without prior 0",
        "two replay-trace 0",
    ]


def test_invalid_arguments_are_rejected_before_anything_runs(
    spaces: list[Path], tmp_path: Path
) -> None:
    with pytest.raises(CompareError, match=r"'drop' is no strategy.*evolutionary"):
        compare(spaces, tmp_path / "out", strategies=["replay-trace", "drop"])
    with pytest.raises(CompareError, match="there is no space"):
        compare([], tmp_path / "out")
    with pytest.raises(CompareError, match=r"absent\.json cannot be read"):
        compare([tmp_path / "absent.json"], tmp_path / "out")
    with pytest.raises(CompareError, match="seeds is 0"):
        compare(spaces, tmp_path / "out", seeds=0)
    with pytest.raises(CompareError, match="both spaces of the name 'one'"):
        compare([*spaces, spaces[0]], tmp_path / "out")
    assert runs_of(spaces) == [] and not (tmp_path / "out").exists()


def test_strategies_with_a_prior() -> None:
    """A pretrained model where they have, and none that learns where they ask none."""
    prior = {name for name in STRATEGIES if "prior" in EXPERIMENTS[name].begins_with}
    assert prior == {"droplet", "droplet with prior and draft", "evolutionary with prior"}
    assert find_experiment("replay-trace").make({}, 16)[1] == "random"
    assert find_experiment("evolutionary").make({}, 16)[1] == "xgb"


def settings_of(path: Path, strategy: str, *, seed: int = 1, noisy: bool = False) -> RunSettings:
    (job,) = plan(
        [path], [strategy], path.parent, Rules(12, 1, num_trials_per_iter=12, noisy=noisy)
    )
    return RunSettings(**{**vars(job.settings), "seed": seed})


@pytest.mark.parametrize("strategy", ["evolutionary", "replay-trace", "droplet without prior"])
def test_replayed_run_measures_recorded_times(strategy: str, tiny_file: Path) -> None:
    result = replay(tiny_file, settings_of(tiny_file, strategy))
    space = tiny_space()
    assert result.error is None and len(result.trials) == 12
    for trial in result.trials:
        module = space.modules[space.index[trial.module]]
        expected = math.inf if module.failure else module.secs[1]
        assert trial.best_estimate == pytest.approx(expected)
        assert trial.secs == pytest.approx(trial.best_estimate)
        assert trial.failure == module.failure


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_runs_depend_on_their_seed_only(strategy: str, tiny_file: Path) -> None:
    def modules(seed: int) -> list[int]:
        result = replay(tiny_file, settings_of(tiny_file, strategy, seed=seed))
        return [trial.module for trial in result.trials]

    first = modules(1)
    assert modules(1) == first
    assert modules(2) != first


def test_noisy_replay_reports_recorded_times(tiny_file: Path) -> None:
    results = [
        replay(tiny_file, settings_of(tiny_file, "replay-trace", seed=seed, noisy=True))
        for seed in (1, 1, 2)
    ]
    told = [[trial.secs for trial in result.trials] for result in results]
    assert told[0] == told[1] != told[2]
    ratios = [t.secs / t.best_estimate for t in results[0].trials if t.failure is None]
    assert all(0.9 <= round(ratio, 3) <= 1.2 for ratio in ratios)
    assert any(abs(ratio - 1) > 0.05 for ratio in ratios)


def test_changed_space_is_not_replayed(tiny_file: Path, tmp_path: Path) -> None:
    settings = settings_of(tiny_file, "replay-trace")
    path = tmp_path / "tiny.json"
    path.write_text(tiny_file.read_text() + " ")
    with pytest.raises(CompareError, match="has changed since the comparison began"):
        replay(path, settings)


def test_comparison_replays_in_worker_processes(tiny_file: Path, tmp_path: Path) -> None:
    status, text = compare(
        [tiny_file],
        tmp_path,
        strategies=["evolutionary", "droplet without prior"],
        trials=25,
        run=replay,
    )
    assert status == 0, text
    # All 25 points are measured.
    result = RunResult.load(file_of(tmp_path, "droplet without prior", space="tiny"))
    assert {trial.module for trial in result.trials} == set(tiny_space().index)
    evolutionary = RunResult.load(file_of(tmp_path, "evolutionary", space="tiny"))
    here = replay(tiny_file, evolutionary.settings)
    assert [t.module for t in here.trials] == [t.module for t in evolutionary.trials]
