# SPDX-License-Identifier: Apache-2.0
"""Collecting a space: measurements, failures, and resuming a stopped run."""

import json
import math
import re
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace

import pytest
from conformance.workloads import make_context, matmul, tile_two
from replaying import annotated

from tvm import IRModule, te
from tvm.s_tir.meta_schedule.builder import BuilderResult
from tvm_droplet_ms.bench.definition import Definition
from tvm_droplet_ms.bench.making.building import build_space
from tvm_droplet_ms.bench.making.collection import Collection
from tvm_droplet_ms.bench.making.enumeration import enumerate_space
from tvm_droplet_ms.bench.space import Space
from tvm_droplet_ms.bench.work_directory import CollectionError
from tvm_droplet_ms.display.displays import console_steps
from tvm_droplet_ms.host import host_target
from tvm_droplet_ms.measure import BuildStats, Failure, TaskFailed, fast_start

SIZE = 4


def silent(what: str, done: int, total: int) -> None:
    """No progress."""


def tiles() -> Definition:
    """A matrix product of 4 x 4 x 4 with two tiles: 9 points."""
    fast_start()
    generator = make_context("replay-trace", space=tile_two).space_generator
    return Definition(
        "tiles", "a small matrix product", matmul(SIZE, SIZE, SIZE), lambda: generator
    )


def wrong(value: float) -> IRModule:
    """A module of the same arguments that computes something else."""
    a, b = (te.placeholder((SIZE, SIZE), name=name) for name in "AB")
    c = te.compute((SIZE, SIZE), lambda i, j: a[i, j] + b[j, i] * value, name="C")
    return IRModule({"main": te.create_prim_func([a, b, c])})


def never_ends() -> IRModule:
    """A module of the same arguments that takes far longer than a test."""
    many = 1 << 40
    a, b = (te.placeholder((SIZE, SIZE), name=name) for name in "AB")
    k = te.reduce_axis((0, many), name="k")
    c = te.compute(
        (SIZE, SIZE),
        lambda i, j: te.max(a[i, (j * k) % SIZE] * b[(k * i) % SIZE, j], axis=k),
        name="C",
    )
    return IRModule({"main": te.create_prim_func([a, b, c])})


def build(directory: Path) -> Space:
    """Build ``tiles``, each module timed in three passes."""
    options = {"passes": 3, "progress": silent}
    out = directory / "tiles.json"
    build_space(tiles(), "tiles", host_target(), directory / "work", out, **options)
    return Space.load(out)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("tiles")
    build(directory)
    return directory


def test_every_module_has_a_time_for_each_pass(built: Path):
    space = Space.load(built / "tiles.json")
    assert len(space.points) == len(space.modules) == 9
    assert all(len(module.secs) == 3 for module in space.modules)
    assert all(0.0 < secs < 1e-3 for module in space.modules for secs in module.secs)
    assert all(module.build_secs > 0.0 and module.run_secs > 0.0 for module in space.modules)
    assert space.versions["apache-tvm"].startswith("0.27")
    found = enumerate_space(tiles().context(host_target(), "replay-trace"))
    assert {point.decisions for point in space.points} == {point for _, point in found.points}


def test_resumed_build_measures_nothing_again(built: Path):
    before, log = Space.load(built / "tiles.json"), (built / "work" / "log.jsonl").read_text()
    assert build(built) == before
    assert (built / "work" / "log.jsonl").read_text() == log


def test_torn_line_is_measured_again(built: Path):
    log = built / "work" / "log.jsonl"
    whole = log.read_text()
    log.write_text(whole[:-20])
    build(built)
    lines = log.read_text().splitlines()
    assert len(lines) == len(whole.splitlines())
    assert all(json.loads(line) for line in lines)


def test_order_differs_from_pass_to_pass(built: Path):
    text = (built / "work" / "log.jsonl").read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    orders = [[e["module"] for e in lines if e.get("pass") == number] for number in range(2)]
    assert sorted(orders[0]) == sorted(orders[1])
    assert orders[0] != orders[1]


def test_failures_have_a_class(tmp_path: Path):
    mod = matmul(SIZE, SIZE, SIZE)
    collection = Collection(tmp_path, mod, host_target(), timeout_sec=3.0)
    modules = {1: lambda: wrong(1.0), 2: never_ends, 3: lambda: mod}
    collection.build(modules, silent)
    collection.measure(list(modules), range(2), silent)
    measured = [collection.measured(name) for name in modules]
    assert [module.failure for module in measured] == ["wrong result", "timeout", None]
    assert [math.isinf(module.time) for module in measured] == [True, True, False]
    resumed = Collection(tmp_path, mod, host_target())
    assert [resumed.measured(name) for name in modules] == measured


def test_machinery_failure_ends_the_build_and_is_not_recorded(tmp_path: Path):
    """A full disk says nothing about the modules: they are built when the build is resumed."""
    mod = matmul(SIZE, SIZE, SIZE)
    collection = Collection(tmp_path, mod, host_target())
    message = str(Failure("machinery", "no space left"))
    builder = SimpleNamespace(
        stats=BuildStats(), build=lambda inputs: [BuilderResult(None, message) for _ in inputs]
    )
    with pytest.raises(CollectionError, match="no space left.*the same command goes on"):
        collection._build_batch(builder, [1], {1: lambda: mod})
    failed: Future[None] = Future()
    failed.set_exception(TaskFailed("machinery", "cannot fork"))
    with pytest.raises(CollectionError, match="cannot fork"):
        collection._time(SimpleNamespace(submit=lambda *_: failed), 1, 0)
    resumed = Collection(tmp_path, mod, host_target())
    assert not resumed.failures and not resumed.builds and not resumed.times


def test_build_error_is_compile_failure(tmp_path: Path):
    mod = matmul(SIZE, SIZE, SIZE)
    collection = Collection(tmp_path, mod, host_target())
    unbound = annotated().context(host_target(), "replay-trace").generate_design_space()[0].mod
    bad = IRModule({"other": unbound["main"], "main": unbound["main"].with_attr("target", 3)})
    collection.build({1: lambda: bad, 2: lambda: mod}, silent)
    collection.measure([1, 2], [0], silent)
    assert collection.measured(1).failure == "compile"
    assert collection.measured(2).failure is None


def test_progress_shows_the_remaining_time(capsys: pytest.CaptureFixture[str]):
    with console_steps("tiles", every_secs=0.0) as progress:
        progress("building", 1, 2)
        progress("building", 2, 2)
    out, err = capsys.readouterr()
    lines = err.splitlines()
    assert out == "" and lines[0].startswith("tiles: building 1/2, ")
    assert lines[1] == "tiles: building 2/2, 0 s left"


def test_terminal_has_a_bar_for_each_step(monkeypatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    with console_steps("tiles") as progress:
        progress("building", 1, 4)
        progress("building", 4, 4)
        progress("pass 1", 3, 4)
    lines = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]|\r", "", capsys.readouterr().err).splitlines()
    assert any("tiles: building" in line and "4/4" in line for line in lines)
    assert any("tiles: pass 1" in line and "3/4" in line for line in lines)


def test_slow_build_is_timeout(tmp_path: Path):
    mod = matmul(SIZE, SIZE, SIZE)
    Collection(tmp_path, mod, host_target()).build({1: lambda: mod}, silent)
    impatient = Collection(tmp_path, mod, host_target(), timeout_sec=0.001)
    impatient.build({2: lambda: mod}, silent)
    impatient.measure([2], [0], silent)
    assert impatient.measured(2).failure == "timeout"
    assert impatient.measured(2).build_secs == 0.001
