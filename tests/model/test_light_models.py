# SPDX-License-Identifier: Apache-2.0
"""The preparation of the light models of the onnx package, with different random weights.

The outputs of the small ones are compared. The others take too long for a quick suite: run them
with ``pytest -m slow``.
"""

from pathlib import Path

import numpy as np
import pytest
from graphs import calls, clean, operators
from numpy_relax import evaluate

onnx = pytest.importorskip("onnx")

from onnx import helper, numpy_helper  # noqa: E402

from tvm import relax  # noqa: E402
from tvm.relax.frontend.onnx import from_onnx  # noqa: E402
from tvm_droplet_ms.frontends.onnx.operators.importer import more_operators  # noqa: E402
from tvm_droplet_ms.model.layers import layouts_of  # noqa: E402
from tvm_droplet_ms.model.prepare import prepare_graph  # noqa: E402

FOLDER = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
# Convolutions and dense layers, and channel shuffles, of each model.
MODELS = {
    "squeezenet": (26, 0, 0),
    "shufflenet": (49, 1, 16),
    "resnet50": (53, 1, 0),
    "densenet121": (121, 0, 0),
    "inception_v2": (69, 1, 0),
    "vgg19": (16, 3, 0),
}


def load(name):
    """Load a model with random weights of its own for each layer, and without its softmax."""
    model = onnx.load(FOLDER / f"light_{name}.onnx")
    shapes = {each.name: numpy_helper.to_array(each) for each in model.graph.initializer}
    rng = np.random.default_rng(0)
    for node in model.graph.node:
        if node.op_type == "ConstantOfShape":
            shape = shapes[node.input[0]]
            values = rng.uniform(0.5, 1.5, shape)
            if len(shape) > 1:
                values = rng.standard_normal(shape, dtype="float32") / np.sqrt(np.prod(shape[1:]))
            tensor = numpy_helper.from_array(values.astype("float32"))
            node.CopyFrom(helper.make_node("Constant", [], node.output, value=tensor))
        elif node.op_type == "Softmax":
            node.CopyFrom(helper.make_node("Identity", node.input, node.output))
    with more_operators:
        return from_onnx(model)


def transposes(mod):
    """The axes of the transposes, apart from those that swap the two axes of a shuffle."""
    axes = [[int(axis) for axis in call.attrs.axes] for call in calls(mod, "permute_dims")]
    return [each for each in axes if each != [0, 1, 2, 4, 3]]


def check_structure(mod, name):
    convolutions, dense, shuffles = MODELS[name]
    after = clean(prepare_graph()(mod))
    relax.analysis.well_formed(after)
    counts = operators(after)
    assert len(transposes(after)) <= 2
    assert counts["relax.permute_dims"] == len(transposes(after)) + shuffles
    assert counts["relax.nn.conv2d"] == convolutions
    assert counts["relax.matmul"] == dense
    gone = ["nn.batch_norm", "nn.dropout", "stack", "broadcast_to", "call_tir", "sqrt", "divide"]
    assert not {name for name in gone if counts[f"relax.{name}"]}
    # Only DenseNet has batch norms in front of its convolutions: each is one multiplication.
    assert counts["relax.multiply"] == (62 if name == "densenet121" else 0)
    assert {layouts_of(call.attrs)[:2] for call in calls(after, "nn.conv2d")} == {("NHWC", "HWIO")}
    return after


def check_outputs(before, after):
    (parameter,) = before["main"].params
    shape = [int(extent) for extent in parameter.ty.shape]
    image = np.random.default_rng(1).standard_normal(shape)
    expected, actual = evaluate(clean(before), image), evaluate(after, image)
    largest = np.abs(expected).max()
    # Random enough that a mixed-up layer would show.
    assert np.isfinite(largest) and expected.std() > 1e-3 * largest
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-5 * largest)


@pytest.mark.parametrize("name", ["squeezenet", "shufflenet"])
def test_prepared_model_gives_the_same_outputs(name):
    before = load(name)
    check_outputs(before, check_structure(before, name))


@pytest.mark.parametrize("name", ["resnet50", "densenet121", "inception_v2"])
def test_prepared_model_has_two_transposes(name):
    check_structure(load(name), name)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["resnet50", "densenet121", "inception_v2", "vgg19"])
def test_large_prepared_model_gives_the_same_outputs(name):
    before = load(name)
    check_outputs(before, check_structure(before, name))
