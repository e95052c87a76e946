# SPDX-License-Identifier: Apache-2.0
"""``droplet-ms tune`` of a single kernel."""

import json
import re

import pytest

import tvm
from tvm import te
from tvm.ir import IRModule, save_json
from tvm.s_tir.meta_schedule.testing import te_workload
from tvm.target import Target
from tvm_droplet_ms.cli import main
from tvm_droplet_ms.cli.options import is_kernel
from tvm_droplet_ms.cli.tune import find_kernel


def small_matmul():
    return te.create_prim_func(te_workload.matmul(32, 32, 32))


def test_models_are_told_from_kernels():
    assert not is_kernel("a.onnx") and not is_kernel("b.pt2")
    assert is_kernel("dense") and is_kernel("a:b") and is_kernel("a.json")


def test_a_kernel_is_found_by_name_by_function_and_in_a_file(tmp_path):
    file = tmp_path / "matmul.json"
    file.write_text(save_json(IRModule({"main": small_matmul()})))
    in_file = find_kernel(str(file))
    tvm.ir.assert_structural_equal(in_file["main"], small_matmul())
    tvm.ir.assert_structural_equal(
        find_kernel("test_tune_kernel_command:small_matmul"), small_matmul()
    )
    assert "main" in [name.name_hint for name in find_kernel("dense").get_global_vars()]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("densely", "'densely' is no workload, expected one of "),
        ("no_such_module:f", "No module named 'no_such_module'"),
        ("test_tune_kernel_command:absent", "has no attribute 'absent'"),
        ("absent.json", "absent.json holds no module"),
        ("json:dumps", "missing 1 required positional argument"),
    ],
)
def test_what_is_no_kernel_ends_in_words(name, message, capsys):
    assert main(["tune", name]) == 1
    captured = capsys.readouterr()
    assert message in captured.err and captured.err.startswith("droplet-ms tune: error: ")
    assert not captured.out


@pytest.mark.parametrize("target", ["haswell", "llvm-haswell", "llvm -mcpu=haswell", ""])
def test_what_is_no_target_is_answered_by_one_that_is(target, capsys):
    assert main(["tune", "dense", "--trials", "0", f"--target={target}"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"droplet-ms tune: error: target {target!r} is not known to TVM: ")
    assert Target(re.search(r"'({.*})'$", line)[1]).attrs["mcpu"] == "haswell"


def test_a_file_of_another_kind_is_named(tmp_path, capsys):
    (file := tmp_path / "weights.pt").write_bytes(b"")
    assert main(["tune", str(file)]) == 1
    message = "weights.pt' is no file that can be tuned: expected .onnx or .pt2 (a model), or .json"
    assert message in capsys.readouterr().err


def test_a_kernel_is_tuned_from_the_shell(capfd, tmp_path):
    arguments = ["tune", "test_tune_kernel_command:small_matmul", "--work-dir", str(tmp_path / "w")]
    arguments += ["--trials", "6", "--json", "--out", str(tmp_path / "matmul.so")]
    assert main(arguments) == 0
    captured = capfd.readouterr()
    content = json.loads(captured.out)
    assert (content["trials"], content["verified"]) == (6, True)
    assert "6 of 6 trials" in captured.err
    # Nothing of TVM's log, a table a batch.
    assert len(captured.err.splitlines()) <= 8, captured.err
    tvm.runtime.load_module(str(tmp_path / "matmul.so"))
