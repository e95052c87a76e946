# SPDX-License-Identifier: Apache-2.0
"""The commands ``run``, ``bench`` and ``bundle`` on a small library."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnx.helper
import onnx.numpy_helper
import pytest

from tvm_droplet_ms.cli import main, run
from tvm_droplet_ms.runtime.library_info import append_info, read_info

from .conftest import WEIGHTS, dense_by_numpy

X = np.random.default_rng(3).standard_normal((1, 16)).astype("float32")


@pytest.fixture
def onnx_file(tmp_path: Path) -> str:
    """The layer of ``dense`` as an ONNX file."""
    helper = onnx.helper
    nodes = [
        helper.make_node("MatMul", ["x0", "w"], ["h"]),
        helper.make_node("Relu", ["h"], ["y0"]),
    ]
    sides = [
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
        for name, shape in (("x0", [1, 16]), ("y0", [1, 8]))
    ]
    weights = [onnx.numpy_helper.from_array(WEIGHTS, "w")]
    graph = helper.make_graph(nodes, "dense", sides[:1], sides[1:], weights)
    path = tmp_path / "dense.onnx"
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path
    )
    return str(path)


def test_run_writes_the_outputs(dense_library: Path, tmp_path: Path, capsys) -> None:
    assert main(["run", str(dense_library)]) == 0
    described = capsys.readouterr().out.splitlines()
    assert described == ["input x0: tensor(float) 1x16", "output y0: tensor(float) 1x8"]
    np.save(tmp_path / "x.npy", X)
    np.savez(tmp_path / "x.npz", x0=X)
    for given in ("x.npy", "x.npz"):
        out = tmp_path / f"out_{given}"
        command = ["run", str(dense_library), "--input", str(tmp_path / given), "--out", str(out)]
        assert main(command) == 0
        np.testing.assert_allclose(np.load(out / "y0.npy"), dense_by_numpy(X), rtol=1e-5)
    assert f"y0: float32 1x8, {out / 'y0.npy'}" in capsys.readouterr().out


def test_outputs_of_like_names_and_of_bfloat16_are_files(tmp_path: Path) -> None:
    outputs = [np.zeros(2, "float32"), np.ones(2, ml_dtypes.bfloat16)]
    paths = run._write(tmp_path, ["a/b", "a:b"], outputs)
    assert [path.name for path in paths] == ["a_b.npy", "a_b_1.npy"]
    assert np.load(paths[1]).tolist() == [1, 1]


def test_run_names_what_is_wrong(dense_library: Path, tmp_path: Path, capsys) -> None:
    np.save(tmp_path / "x.npy", X.astype("float64"))
    (tmp_path / "x.txt").write_text("1 2 3")
    for given, message in (
        ("x.npy", "error: input 'x0' has the type float64: expected float32"),
        ("x.txt", "x.txt cannot be read (it holds no arrays): expected an .npy or .npz file"),
        ("y.npy", "y.npy cannot be read (No such file or directory)"),
    ):
        assert main(["run", str(dense_library), "--input", str(tmp_path / given)]) == 1
        assert message in capsys.readouterr().err


def test_bench_times_in_turns(dense_library: Path, onnx_file: str, capsys) -> None:
    command = ["bench", str(dense_library), "--rounds", "5", "--against", onnx_file, "onnxruntime"]
    assert main([*command, "--json", "--processes", "2"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["milliseconds"].keys() == {"tuned", "onnxruntime"}
    for low, middle, high in found["milliseconds"].values():
        assert 0 < low <= middle <= high < 1e3
    assert found["runs_per_second"].keys() == {"1", "2"}
    assert min(found["runs_per_second"].values()) > 10
    assert main(command) == 0
    assert "times the time of tuned (" in capsys.readouterr().out


def test_bench_refuses_what_it_cannot_time(dense_library: Path, onnx_file: str, capsys) -> None:
    for against, message in (
        ([onnx_file, "abacus"], "--against 'abacus': expected one of onnxruntime, openvino"),
        (["absent.onnx", "onnxruntime"], "onnxruntime cannot run 'absent.onnx': "),
    ):
        assert main(["bench", str(dense_library), "--against", *against]) == 1
        assert message in capsys.readouterr().err


@pytest.fixture(scope="module")
def bundle(dense_library: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("bundle") / "served"
    assert main(["bundle", str(dense_library), "--out", str(out)]) == 0
    return out


def test_a_bundle_is_small_and_runs_without_the_package(bundle: Path) -> None:
    assert sum(file.stat().st_size for file in bundle.rglob("*") if file.is_file()) < 15e6
    program = """
import sys
import numpy as np
sys.modules.update(dict.fromkeys(["tvm", "tvm_droplet_ms"]))  # They are not installed.
from droplet_runtime import InferenceSession
session = InferenceSession("model.so")
print(session.run(None, {"x0": np.ones((1, 16), "float32")})[0].tolist())
maps = open("/proc/self/maps").read()
assert "served/lib/libtvm_runtime.so" in maps, maps
"""
    beside_tvm = """
from droplet_runtime import InferenceSession
InferenceSession("model.so")
import tvm
import tvm_droplet_ms.runtime
print(tvm_droplet_ms.runtime.InferenceSession("model.so").get_outputs()[0].name)
"""
    root = str(Path(__file__).parents[2])

    def printed(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=bundle,
            env={**os.environ, "PYTHONPATH": root if arguments[-1] == beside_tvm else ""},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    ones = np.ones((1, 16), "float32")
    np.testing.assert_allclose(eval(printed("-c", program)), dense_by_numpy(ones), rtol=1e-5)
    assert printed("main.py") == "y0 float32 (1, 8)\n"
    assert printed("-c", beside_tvm) == "y0\n"


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_a_bundle_runs_in_cpp(bundle: Path, tmp_path: Path) -> None:
    program = tmp_path / "main"
    command = ["g++", "-O1", "-std=c++17", f"-I{bundle}", f"-I{bundle}/include"]
    command += [str(bundle / "main.cc"), "-o", str(program), "-Wl,--no-as-needed"]
    command += [f"-L{bundle}/lib", "-ltvm_runtime", "-ltvm_ffi", f"-Wl,-rpath,{bundle}/lib"]
    subprocess.run(command, check=True)

    def run(shape: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([program, shape], cwd=bundle, capture_output=True, text=True)

    assert run("1x16").stdout == "8 numbers, the first is 0\n"
    wrong = run("1x15")
    assert wrong.returncode == 1 and "15 vs. 16" in wrong.stderr
    library = bundle / "model.so"
    info = read_info(library)
    try:
        append_info(library, type(info)(**{**vars(info), "cpu_flags": ("sse2", "quantum")}))
        refused = run("1x16")
    finally:
        append_info(library, info)
    assert refused.returncode == 1
    assert "tuned for a CPU with quantum, which this one lacks" in refused.stderr


@pytest.mark.skipif(
    shutil.which("g++") is None or os.geteuid() != 0, reason="needs g++, and root for chroot"
)
def test_the_cpp_program_of_a_bundle_runs_in_an_empty_root(bundle: Path, tmp_path: Path) -> None:
    """The root holds the bundle, the program, the C library, and the C++ runtime libraries."""
    root = tmp_path / "root"
    shutil.copytree(bundle, root / "served")
    command = ["g++", "-O1", "-std=c++17", f"-I{bundle}", f"-I{bundle}/include"]
    command += [str(bundle / "main.cc"), "-o", str(root / "served/main"), "-Wl,--no-as-needed"]
    command += [f"-L{bundle}/lib", "-ltvm_runtime", "-ltvm_ffi", "-Wl,-rpath,/served/lib"]
    subprocess.run(command, check=True)
    listed = subprocess.run(
        ["ldd", str(bundle / "lib/libtvm_runtime.so")], capture_output=True, text=True, check=True
    )
    # In glibc since 2.34, libdl and libpthread are empty: the C library has their functions.
    of_libc = ("libc.so", "libm.so", "libdl.so", "libpthread.so", "ld-linux")
    allowed = (*of_libc, "libstdc++.so", "libgcc_s.so")
    for word in listed.stdout.split():
        if word.startswith("/") and Path(word).name.startswith(allowed):
            copy = root / word[1:]
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(word, copy)

    def enter() -> None:
        os.chroot(root)
        os.chdir("/served")

    done = subprocess.run(
        ["/served/main", "1x16"], preexec_fn=enter, env={}, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "8 numbers, the first is 0\n"


def test_bundle_refuses_other_files_and_full_directories(bundle: Path, tmp_path, capsys) -> None:
    (tmp_path / "text.so").write_text("text")
    for model, out, message in (
        (bundle / "model.so", bundle, "has files already: name a new directory"),
        (tmp_path / "text.so", tmp_path / "new", "text.so' does not describe itself"),
    ):
        assert main(["bundle", str(model), "--out", str(out)]) == 1
        assert message in capsys.readouterr().err
