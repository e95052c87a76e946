# SPDX-License-Identifier: Apache-2.0
"""What scikit-learn's exporter writes around a model: lists of maps, labels of strings."""

import numpy as np
import onnx
import pytest

pytest.importorskip("onnxruntime")

from classical_models import DOMAIN, ml, ml_model
from onnx_models import node
from operator_runs import run_here, run_there

import tvm_droplet_ms
from tvm_droplet_ms.frontends.onnx.importing import import_onnx
from tvm_droplet_ms.session.errors import ModelError

ROWS = np.random.default_rng(0).standard_normal((5, 4)).astype("float32")
COEFFICIENTS = np.random.default_rng(1).standard_normal(12).tolist()


def classifier(outputs="l y", **labels):
    values = {"coefficients": COEFFICIENTS, "intercepts": [0.1, 0.2, 0.3]}
    labels = labels or {"classlabels_ints": [4, 7, 9]}
    return ml("LinearClassifier", outputs=outputs, post_transform="SOFTMAX", **values, **labels)


def zipped():
    nodes = [classifier("l s"), ml("ZipMap", "s", "y", classlabels_int64s=[4, 7, 9])]
    made = ml_model(nodes, {"x": ROWS}, "l y")
    maps = onnx.helper.make_map_type_proto(
        onnx.TensorProto.INT64, onnx.helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, [])
    )
    made.graph.output[1].type.CopyFrom(onnx.helper.make_sequence_type_proto(maps))
    return made


def test_maps_become_the_rows_that_they_are_made_of():
    made = zipped()
    before = made.SerializeToString()
    labels, scores = run_here(made, {"x": ROWS})
    expected = run_there(made, {"x": ROWS})
    np.testing.assert_array_equal(labels, expected[0])
    rows = [[row[label] for label in (4, 7, 9)] for row in expected[1]]
    np.testing.assert_allclose(scores, rows, rtol=1e-5)
    notes = import_onnx(made).notes
    assert any("'y' is a tensor with a column" in note and "[4, 7, 9]" in note for note in notes)
    assert made.SerializeToString() == before


def test_a_pipeline_with_maps_is_tuned():
    scaler = ml("Scaler", "x", "z", offset=[0.5] * 4, scale=[2.0] * 4)
    made = zipped()
    made.graph.node[0].input[0] = "z"
    made.graph.node.insert(0, scaler)
    result = tvm_droplet_ms.tune(made, trials=0, time_budget_s=60, progress=None)
    labels, scores = result(ROWS)
    expected = run_there(made, {"x": ROWS})
    np.testing.assert_array_equal(labels, expected[0])
    rows = [[row[label] for label in (4, 7, 9)] for row in expected[1]]
    np.testing.assert_allclose(scores, rows, rtol=1e-5)


def test_labels_that_are_strings_are_refused_where_something_reads_them():
    made = ml_model([classifier(classlabels_strings=["a", "b", "c"])], {"x": ROWS}, "l y")
    made.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.STRING
    with pytest.raises(ModelError, match="its labels .'l'. are strings; strings are not"):
        import_onnx(made)
    del made.graph.output[0]
    (scores,) = run_here(made, {"x": ROWS})
    np.testing.assert_allclose(scores, run_there(made, {"x": ROWS})[0], rtol=1e-5)


REFUSED = {
    "its categories are strings": ml("OneHotEncoder", cats_strings=["a"]),
    "its values are strings": ml("LabelEncoder", keys_floats=[1.0], values_strings=["a"]),
    "the operator is not supported": ml("CategoryMapper", cats_strings=["a"], cats_int64s=[1]),
    "5 numbers as its offset": ml("Scaler", offset=[1.0] * 5, scale=[1.0] * 5),
    "0 labels for 3 classes": ml(
        "LinearClassifier", outputs="s y", coefficients=[1.0] * 12, intercepts=[0.0] * 3
    ),
    "one of its keys is NaN": ml("LabelEncoder", keys_floats=[np.nan], values_floats=[1.0]),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_is_not_computed_is_refused_by_name(message):
    made = ml_model([REFUSED[message]], {"x": ROWS}, "y")
    with pytest.raises(ModelError, match=message) as error:
        import_onnx(made)
    assert REFUSED[message].op_type in str(error.value)


def test_strings_that_labels_are_looked_up_in_are_refused():
    names = onnx.helper.make_tensor("names", onnx.TensorProto.STRING, [3], [b"a", b"b", b"c"])
    nodes = [node("ArgMax", "x", "n", axis=1), ml("ArrayFeatureExtractor", "names n")]
    made = ml_model(nodes, {"x": ROWS}, "y")
    made.graph.initializer.append(names)
    assert made.opset_import[-1].domain == DOMAIN
    with pytest.raises(ModelError, match="'names' is a tensor of strings"):
        import_onnx(made)
