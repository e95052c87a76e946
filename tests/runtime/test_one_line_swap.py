# SPDX-License-Identifier: Apache-2.0
"""Programs that use ONNX Runtime run unchanged but for the line that opens the session."""

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.version_converter
import pytest

from benchmarks.zoo.model_zoo import light_onnx
from tvm_droplet_ms import tune
from tvm_droplet_ms.runtime import InferenceSession, SessionError
from tvm_droplet_ms.runtime.binding import IOBinding

from .conftest import dense_by_numpy

onnxruntime = pytest.importorskip("onnxruntime")

X = np.random.default_rng(2).standard_normal((1, 16)).astype("float32")

FOLDER = Path(onnx.__file__).parent / "backend" / "test" / "data"

MODELS = (
    "pytorch-converted/test_BatchNorm2d_eval",
    "pytorch-converted/test_Conv2d_depthwise_padded",
    "pytorch-converted/test_ConvTranspose2d",
    "pytorch-converted/test_Embedding",
    "pytorch-converted/test_GLU",
    "pytorch-converted/test_Linear",
    "pytorch-converted/test_MaxPool3d_stride_padding",
    "pytorch-operator/test_operator_conv",
    "pytorch-operator/test_operator_mm",
    "light/light_shufflenet",
)
"""Models of the ``onnx`` package, with and without weights."""

PROGRAM = """
import sys
import threading

import numpy as np
import onnxruntime
import tvm_droplet_ms

path = sys.argv[1]
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 2
providers = ["CPUExecutionProvider"]
session = onnxruntime.InferenceSession(path, options, providers=providers)

print(session.get_modelmeta().graph_name, session.get_providers())
rng, feed = np.random.default_rng(0), {}
for given in session.get_inputs():
    assert all(isinstance(extent, int) for extent in given.shape)
    if given.type == "tensor(float)":
        feed[given.name] = rng.standard_normal(given.shape, dtype="float32")
    else:
        assert given.type == "tensor(int64)"
        feed[given.name] = rng.integers(0, 3, given.shape)
names = [output.name for output in session.get_outputs()]
outputs = session.run(names, feed)
last = session.run(names[-1:], feed)

binding = session.io_binding()
for name, value in feed.items():
    binding.bind_cpu_input(name, value)
for name in names:
    binding.bind_output(name)
session.run_with_iobinding(binding)
bound = [value.numpy() for value in binding.get_outputs()] + binding.copy_outputs_to_cpu()

done = threading.Event()
def keep(results, kept, error):
    kept.append((results, error))
    done.set()
later = []
session.run_async(None, feed, keep, later)
assert done.wait(60)
((late, error),) = later
assert not error
np.savez(sys.argv[2], *outputs, *last, *bound, *late)
"""
LINE = "session = onnxruntime.InferenceSession(path, options, providers=providers)"
SWAPPED = "session = tvm_droplet_ms.InferenceSession(path, options, providers=providers)"


def run_program(text: str, path: Path) -> list[np.ndarray]:
    """Run a program in a process of its own; return what it found."""
    program, out = path.with_suffix(".py"), path.with_suffix(".npz")
    program.write_text(text)
    command = [sys.executable, str(program), str(path), str(out)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    with np.load(out) as arrays:
        return [arrays[f"arr_{place}"] for place in range(len(arrays))]


def model_of(name: str) -> onnx.ModelProto:
    """A model as one of version 13, because ONNX Runtime lacks operators of version 6."""
    folder, _, light = name.partition("/light_")
    model = light_onnx(light) if light else onnx.load(FOLDER / folder / "model.onnx")
    return onnx.version_converter.convert_version(model, 13)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_a_program_runs_with_one_line_swapped(name: str, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(model_of(name), path)
    expected = run_program(PROGRAM, path)
    tune(path, trials=0, work_dir=tmp_path / "run", progress=None)
    assert PROGRAM.count(LINE) == 1
    found = run_program(PROGRAM.replace(LINE, SWAPPED), tmp_path / "run" / "model.so")
    for ours, theirs in zip(found, expected, strict=True):
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
        scale = np.abs(theirs).max(initial=1e-30)
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4 * scale)


def test_a_library_is_opened_from_its_bytes(dense_library: Path) -> None:
    session = InferenceSession(dense_library.read_bytes())
    np.testing.assert_allclose(session.run(None, {"x0": X})[0], dense_by_numpy(X), rtol=1e-5)
    assert session.get_modelmeta().graph_name == "small.onnx"
    with pytest.raises(SessionError, match="does not describe itself"):
        InferenceSession(b"\x7fELF, and no more")


def bound(session: InferenceSession) -> IOBinding:
    return session.io_binding()


def test_memory_is_bound_by_address_and_as_ort_values(dense_library: Path) -> None:
    session = InferenceSession(dense_library)
    binding, x, y = bound(session), X.copy(), np.empty((1, 8), "float32")
    binding.bind_input("x0", "cpu", 0, np.float32, x.shape, x.ctypes.data)
    binding.bind_output("y0", "cpu", 0, np.float32, y.shape, y.ctypes.data)
    for scale in (1, -3):
        x[...] = scale * X
        session.run_with_iobinding(binding)
        np.testing.assert_allclose(y, dense_by_numpy(scale * X), rtol=1e-5, atol=1e-6)
    given, target = map(onnxruntime.OrtValue.ortvalue_from_numpy, (X.copy(), np.zeros_like(y)))
    binding.bind_ortvalue_input("x0", given)
    binding.bind_ortvalue_output("y0", target)
    session.run_with_iobinding(binding)
    np.testing.assert_allclose(target.numpy(), dense_by_numpy(X), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(binding.get_outputs()[0].numpy(), target.numpy())
    with pytest.raises(SessionError, match="'x0' is bound on 'cuda': expected memory of 'cpu'"):
        binding.bind_input("x0", "cuda", 0, np.float32, x.shape, x.ctypes.data)
    with pytest.raises(SessionError, match="cannot be written to an array"):
        binding.bind_output("y0", "cpu", 0, np.float32, (2, 4), y.ctypes.data)
    binding.clear_binding_inputs()
    with pytest.raises(SessionError, match="expected x0"):
        session.run_with_iobinding(binding)


def test_a_run_in_a_thread_tells_its_error(dense_library: Path) -> None:
    session, done, kept = InferenceSession(dense_library), threading.Event(), []

    def keep(outputs: list[Any], data: Any, error: str) -> None:
        kept.append((outputs, data, error))
        done.set()

    session.run_async(None, {"x0": X.astype("float64")}, keep, "data")
    assert done.wait(60)
    ((outputs, data, error),) = kept
    assert (outputs, data) == ([], "data")
    assert "input 'x0' has the type float64" in error
