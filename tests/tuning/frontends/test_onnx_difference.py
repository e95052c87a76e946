# SPDX-License-Identifier: Apache-2.0
"""The node that an import computes otherwise is named."""

import numpy as np
import pytest

from tvm.s_tir.meta_schedule.database import MemoryDatabase
from tvm.target import Target
from tvm_droplet_ms.model.onnx.operators import importer
from tvm_droplet_ms.session.errors import ModelError
from tvm_droplet_ms.session.stop import StopRequest
from tvm_droplet_ms.tuning.check.agreement import Agreement
from tvm_droplet_ms.tuning.check.output_check import make_check
from tvm_droplet_ms.tuning.frontends import import_model
from tvm_droplet_ms.tuning.model_kernels import ModelKernels
from tvm_droplet_ms.tuning.parts import Parts

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

TARGET = Target({"kind": "llvm", "num-cores": 1})


def resized():
    """TVM rounds other positions than ONNX Runtime; before and after it nothing is special."""
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    nodes = [
        helper.make_node("Abs", ["x"], ["a"], name="before"),
        helper.make_node(
            "Resize",
            ["a", "", "scales"],
            ["r"],
            name="enlarge",
            mode="nearest",
            coordinate_transformation_mode="half_pixel",
            nearest_mode="round_prefer_floor",
        ),
        helper.make_node("Relu", ["r"], ["y"], name="after"),
    ]
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("x", kind, [1, 1, 3, 3])],
        [helper.make_tensor_value_info("y", kind, None)],
        [onnx.numpy_helper.from_array(np.array([1, 1, 1.5, 1.5], "float32"), "scales")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_a_wrong_import_names_its_node_and_blames_no_pass(monkeypatch):
    # TVM's own converter, which has other pixels than ONNX Runtime.
    own = {name: each for name, each in importer.converters().items() if name != "Resize"}
    monkeypatch.setattr(importer, "converters", lambda: own)
    imported = import_model(resized())
    check = make_check(imported, TARGET, 1e-4, 0)
    kernels, notes = ModelKernels(imported.mod, TARGET, MemoryDatabase()), []
    agreement = Agreement(imported.mod, [], check, Parts(), notes.append, locate=imported.locate)
    message = (
        r"TVM's import of the model computes something else than ONNX Runtime, first at .*"
        r"'enlarge' \(Resize\): the outputs differ by .* before anything is tuned"
    )
    with pytest.raises(ModelError, match=message):
        agreement.first(lambda _: (imported.mod, kernels), StopRequest())
    assert not notes
