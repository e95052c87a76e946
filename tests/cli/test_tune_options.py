# SPDX-License-Identifier: Apache-2.0
"""Options of ``droplet-ms tune`` that are refused before anything is tuned, and files of inputs."""

import json
import pickle
from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest

from tvm_droplet_ms.cli import main, tune
from tvm_droplet_ms.cli.options import OptionError, read_inputs
from tvm_droplet_ms.session.errors import ModelError


@pytest.fixture
def untuned(monkeypatch):
    """Nothing is tuned."""
    for module, name in ((tune, "tune_one"), (tune, "_tune_model")):
        monkeypatch.setattr(module, name, lambda *_: pytest.fail("it tunes"))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["dense", "--tolerance", "1"], "--tolerance does not apply to a kernel, which 'dense' is"),
        (["dense", "--shape", "x=1,2"], "--shape does not apply to a kernel"),
        (["dense", "--constant", "n=4"], "--constant does not apply to a kernel"),
        (["dense", "--in-place", "a=b"], "--in-place does not apply to a kernel"),
        (["dense", "--allow-winograd"], "--allow-winograd does not apply to a kernel"),
        (["dense", "--allow-bfloat16"], "--allow-bfloat16 does not apply to a kernel"),
        (["dense", "--against", "pytorch"], "--against does not apply to a kernel"),
        (["m.onnx", "--target", "cuda"], "--target does not apply to a model"),
        (["m.onnx", "--target", ""], "--target does not apply to a model"),
        (["m.onnx", "--target-us", "3"], "--target-us does not apply to a model"),
        (["m.onnx", "--tracker", "h:1", "--key", "k"], "--tracker does not apply to a model"),
        (["m.onnx", "--key", "k"], "--key does not apply to a model"),
        (["m.onnx", "--against", "pytorch"], "what it came from, pass --against onnxruntime"),
        (["m.pt2", "--against", "onnxruntime"], "what it came from, pass --against pytorch"),
        (["m.onnx", "--out", "absent/m.so"], "there is no directory 'absent'"),
        (["dense", "--out", "absent/m.so"], "there is no directory 'absent'"),
        (["dense", "--out", "."], "--out '.' is a directory: name a file in it"),
        (["dense", "--inputs", "absent.npz"], "--inputs 'absent.npz' cannot be read: [Errno 2]"),
    ],
)
def test_what_would_fail_or_be_ignored_is_refused(
    arguments, words, untuned, capsys, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    assert main(["tune", *arguments, "--work-dir", str(tmp_path / "logs")]) == 1
    captured = capsys.readouterr()
    assert captured.err.startswith("droplet-ms tune: error: ") and words in captured.err
    assert len(captured.err.splitlines()) == 1 and not captured.out
    assert not (tmp_path / "logs").exists()


def written(path, content):
    path.write_bytes(content)
    return str(path)


def test_files_that_are_no_inputs_are_named(tmp_path):
    np.savez(tmp_path / "empty.npz")
    np.save(tmp_path / "single.npy", np.zeros(3))
    np.savez(tmp_path / "objects.npz", x=np.array([{}], dtype=object))
    files = [
        written(tmp_path / "none", b""),
        written(tmp_path / "text", b"x = 1\n"),
        written(tmp_path / "pickle", pickle.dumps({"x": 1})),
        written(tmp_path / "torn.npz", (tmp_path / "objects.npz").read_bytes()[:40]),
        *(str(tmp_path / name) for name in ("empty.npz", "single.npy", "objects.npz", "..", "a")),
    ]
    for file in files:
        with pytest.raises(OptionError, match="--inputs .* (cannot be read|holds no array)"):
            read_inputs(file)


X_SO = Namespace(command="tune", out="x.so")


class Result:
    """A result whose library cannot be written."""

    def __init__(self, error=None):
        self.error, self.exported = error, []

    def export(self, path):
        if self.error:
            raise self.error
        self.exported.append(path)


def test_the_result_is_printed_before_the_library_is_written(capsys):
    full = Result(OSError(28, "No space left on device"))
    assert tune.hand_over("the result", full, X_SO, Path("logs/kernel.so"), False) == 1
    captured = capsys.readouterr()
    assert captured.out == "the result\n"
    assert captured.err.startswith("droplet-ms tune: error: --out 'x.so' could not be written: ")
    assert captured.err.endswith("; the library is in 'logs/kernel.so'\n")
    result = Result()
    assert tune.hand_over("the result", result, X_SO, Path("logs/kernel.so"), True) == 130
    assert result.exported == ["x.so"]


def test_the_library_is_written_where_nobody_reads_the_result(monkeypatch):
    class Closed:
        def write(self, _text):
            raise BrokenPipeError

        def flush(self):
            pass

    monkeypatch.setattr("sys.stdout", Closed())
    result = Result()
    with pytest.raises(BrokenPipeError):
        tune.hand_over("the result", result, X_SO, Path("kernel.so"), False)
    assert result.exported == ["x.so"]


@pytest.fixture
def lookup(tmp_path):
    """A model that looks rows of a table up."""
    onnx = pytest.importorskip("onnx")
    helper, kinds = onnx.helper, onnx.TensorProto
    table = onnx.numpy_helper.from_array(np.ones((5, 8), "float32"), "table")
    graph = helper.make_graph(
        [
            helper.make_node("Gather", ["table", "rows"], ["picked"]),
            helper.make_node("Relu", ["picked"], ["y"]),
        ],
        "graph",
        [helper.make_tensor_value_info("rows", kinds.INT64, [3])],
        [helper.make_tensor_value_info("y", kinds.FLOAT, [3, 8])],
        [table],
    )
    model = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 13)])
    onnx.save(model, tmp_path / "lookup.onnx")
    return tmp_path / "lookup.onnx"


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"columns": np.zeros(3, "int64")}, "inputs has ['columns'], expected names of ['rows']"),
        ({"rows": np.zeros(4, "int64")}, "inputs['rows'] has the shape (4,), expected (3,)"),
        ({"rows": np.zeros(3)}, "inputs['rows'] has the type float64, expected int64"),
        ({"rows": np.array(["a", "b", "c"])}, "inputs['rows'] has the type <U1, expected int64"),
        (
            {"rows": np.full(3, 2**64 - 1, "uint64")},
            "has numbers from 18446744073709551615 to 18446744073709551615, which int64 does not",
        ),
    ],
)
def test_inputs_of_a_model_that_do_not_fit_are_refused(lookup, arrays, words, tmp_path, capsys):
    np.savez(tmp_path / "inputs.npz", **arrays)
    inputs = ["--inputs", str(tmp_path / "inputs.npz"), "--work-dir", str(tmp_path / "logs")]
    assert main(["tune", str(lookup), "--trials", "0", *inputs]) == 1
    captured = capsys.readouterr()
    assert words in captured.err and "Traceback" not in captured.err


def test_a_model_is_checked_with_the_inputs_of_a_file(lookup, tmp_path, capsys, monkeypatch):
    """Beside its reference, which is in the JSON too."""
    pytest.importorskip("onnxruntime")
    np.savez(tmp_path / "inputs.npz", rows=np.array([4, 2, 4], "int32"))
    arguments = ["tune", str(lookup), "--trials", "0", "--work-dir", str(tmp_path / "logs")]
    monkeypatch.chdir(tmp_path)
    arguments += ["--inputs", "inputs.npz", "--json", "--against", "onnxruntime"]
    assert main(arguments) == 0
    content = json.loads(capsys.readouterr().out)
    assert set(content["beside"]) == {"tuned", "ONNX Runtime"}
    low, high = content["beside"]["tuned"]["quartiles"]
    assert 0 < low <= content["beside"]["tuned"]["median"] <= high
    kept = json.loads((tmp_path / "logs" / "command.json").read_text())
    assert kept["options"]["inputs"] == str(tmp_path / "inputs.npz")


@pytest.mark.parametrize(
    ("flags", "precision"), [([], "float32"), (["--allow-bfloat16"], "bfloat16")]
)
def test_the_precision_is_that_of_the_flag(tmp_path, monkeypatch, capsys, flags, precision):
    asked = []

    def note_precision(_model, **options):
        asked.append(options["precision"])
        raise ModelError("enough")

    monkeypatch.setattr("tvm_droplet_ms.tuning.tune", note_precision)
    (tmp_path / "model.onnx").write_bytes(b"")
    work_dir = str(tmp_path / "work")
    assert main(["tune", str(tmp_path / "model.onnx"), "--work-dir", work_dir, *flags]) == 1
    assert capsys.readouterr().err.endswith("droplet-ms tune: error: enough\n")
    # The same flag holds for what goes on in the directory.
    assert main(["resume", work_dir]) == 1
    assert capsys.readouterr().err.endswith("droplet-ms resume: error: enough\n")
    assert asked == [precision, precision]
