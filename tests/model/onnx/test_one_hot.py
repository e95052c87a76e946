# SPDX-License-Identifier: Apache-2.0
"""``OneHot`` in the type of its values."""

import numpy as np
import pytest

pytest.importorskip("onnx")

from onnx import TensorProto, helper
from onnx_models import kinds, model, node, run, run_imported, value

from tvm_droplet_ms.model.onnx.rewriting.nodes import prepare_onnx

INDICES = np.array([[0, 3, 4], [-1, -4, -5]])
"""Of a depth of four: the first, the last, none, the last, the first, none."""


@pytest.mark.parametrize("axis", [-1, 0, 1])
@pytest.mark.parametrize("kind", ["float32", "int64"])
def test_it_is_right_in_its_own_type(axis, kind):
    values = np.array([2, 5], kind)
    output = value("y", None, helper.np_dtype_to_tensor_dtype(values.dtype))
    inputs = [value("x", [2, 3], TensorProto.INT64)]
    one_hot = node("OneHot", "x depth values", axis=axis)
    made = prepare_onnx(model([one_hot], inputs, [output], depth=np.array(4), values=values))
    assert "OneHot" not in kinds(made)
    on = np.zeros((2, 3, 4), bool)
    on[0, 0, 0] = on[0, 1, 3] = on[1, 0, 3] = on[1, 1, 0] = True
    expected = np.moveaxis(np.where(on, values[1], values[0]), -1, axis)
    for (actual,) in (run(made, x=INDICES), run_imported(made, INDICES)):
        assert actual.dtype == kind
        np.testing.assert_array_equal(actual, expected)


def test_an_index_that_is_an_output_too():
    """Its shape is known as that of an output, and not as one of the values between."""
    nodes = [node("Mod", "x seven", "m"), node("OneHot", "m depth values")]
    inputs = [value("x", [2, 3], TensorProto.INT64)]
    outputs = [value("m", [2, 3], TensorProto.INT64), value("y", [2, 3, 7])]
    constants = {"seven": np.array(7), "depth": np.array(7), "values": np.array([0, 1], "float32")}
    made = prepare_onnx(model(nodes, inputs, outputs, **constants))
    indices = np.array([[0, 8, 20], [6, 7, 3]])
    _, one_hot = run_imported(made, indices)
    assert one_hot.dtype == "float32"
    np.testing.assert_array_equal(one_hot, np.eye(7, dtype="float32")[indices % 7])
