# SPDX-License-Identifier: Apache-2.0
"""InferenceSession beside NumPy: values, memory, names, threads, errors."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnx.helper
import onnx.numpy_helper
import pytest

import tvm
from tvm import relax
from tvm.relax.op import astype, matmul
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T
from tvm.target import Target
from tvm_droplet_ms import tune
from tvm_droplet_ms.frontends.imported import ImportedModel, InputSpec
from tvm_droplet_ms.runtime import InferenceSession, SessionError
from tvm_droplet_ms.tuning.compile.compiled_model import CompiledModel
from tvm_droplet_ms.tuning.compile.description import describe

from .conftest import Build, dense_by_numpy, info_of, relax_function, write

TARGET = Target({"kind": "llvm", "num-cores": 1})

X = np.ones((1, 16), "float32")


def aligned(shape: tuple[int, ...], offset: int = 0) -> np.ndarray:
    """Random numbers at an address ``offset`` bytes after a multiple of 64."""
    size = 4 * int(np.prod(shape))
    raw = np.empty(size + 128, np.uint8)
    start = -raw.ctypes.data % 64 + offset
    array = raw[start : start + size].view("float32").reshape(shape)
    array[...] = np.random.default_rng(1).standard_normal(shape)
    return array


@pytest.mark.parametrize("offset", [0, 4])
def test_run_computes_the_layer(dense_library: Path, offset: int) -> None:
    session = InferenceSession(dense_library)
    x = aligned((1, 16), offset)
    for scale in (1, -2):
        (found,) = session.run(None, {"x0": scale * x})
        np.testing.assert_allclose(found, dense_by_numpy(scale * x), rtol=1e-5, atol=1e-5)


def test_arguments_of_onnx_runtime(dense_library: Path) -> None:
    class SessionOptions:
        intra_op_num_threads = 1

    providers = ["CPUExecutionProvider"]
    session = InferenceSession(str(dense_library), SessionOptions(), providers=providers)
    assert session.get_providers() == providers
    (given,), (result,) = session.get_inputs(), session.get_outputs()
    assert (given.name, given.type, given.shape) == ("x0", "tensor(float)", [1, 16])
    assert (result.name, result.type, result.shape) == ("y0", "tensor(float)", [1, 8])
    x = np.ones((1, 16), "float32")
    np.testing.assert_array_equal(session.run(["y0"], {"x0": x}), session.run([], {"x0": x}, None))


def test_each_tuned_shape_and_those_between(bucket_library: Path) -> None:
    session = InferenceSession(bucket_library)
    assert session.get_inputs()[0].shape == [None, 16]
    for rows in (1, 2, 3, 4, 2):
        x = aligned((rows, 16))
        (found,) = session.run(None, {"x0": x})
        np.testing.assert_allclose(found, dense_by_numpy(x), rtol=1e-5, atol=1e-5)
    with pytest.raises(SessionError, match=r"\(5, 16\): .* x0 \(2, 16\); or x0 \(4, 16\)"):
        session.run(None, {"x0": aligned((5, 16))})


@pytest.mark.parametrize("offset", [0, 4])
def test_outputs_belong_to_the_caller(odd_library: Path, offset: int) -> None:
    """Neither the input, nor the constants of the library, nor the results of the next run."""
    session = InferenceSession(odd_library)
    x = aligned((8192,), offset)
    given = x.copy()
    first = session.run(None, {"x0": x})
    kept = [each.copy() for each in first]
    second = session.run(None, {"x0": x + 1})
    np.testing.assert_array_equal(first, kept)
    for each in second:
        each[...] = 7
    np.testing.assert_array_equal(x, given)
    np.testing.assert_array_equal(session.run(None, {"x0": x}), kept)
    np.testing.assert_array_equal(kept, [given, np.arange(8192), given + given])


def test_an_aligned_input_is_read_where_it_is(build: Build) -> None:
    """The output is the input: the memory is the caller's only if nothing was copied."""
    sides = [((8192,), "float32")]
    session = InferenceSession(build({"main": (sides, lambda x: [x])}, info_of(sides, sides)))
    for x, shared in ((aligned((8192,)), True), (aligned((8192,), 4), False)):
        (found,) = session.run(None, {"x0": x})
        assert np.shares_memory(found, x) == shared
        np.testing.assert_array_equal(found, x)
    own = session.empty_input("x0")
    assert own.shape == (8192,) and not own.any()
    assert np.shares_memory(session.run(None, {"x0": own})[0], own)


@pytest.mark.parametrize("offset", [0, 4])
def test_bound_outputs_are_written(dense_library: Path, offset: int) -> None:
    session = InferenceSession(dense_library)
    binding = session.io_binding()
    x, out = aligned((1, 16), offset), aligned((1, 8), offset)
    binding.bind_cpu_input("x0", x)
    binding.bind_output("y0", out)
    for value in (1.0, -3.0):
        x[...] = value
        session.run_with_iobinding(binding)
        np.testing.assert_allclose(out, dense_by_numpy(x), rtol=1e-5, atol=1e-5)
        assert binding.copy_outputs_to_cpu()[0] is out


@T.prim_func(s_tir=True, private=True)
def increment(x: T.Buffer((8192,), "float32")) -> None:
    for i in range(8192):
        with T.sblock("add"):
            v = T.axis.spatial(8192, i)
            x[v] = x[v] + T.float32(1)


@pytest.mark.parametrize("offset", [0, 4])
def test_a_cache_is_changed_where_it_is_in_a_binding_alone(tmp_path: Path, offset: int) -> None:
    sides = [((8192,), "float32")]
    builder = relax.BlockBuilder()
    kernel = builder.add_func(increment, "increment")
    kind = relax.TensorType((8192,), "float32")
    body = lambda x: [relax.op.call_tir_inplace(kernel, relax.Tuple([x]), [0], kind)]  # noqa: E731
    relax_function("main", sides, body, builder)
    info = info_of(sides, sides, aliases=((0, 0),), written=(0,))
    session = InferenceSession(write(builder.get(), info, tmp_path / "model.so"))
    frozen = aligned((8192,))
    frozen.flags.writeable = False
    refusing = session.io_binding()
    refusing.bind_cpu_input("x0", frozen)
    with pytest.raises(SessionError, match="'x0' is a read-only array, and the model changes it"):
        session.run_with_iobinding(refusing)
    cache = aligned((8192,), offset)
    before = cache.copy()
    np.testing.assert_array_equal(session.run(None, {"x0": cache})[0], before + 1)
    np.testing.assert_array_equal(cache, before)
    binding = session.io_binding()
    binding.bind_cpu_input("x0", cache)
    for step in (1, 2):
        session.run_with_iobinding(binding)
        np.testing.assert_allclose(cache, before + step, rtol=1e-6)
        assert binding.copy_outputs_to_cpu()[0] is cache


def test_other_types(build: Build) -> None:
    """bfloat16, which NumPy has from ml_dtypes, and numbers without an axis."""
    inputs = [((3,), "bfloat16"), ((), "int64")]
    outputs = [((3,), "float32"), ((), "float32"), ((3,), "bfloat16")]
    body = lambda x, n: [astype(x, "float32"), astype(n, "float32"), x]  # noqa: E731
    info = info_of(inputs, outputs, aliases=((2, 0),))
    session = InferenceSession(build({"main": (inputs, body)}, info))
    x = np.array([1, 2.5, -3], ml_dtypes.bfloat16)
    wide, number, same = session.run(None, {"x0": x, "x1": 5})
    assert wide.tolist() == [1, 2.5, -3] and number == 5
    assert same.dtype == x.dtype and same.tolist() == x.tolist()
    assert [each.type for each in session.get_inputs()] == ["tensor(bfloat16)", "tensor(int64)"]


def test_what_numpy_reads_is_read(dense_library: Path, tmp_path: Path) -> None:
    """Files mapped read-only, subclasses, arrays and tensors with strides."""
    np.save(tmp_path / "x.npy", X)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    strided = np.repeat(X, 2, 1)[:, ::2]
    frozen = X.copy()
    frozen.flags.writeable = False
    session = InferenceSession(dense_library)
    for given in (mapped, strided, frozen, X.tolist(), np.asmatrix(X)):
        (found,) = session.run(None, {"x0": given})
        np.testing.assert_allclose(found, dense_by_numpy(X), rtol=1e-5)
    with pytest.raises(SessionError, match="2 inputs are given: expected x0"):
        session([X, X])


def test_branches_may_return_an_input(tmp_path: Path) -> None:
    """No run shows what another branch returns: the outputs are copied."""

    @I.ir_module(s_tir=True)
    class Module:
        @R.function
        def main(p: R.Tensor((), "bool"), x: R.Tensor((8192,), "float32")) -> R.Tensor(
            (8192,), "float32"
        ):
            if p:
                y = x
            else:
                y = R.add(x, R.const(1.0))
            return y

    names = (InputSpec("p", (), "bool"), InputSpec("x", (8192,), "float32"))
    compiled = CompiledModel(tvm.compile(Module, "llvm"))
    x = aligned((8192,))
    info = describe(compiled, ImportedModel(Module, names), [np.array(False), x], TARGET, 1)
    assert info.aliases is None and info.written == ()
    session = InferenceSession.of_module(compiled.executable.mod, info)
    (same,) = session([np.array(True), x])
    np.testing.assert_array_equal(same, x)
    assert not np.shares_memory(same, x)


def test_the_number_of_selected_boxes_is_open(tmp_path: Path) -> None:
    """It depends on the boxes: the description has no extent, and a bound array must fit."""
    helper, kinds = onnx.helper, onnx.TensorProto
    values = {"most": np.array([3]), "overlap": np.array([0.5], "float32")}
    graph = helper.make_graph(
        [helper.make_node("NonMaxSuppression", ["boxes", "scores", *values], ["chosen"])],
        "boxes",
        [
            helper.make_tensor_value_info("boxes", kinds.FLOAT, [1, 4, 4]),
            helper.make_tensor_value_info("scores", kinds.FLOAT, [1, 1, 4]),
        ],
        [helper.make_tensor_value_info("chosen", kinds.INT64, [None, 3])],
        [onnx.numpy_helper.from_array(value, name) for name, value in values.items()],
    )
    path = tmp_path / "boxes.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)]), path)
    result = tune(path, trials=0, work_dir=tmp_path / "logs", progress=None)
    library = tmp_path / "boxes.so"
    result.export(library)
    session = InferenceSession(library)
    assert session.get_outputs()[0].shape == [None, None]
    scores = np.ones((1, 1, 4), "float32")
    apart = np.arange(4, dtype="float32")[None, :, None] * 2 + np.array([0, 0, 1, 1], "float32")
    for boxes, count in ((apart, 3), (np.tile(apart[:, :1], (1, 4, 1)), 1)):
        (chosen,) = session.run(None, {"boxes": boxes, "scores": scores})
        assert chosen.shape == (count, 3)
    binding = session.io_binding()
    for name, value in (("boxes", boxes), ("scores", scores)):
        binding.bind_cpu_input(name, value)
    binding.bind_output("chosen", np.zeros((3, 3), "int64"))
    with pytest.raises(SessionError, match=r"is \(1, 3\) this time"):
        session.run_with_iobinding(binding)


def alone(path: Path) -> str:
    """What a process without TVM's Python package prints of a run, or its error."""
    program = f"""
import sys
import numpy as np
from tvm_droplet_ms.runtime import InferenceSession, SessionError
sys.modules["tvm"] = None
from tvm_droplet_ms.runtime import tvm_runtime
from importlib import util
util.find_spec = lambda name: None
tvm_runtime._BUNDLED = __import__("pathlib").Path({str(Path(tvm.__file__).parent / "lib")!r})
try:
    session = InferenceSession({str(path)!r})
    print([each.tolist() for each in session.run(None, {{"x0": np.array([3, 1, 2], "float32")}})])
except SessionError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_what_sorts_needs_the_runtime_alone(build: Build) -> None:
    side = [((3,), "float32")]
    info = info_of(side, [((2,), "float32")])
    path = build({"main": (side, lambda x: [relax.op.topk(x, 2, ret_type="values")])}, info)
    assert alone(path) == "[[3.0, 2.0]]"


def test_functions_of_tvm_in_python_are_found_or_named(build: Build) -> None:
    side = [((3,), "float32")]
    info = info_of(side, [((1, 3), "int64")])
    path = build({"main": (side, lambda x: [relax.op.nonzero(x)])}, info)
    (found,) = InferenceSession(path).run(None, {"x0": np.array([0, 5, 7], "float32")})
    assert found.tolist() == [[1, 2]]
    assert "calls relax.run.nonzero, which TVM's runtime alone does not have" in alone(path)


@pytest.mark.parametrize("path", [None, 3, b"model", "a\0b"])
def test_what_is_no_path_is_refused(path: object) -> None:
    with pytest.raises(SessionError, match="expected"):
        InferenceSession(path)


def test_directories_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SessionError, match=r"cannot be read \(Is a directory\)"):
        InferenceSession(tmp_path)


def test_bound_arrays_that_do_not_fit_are_refused(dense_library: Path, tmp_path: Path) -> None:
    binding = InferenceSession(dense_library).io_binding()
    for wrong in (np.zeros((3, 8), "float32"), np.zeros((1, 8), "float64")):
        with pytest.raises(SessionError, match=r"'y0' cannot be written .* float32 \(1, 8\)"):
            binding.bind_output("y0", wrong)


@pytest.mark.parametrize("offset", [0, 1])
def test_torch_tensors_stay_tensors(odd_library: Path, offset: int) -> None:
    torch = pytest.importorskip("torch")
    session = InferenceSession(odd_library)
    x = torch.arange(8192 + offset, dtype=torch.float32)[offset:].requires_grad_()
    same, table, double = session.run(None, {"x0": x})
    assert torch.equal(same, x) and torch.equal(double, 2 * x)
    negative = torch._neg_view(x.detach())
    assert torch.equal(session.run(None, {"x0": negative})[2], -2 * x)
    same.zero_()
    assert x.sum() > 0 and table[5] == 5
    with pytest.raises(SessionError, match="float64.*expected float32"):
        session.run(None, {"x0": x.double()})


def test_torch_tensors_that_are_no_arrays_are_refused(odd_library: Path) -> None:
    torch = pytest.importorskip("torch")
    session = InferenceSession(odd_library, threads=1)
    zeros = torch.zeros(8192)
    for value in (zeros.to_sparse(), zeros.to(torch.complex64)):
        with pytest.raises(SessionError, match="input 'x0': a PyTorch tensor cannot be read"):
            session.run(None, {"x0": value})


def test_threads_may_share_a_session(bucket_library: Path) -> None:
    session = InferenceSession(bucket_library)
    wrong: list[int] = []

    def work(number: int) -> None:
        x = np.full((2 + number % 3, 16), number, "float32")
        for _ in range(50):
            if not np.allclose(session.run(None, {"x0": x})[0], dense_by_numpy(x), rtol=1e-4):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize(
    ("feed", "outputs", "message"),
    [
        ({}, None, "given are none: expected x0"),
        ({"x": X}, None, "given are x: expected x0"),
        ({"x0": X, "x": X}, None, "given are x0, x: expected x0"),
        ({"x0": X.astype("float64")}, None, "'x0' has the type float64: expected float32"),
        ({"x0": X[:, :3]}, None, r"x0 \(1, 3\): the model was tuned for x0 \(1, 16\)"),
        ({"x0": "text"}, None, "input 'x0': a str cannot be read as float32"),
        ({"x0": None}, None, "input 'x0': a NoneType cannot be read as float32 .there is no value"),
        ({1: X}, None, "given are 1: expected x0"),
        ([X], None, "input_feed is a list: expected a dict of arrays by the names x0"),
        ({"x0": X}, "y0", r"output_names='y0': expected a list of names, \['y0'\]"),
        ({"x0": X}, ["y"], "output 'y' is unknown: the model has y0"),
    ],
)
def test_wrong_inputs_are_named(dense_library: Path, feed: dict, outputs: list, message: str):
    with pytest.raises(SessionError, match=message):
        InferenceSession(dense_library).run(outputs, feed)


@pytest.mark.parametrize("threads", [0.5, True, 10_000])
def test_wrong_threads_are_named(dense_library: Path, threads: object) -> None:
    with pytest.raises(SessionError, match=f"threads={threads}: expected an int from 1 to"):
        InferenceSession(dense_library, threads=threads)


def test_weights_are_in_memory_once(build: Build) -> None:
    weights = np.ones((2048, 4096), "float32")  # 34 MB
    body = lambda x: [matmul(x, relax.const(weights))]  # noqa: E731
    sides = [((1, 2048), "float32")], [((1, 4096), "float32")]
    path = build({"main": (sides[0], body)}, info_of(*sides))
    program = f"""
import numpy as np, psutil
from tvm_droplet_ms.runtime import InferenceSession
session = InferenceSession({str(path)!r})
assert (session.run(None, {{"x0": np.ones((1, 2048), "float32")}})[0] == 2048).all()
print(psutil.Process().memory_info().rss)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert int(done.stdout) < 60e6 + weights.nbytes, done.stderr


def test_the_runtime_alone_is_loaded(dense_library: Path) -> None:
    program = f"""
import sys
import numpy as np
from tvm_droplet_ms.runtime import InferenceSession
session = InferenceSession({str(dense_library)!r})
print(session.run(None, {{"x0": np.ones((1, 16), "float32")}})[0].tolist())
assert not {{"tvm", "torch", "xgboost", "onnx"}} & set(sys.modules), sys.modules.keys()
assert "libtvm_runtime" in open("/proc/self/maps").read()
assert "libtvm_compiler" not in open("/proc/self/maps").read()
import tvm  # and the whole of it later
assert "libtvm_compiler" in open("/proc/self/maps").read()
print(tvm.runtime.tensor(np.ones(2, "float32")).numpy().sum())
"""
    done = subprocess.run(
        [sys.executable, "-c", program], env=os.environ, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    first, last = done.stdout.splitlines()
    np.testing.assert_allclose(eval(first), dense_by_numpy(X), rtol=1e-5)
    assert last == "2.0"
