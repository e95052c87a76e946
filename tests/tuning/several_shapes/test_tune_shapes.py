# SPDX-License-Identifier: Apache-2.0
"""One library for several shapes: each is right, weights are held once, and padding is checked."""

import json
import signal

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tvm
from tvm import relax
from tvm_droplet_ms.runtime import InferenceSession, SessionError
from tvm_droplet_ms.tuning import ModelError, tune
from tvm_droplet_ms.tuning.several_shapes import weight_layouts
from tvm_droplet_ms.tuning.summary import summary

WIDTH = 256
WEIGHTS = [
    np.random.default_rng(seed).standard_normal((WIDTH, WIDTH)).astype("float32") / 16
    for seed in (0, 1)
]


def network(last: str, **attributes) -> onnx.ModelProto:
    """Two dense layers of rows whose number is open, and an operator behind them."""
    nodes = [
        helper.make_node("MatMul", ["x", "first"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("MatMul", ["b", "second"], ["c"]),
        helper.make_node(last, ["c"], ["y"], **attributes),
    ]
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", WIDTH])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", WIDTH])],
        [numpy_helper.from_array(w, name) for w, name in zip(WEIGHTS, ("first", "second"))],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def softmax(rows: np.ndarray, axis: int) -> np.ndarray:
    """The output by NumPy."""
    out = np.maximum(rows @ WEIGHTS[0], 0) @ WEIGHTS[1]
    out = np.exp(out - out.max(axis=axis, keepdims=True))
    return out / out.sum(axis=axis, keepdims=True)


def rows(count: int) -> np.ndarray:
    return np.random.default_rng(count).standard_normal((count, WIDTH)).astype("float32")


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    """Tuned for 2, 32 and 8 rows; a known layout of a weight is taken whatever it costs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(weight_layouts, "NEAR", 1e3)
        patch.setattr(weight_layouts, "SHARE", 0.5)
        return tune(
            network("Softmax", axis=-1),
            dims=[{"rows": 2}, {"rows": 32}, {"rows": 8}],
            shares=[1, 2, 1],
            trials=24,
            time_budget_s=600,
            progress=None,
            work_dir=tmp_path_factory.mktemp("shapes"),
        )


@pytest.mark.parametrize("count", [1, 2, 3, 8, 9, 32])
def test_each_number_of_rows_is_right(tuned, count):
    """Those between two shapes are padded to the next."""
    np.testing.assert_allclose(tuned(rows(count)), softmax(rows(count), -1), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(tuned(x=rows(count)), softmax(rows(count), -1), rtol=1e-4, atol=1e-6)


def test_each_shape_has_its_result_in_the_given_order(tuned):
    assert [result.inputs[0].shape[0] for result in tuned.each_shape] == [2, 32, 8]
    assert all(result.trials for result in tuned.each_shape)
    assert tuned.trials == sum(result.trials for result in tuned.each_shape)
    assert tuned.pads and "padded with zeros to the next shape" in tuned.notes[-1]


def test_each_shape_has_an_entry_in_the_library(tuned):
    path = tuned.work_dir / "model.so"
    machine = relax.VirtualMachine(tvm.runtime.load_module(str(path)), tvm.cpu())
    for name, count in (("main", 2), ("main_1", 32), ("main_2", 8)):
        found = machine[name](tvm.runtime.tensor(rows(count))).numpy()
        np.testing.assert_allclose(found, softmax(rows(count), -1), rtol=1e-4, atol=1e-6)
    assert not list(tuned.work_dir.glob("shape_*"))


def test_a_session_takes_each_shape_and_those_between(tuned):
    session = InferenceSession(tuned.work_dir / "model.so")
    for count in (2, 5, 8, 32):
        (found,) = session.run(None, {"x": rows(count)})
        np.testing.assert_allclose(found, softmax(rows(count), -1), rtol=1e-4, atol=1e-6)
    with pytest.raises(SessionError, match=r"x \(33, 256\): .*; none of these holds them"):
        session.run(None, {"x": rows(33)})


def test_open_extents_have_the_names_of_the_file(tuned):
    onnxruntime = pytest.importorskip("onnxruntime")
    file = network("Softmax", axis=-1).SerializeToString()
    theirs = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    ours = InferenceSession(tuned.work_dir / "model.so")
    for get in ("get_inputs", "get_outputs"):
        expected = [(each.name, each.type, each.shape) for each in getattr(theirs, get)()]
        assert [tuple(each) for each in getattr(ours, get)()] == expected
        assert expected[0][2] == ["rows", WIDTH]


def test_what_no_shape_holds_is_refused_in_words(tuned):
    with pytest.raises(
        ModelError,
        match=r"shapes x \(33, 256\): the model was tuned for x .*; none of these holds them",
    ):
        tuned(rows(33))
    with pytest.raises(ModelError, match="2 inputs by position"):
        tuned(rows(2), rows(2))


def test_it_is_described_shape_by_shape(tuned):
    text = summary(tuned)
    places = [
        text.index(f"main{n}: x ({rows}, 256)") for n, rows in (("", 2), ("_1", 32), ("_2", 8))
    ]
    assert places == sorted(places)
    content = json.loads(tuned.as_json())
    found = [(each["function"], each["shapes"]["x"][0]) for each in content["of_shapes"]]
    assert found == [("main", 2), ("main_1", 32), ("main_2", 8)]


def test_the_export_is_the_library_of_all(tuned, tmp_path):
    tuned.export(tmp_path / "copy.so")
    assert (tmp_path / "copy.so").read_bytes() == (tuned.work_dir / "model.so").read_bytes()


def test_a_resumed_run_measures_nothing_again(tuned):
    again = tune(
        network("Softmax", axis=-1),
        dims=[{"rows": 2}, {"rows": 32}, {"rows": 8}],
        trials=0,
        progress=None,
        work_dir=tuned.work_dir,
    )
    assert again.trials == 0
    assert all("measured" in {row.schedule for row in one.kernels} for one in again.each_shape)
    np.testing.assert_allclose(again(rows(5)), softmax(rows(5), -1), rtol=1e-4, atol=1e-6)


def of_rows(*nodes, inputs=(("x", ["n", 8]),), output=("n", 8)) -> onnx.ModelProto:
    """A model of some nodes without weights."""
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, dims) for name, dims in inputs]
    graph = helper.make_graph(
        list(nodes),
        "nodes",
        infos,
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, output)],
        [
            numpy_helper.from_array(np.array([1, 1, 2, 2], "float32"), "doubled"),
            numpy_helper.from_array(np.array([0.2500001], "float32"), "quarter"),
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


MAXIMUM = of_rows(helper.make_node("ReduceMax", ["x"], ["y"], axes=[0]), output=(1, 8))
SOFTMAX = of_rows(helper.make_node("Softmax", ["x"], ["y"], axis=0))
POOLED = of_rows(
    helper.make_node("MaxPool", ["x"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
    helper.make_node("Resize", ["p", "", "doubled"], ["y"], mode="nearest"),
    inputs=[("x", [1, 1, "n", 4])],
    output=(1, 1, "m", 4),
)


GATED = of_rows(
    helper.make_node("Shape", ["x"], ["s"], start=0, end=1),
    helper.make_node("Cast", ["s"], ["f"], to=TensorProto.FLOAT),
    helper.make_node("Mul", ["f", "quarter"], ["q"]),
    helper.make_node("Floor", ["q"], ["c"]),
    helper.make_node("Mul", ["x", "c"], ["y"]),
)


@pytest.mark.parametrize(
    ("model", "shape"),
    [(MAXIMUM, "{}, 8"), (SOFTMAX, "{}, 8"), (POOLED, "1, 1, {}, 4"), (GATED, "{}, 8")],
    ids=[
        "a maximum, which zeros win over negative numbers",
        "a softmax over rows",
        "odd extents",
        "arithmetic on the extent",
    ],
)
def test_padding_that_changes_outputs_is_refused(model, shape):
    result = tune(model, dims=[{"n": 4}, {"n": 8}], trials=0, progress=None)
    reason = "padded to the next shape, the outputs are others"
    assert not result.pads and reason in result.notes[-1]

    def ones(rows_: int) -> np.ndarray:
        return np.ones([int(extent) for extent in shape.format(rows_).split(",")], "float32")

    assert result(ones(8)).max() <= 2
    with pytest.raises(ModelError, match=reason):
        result(ones(7))


def test_rows_from_the_end_are_not_padded():
    """Behind the rows lies the padding, where the index -1 points."""
    rows, index, out = (
        helper.make_tensor_value_info(name, kind, shape)
        for name, kind, shape in (
            ("x", TensorProto.FLOAT, ["n", 8]),
            ("i", TensorProto.INT64, [3]),
            ("y", TensorProto.FLOAT, [3, 8]),
        )
    )
    nodes = [helper.make_node("Gather", ["x", "i"], ["y"], axis=0)]
    graph = helper.make_graph(nodes, "g", [rows, index], [out])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    result = tune(model, dims=[{"n": 4}, {"n": 8}], trials=0, progress=None)
    assert not result.pads


def test_padding_is_not_excused_by_a_large_tolerance():
    """The mean of 31 rows is 3% off where it is divided by 32."""
    mean = of_rows(helper.make_node("ReduceMean", ["x"], ["y"], axes=[0]), output=(1, 8))
    result = tune(mean, dims=[{"n": 30}, {"n": 32}], trials=0, progress=None, tolerance=0.1)
    assert not result.pads
    assert "padded to the next shape, the outputs are others" in result.notes[-1]


def test_inputs_of_one_extent_and_a_scalar():
    """Rows of two inputs go together; a scalar is no row."""
    model = of_rows(
        helper.make_node("Add", ["x", "z"], ["a"]),
        helper.make_node("Mul", ["a", "s"], ["y"]),
        inputs=[("x", ["n", 8]), ("z", ["n", 8]), ("s", [])],
    )
    result = tune(model, dims=[{"n": 2}, {"n": 4}], trials=0, progress=None)
    x, z, s = np.ones((3, 8), "float32"), np.full((3, 8), 2.0, "float32"), np.float32(0.5)
    np.testing.assert_allclose(result(x, z, s), np.full((3, 8), 1.5))
    with pytest.raises(ModelError, match="none of these holds them"):
        result(x[:2], z, s)


def test_kernels_that_the_pipeline_makes_keep_apart():
    """A cumulative sum becomes a kernel after all passes of the model."""
    model = of_rows(
        helper.make_node("CumSum", ["x", "axis"], ["y"]), inputs=[("x", [2, "n"])], output=(2, "n")
    )
    model.graph.initializer.append(numpy_helper.from_array(np.array(1, "int64"), "axis"))
    result = tune(model, dims=[{"n": 4}, {"n": 8}], trials=0, progress=None)
    for count in (3, 4, 6, 8):
        numbers = np.random.default_rng(count).standard_normal((2, count)).astype("float32")
        np.testing.assert_allclose(result(numbers), numbers.cumsum(1), rtol=1e-5, atol=1e-6)


def test_a_shape_that_does_not_fit_is_refused_before_the_first_is_tuned(tmp_path):
    lines = []
    with pytest.raises(ModelError, match="dims names the extent 'm'"):
        tune(SOFTMAX, dims=[{"n": 4}, {"m": 8}], work_dir=tmp_path, progress=lines.append)
    assert not lines and not list(tmp_path.glob("*.so"))


def test_an_interrupt_leaves_a_library_of_all_shapes(tmp_path):
    """Asked for during the first shape; the others get their first executables."""
    lines = []

    def interrupt_once(line: str) -> None:
        lines.append(line)
        if len(lines) == 1:
            signal.raise_signal(signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        result = tune(
            network("Softmax", axis=-1),
            dims=[{"rows": 2}, {"rows": 8}],
            time_budget_s=120,
            progress=interrupt_once,
            work_dir=tmp_path,
        )
    finally:
        signal.signal(signal.SIGINT, before)
    assert result.why_ended == "interrupt"
    assert (tmp_path / "model.so").exists() and not list(tmp_path.glob("shape_*"))
    for count in (2, 8):
        np.testing.assert_allclose(
            result(rows(count)), softmax(rows(count), -1), rtol=1e-4, atol=1e-6
        )
