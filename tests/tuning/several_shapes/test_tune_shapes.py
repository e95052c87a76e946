# SPDX-License-Identifier: Apache-2.0
"""One library for several shapes: each is right, weights are held once, and padding is checked."""

import json

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tvm
from tvm import relax
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


def test_the_library_holds_each_weight_once(tuned):
    """Two weights of 256 kB, in whatever layout, in an entry for each shape."""
    path = tuned.work_dir / "model.so"
    assert path.stat().st_size < 1.1 * sum(w.nbytes for w in WEIGHTS) + 300_000
    machine = relax.VirtualMachine(tvm.runtime.load_module(str(path)), tvm.cpu())
    for name, count in (("main", 2), ("main_1", 32), ("main_2", 8)):
        found = machine[name](tvm.runtime.tensor(rows(count))).numpy()
        np.testing.assert_allclose(found, softmax(rows(count), -1), rtol=1e-4, atol=1e-6)
    assert not list(tuned.work_dir.glob("shape_*"))


def test_what_no_shape_holds_is_refused_in_words(tuned):
    with pytest.raises(ModelError, match=r"x \(33, 256\), which none of these holds: tuned for x"):
        tuned(rows(33))
    with pytest.raises(ModelError, match="2 inputs by position"):
        tuned(rows(2), rows(2))


def test_it_is_described_shape_by_shape(tuned):
    text = summary(tuned)
    assert text.index("x (2, 256)") < text.index("x (32, 256)") < text.index("x (8, 256)")
    content = json.loads(tuned.as_json())
    assert [each["shapes"]["x"][0] for each in content["of_shapes"]] == [2, 32, 8]


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


def test_a_model_that_mixes_the_rows_is_not_padded():
    """The softmax over the rows counts the zeros behind them."""
    result = tune(
        network("Softmax", axis=0),
        dims=[{"rows": 2}, {"rows": 8}],
        trials=0,
        progress=None,
    )
    assert not result.pads
    np.testing.assert_allclose(result(rows(8)), softmax(rows(8), 0), rtol=1e-4, atol=1e-6)
    with pytest.raises(ModelError, match="padding would change outputs"):
        result(rows(3))
