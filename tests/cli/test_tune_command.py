# SPDX-License-Identifier: Apache-2.0
"""The command ``droplet-ms tune``."""

import errno
import os
from pathlib import Path

import pytest

from tvm_droplet_ms.cli import main
from tvm_droplet_ms.cli.arguments import concerns


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--shape", "x=1,-1"], "'x=1,-1' is no shape: expected a name and extents, such as"),
        (["--shape", "1,3"], "'1,3' is no shape"),
        (["--dim", "batch=-1"], "'batch=-1' is no extent: expected a name and a whole number"),
        (["--dim", "batch=N"], "'batch=N' is no extent"),
        (["--constant", "sr=fast"], "'sr=fast' is no value of an input"),
        (["--in-place", "past"], "'past' is no pair of an input and an output"),
        (["--minutes", "0"], "'0' is not a positive number of minutes"),
        (["--minutes", "soon"], "'soon' is not a positive number of minutes"),
        (["--trials", "-1"], "'-1' is not a number of trials"),
        (["--threads", "0"], "'0' is not a positive integer"),
    ],
)
def test_bad_arguments_are_named(arguments, message, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["tune", "model.onnx", "=".join(arguments)])
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


def test_a_missing_model_is_named(capsys, tmp_path):
    missing = str(tmp_path / "model.onnx")
    assert main(["tune", missing, "--work-dir", str(tmp_path)]) == 1
    assert f"model {missing!r} does not exist" in capsys.readouterr().err


def test_a_directory_that_cannot_be_made_is_named(capsys, monkeypatch):
    def read_only(path, **_options):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    monkeypatch.setattr(Path, "mkdir", read_only)
    assert main(["tune", "dense", "--work-dir", "/read/only"]) == 1
    error = capsys.readouterr().err
    assert "--work-dir '/read/only' cannot be used: [Errno 30] Read-only file system" in error
    assert "or pass another --work-dir" in error and len(error.splitlines()) == 1


def test_an_error_concerns_a_path_and_what_is_below_it_or_becomes_it():
    below = [OSError(errno.EACCES, "", f"/a/work{end}") for end in ("", "/.lock", ".partial")]
    assert all(concerns(error, "/a/work") for error in below)
    assert concerns(OSError(errno.ENOSPC, ""), "/a/work")
    others = [OSError(errno.EACCES, "", "/a/work2"), OSError(errno.EPIPE, "")]
    assert not any(concerns(error, "/a/work") for error in others)


def test_a_model_is_tuned_from_the_shell(capsys, tmp_path):
    onnx = pytest.importorskip("onnx")
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])],
        "graph",
        [helper.make_tensor_value_info("x", kind, ["batch", 8])],
        [helper.make_tensor_value_info("y", kind, ["batch", 8])],
    )
    model = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 13)])
    onnx.save(model, tmp_path / "relu.onnx")
    arguments = ["tune", str(tmp_path / "relu.onnx"), "--work-dir", str(tmp_path / "logs")]
    assert main([*arguments, "--trials", "0"]) == 1
    assert "--dim batch=1" in capsys.readouterr().err
    library = tmp_path / "relu.so"
    status = main([*arguments, "--trials", "0", "--dim", "batch=4", "--out", str(library)])
    assert status == 0
    printed = capsys.readouterr().out
    assert "latency" in printed and "relu" in printed
    assert library.stat().st_size > 0
