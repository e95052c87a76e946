# SPDX-License-Identifier: Apache-2.0
"""Every program in examples/ runs unchanged with few trials."""

import json
import re
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """Run an example with arguments and return what it prints."""

    def run_example(name: str, *arguments: object) -> str:
        path = EXAMPLES / f"{name}.py"
        monkeypatch.setattr(sys, "argv", [str(path), *map(str, arguments)])
        runpy.run_path(str(path), run_name="__main__")
        return capsys.readouterr().out

    return run_example


def test_matmul_example_runs(run, tmp_path: Path):
    printed = run("tune_matmul", "--trials", 4, "--work-dir", tmp_path)
    assert float(re.search(r"([0-9.]+) GFLOP/s", printed)[1]) > 0
    assert len((tmp_path / "database_tuning_record.json").read_text().splitlines()) == 4


def test_relax_example_runs(run, tmp_path: Path):
    printed = run("tune_relax_cnn", "--trials", 4, "--work-dir", tmp_path)
    assert "The outputs agree" in printed
    times = dict(re.findall(r"(untuned|tuned): ([0-9.]+) ms", printed))
    assert times.keys() == {"untuned", "tuned"}


@pytest.mark.slow
def test_onnx_example_runs(run, tmp_path: Path):
    pytest.importorskip("onnx")
    printed = run("tune_onnx", "--trials", 8, "--minutes", 10, "--work-dir", tmp_path)
    assert "times as fast" in printed
    assert (tmp_path / "model.so").stat().st_size > 0


@pytest.mark.slow
def test_notebook_runs(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch):
    """The code of its cells, as a kernel would run them, with 45 seconds for the minute."""
    pytest.importorskip("onnxruntime")
    cells = json.loads((EXAMPLES / "tune_onnx.ipynb").read_text())["cells"]
    assert not any(cell.get("outputs") for cell in cells)
    code = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    assert code.count("MINUTES = 1.0\n") == 1
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    names: dict[str, Any] = {}
    exec(code.replace("MINUTES = 1.0\n", "MINUTES = 0.75\n"), names)
    printed = capsys.readouterr().out
    assert names["difference"] < 1e-4
    assert dict(re.findall(r"(tuned|ONNX Runtime) +([0-9.]+) ms", printed)).keys() == {
        "tuned",
        "ONNX Runtime",
    }
    assert "squeezenet.onnx" in names["page"].read_text()
    assert "<table" in names["result"]._repr_html_()


def test_decoder_example_generates_the_tokens_of_pytorch(run, tmp_path: Path):
    pytest.importorskip("torch")
    arguments = ("--tokens", 5, "--layers", 1, "--width", 32, "--trials", 0)
    printed = run("generate_text", *arguments, "--work-dir", tmp_path)
    assert "5 of 5 tokens are PyTorch's" in printed


def test_export_example_runs(run, tmp_path: Path):
    library = tmp_path / "dense_relu.so"
    printed = run("export_kernel", "--trials", 4, "--work-dir", tmp_path, "--out", library)
    assert library.stat().st_size > 0
    assert "computes what NumPy does" in printed


def test_database_example_shows_records_of_resumed_run(run, tmp_path: Path):
    printed = run("inspect_database", "--trials", 4, "--work-dir", tmp_path)
    assert "8 records, 0 of them failures" in printed
    assert "SamplePerfectTile" in printed


def test_cost_model_example_runs(run, tmp_path: Path):
    model = tmp_path / "cpu.model"
    run("own_cost_model", "--trials", 4, "--work-dir", tmp_path / "logs", "--out", model)
    assert model.stat().st_size > 0
    assert len(list((tmp_path / "logs").glob("*/database_tuning_record.json"))) == 3


@pytest.mark.slow
def test_graph_example_runs(run, tmp_path: Path):
    printed = run("optimize_graph", "--only", "steps", "--seconds", 40, "--work-dir", tmp_path)
    assert re.match(r"steps: \d+ us before, \d+ us after, [0-9.]+x", printed)


@pytest.mark.slow
def test_timm_example_runs(run, tmp_path: Path):
    pytest.importorskip("timm")
    model = ("--model", "mobilenetv3_small_050")
    printed = run("optimize_timm", *model, "--seconds", 120, "--work-dir", tmp_path)
    assert re.search(r"^mobilenetv3_small_050: [0-9.]+ ms before, [0-9.]+ ms after", printed, re.M)


def test_examples_are_short():
    lengths = {path.name: len(path.read_text().splitlines()) for path in EXAMPLES.glob("*.py")}
    assert len(lengths) <= 9
    assert max(lengths.values()) <= 100
