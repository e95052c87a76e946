# SPDX-License-Identifier: Apache-2.0
"""Commands given what is none of theirs: a sentence each, and never a traceback."""

import json

import numpy as np
import pytest

from tvm_droplet_ms.cli import main

GARBAGE = np.random.default_rng(0).bytes(3000)
FILES = ("database_workload.json", "database_tuning_record.json", "settings.json", "command.json")
FILES += ("result.json", "progress.jsonl", "machine.json")


@pytest.fixture(params=["absent", "file", "garbage", "directories", "empty", "json", "é ü\n"])
def odd(request, tmp_path):
    """A path that is no directory of a run."""
    path = tmp_path / request.param
    if request.param == "file":
        path.write_bytes(GARBAGE)
    elif request.param != "absent":
        path.mkdir()
        for name in FILES:
            if request.param == "directories":
                (path / name).mkdir()
            else:
                content = {"garbage": GARBAGE, "json": b'["a", {"b": 1}]\n', "empty": b""}
                (path / name).write_bytes(content.get(request.param, b"\xff"))
    return path


@pytest.mark.parametrize(
    "command",
    [
        ["resume", "ODD"],
        ["report", "ODD", "--out", "OUT"],
        ["merge", "ODD", "--out", "OUT"],
        ["merge", "ODD", "ODD", "--out", "ODD"],
        ["pretrain", "ODD", "--out", "OUT"],
        ["demo", "--work-dir", "ODD"],
        ["space", "show", "ODD"],
        ["space", "features", "ODD", "--out", "OUT"],
        ["doctor", "ODD"],
        ["doctor", "ODD", "--repair"],
    ],
    ids=" ".join,
)
def test_what_is_no_directory_of_a_run(command, odd, tmp_path, capsys, monkeypatch):
    from tvm_droplet_ms.cli.doctor import machine
    from tvm_droplet_ms.tuning.kernel import KernelError, kernel_run

    def tune_nothing(*_):
        raise KernelError("nothing is measured")

    monkeypatch.setattr(kernel_run.KernelRun, "tune", tune_nothing)
    monkeypatch.setattr(machine, "examine_machine", lambda: iter(()))
    places = {"ODD": str(odd), "OUT": str(tmp_path / "out")}
    status = main([places.get(word, word) for word in command])
    captured = capsys.readouterr()
    if command[0] in ("doctor", "demo"):
        assert status in (0, 1)
    else:
        assert status == 1
        assert captured.err.startswith(f"droplet-ms {command[0]}") and ": error: " in captured.err


def test_files_of_training_data_that_are_none(tmp_path, capsys):
    np.savez(tmp_path / "empty.npz")
    np.savez(tmp_path / "odd.npz", x=np.zeros(3))
    (tmp_path / "garbage.npz").write_bytes(GARBAGE)
    for name in ("empty.npz", "odd.npz", "garbage.npz"):
        arguments = ["pretrain", str(tmp_path / name), "--out", str(tmp_path / "out")]
        assert main(arguments) == 1
        assert "droplet-ms pretrain: error: " in capsys.readouterr().err


def test_functions_that_raise_name_their_place(tmp_path, capsys, monkeypatch):
    (tmp_path / "mine_odd.py").write_text("def make():\n    raise KeyError('shape')\n")
    (tmp_path / "mine_torn.py").write_text("def make(:\n")
    monkeypatch.syspath_prepend(tmp_path)
    for text, words in (
        ("mine_odd:make", f"mine_odd:make: 'shape' ({tmp_path / 'mine_odd.py'}:2)"),
        ("mine_torn:make", "mine_torn:make: "),
        ("mine_odd:", "has no attribute ''"),
        (":", "error: "),
    ):
        assert main(["tune", text, "--work-dir", str(tmp_path / "logs")]) == 1
        captured = capsys.readouterr()
        assert words in captured.err and len(captured.err.splitlines()) == 1


@pytest.mark.parametrize("number", ["-1", "99999999999999999999", "²", "1e3", "", "0x10"])
@pytest.mark.parametrize(
    "command", [["tune", "dense"], ["pretrain", "a", "--out", "b"], ["demo"]], ids=lambda c: c[0]
)
def test_numbers_out_of_range_are_bad_arguments(command, number, capsys):
    with pytest.raises(SystemExit) as ended:
        main([*command, f"--seed={number}"])
    assert ended.value.code == 2
    assert "is no seed: expected an integer" in capsys.readouterr().err


def test_a_saved_module_that_is_none(tmp_path, capsys):
    for content in (GARBAGE, b"", b"[]", json.dumps({"root_index": 0, "nodes": []}).encode()):
        (tmp_path / "kernel.json").write_bytes(content)
        assert main(["tune", str(tmp_path / "kernel.json")]) == 1
        assert "droplet-ms tune: error: " in capsys.readouterr().err
