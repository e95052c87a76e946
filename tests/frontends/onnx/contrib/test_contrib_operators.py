# SPDX-License-Identifier: Apache-2.0
"""The operators of ONNX Runtime's own domain give what ONNX Runtime does."""

import numpy as np
import onnx
import pytest
from onnx_models import node
from operator_runs import assert_same, model_of

GENERATOR = np.random.default_rng(0)


def normal(*shape):
    return GENERATOR.standard_normal(shape).astype("float32")


def contrib(kind, inputs, outputs="y", **attributes):
    return node(kind, inputs, outputs, domain="com.microsoft", **attributes)


def assert_same_of(nodes, fed, outputs="y", tolerance=1e-5, **constants):
    """Those of the nodes of both, and where each output is an input of nothing."""
    made = model_of(nodes, fed, outputs, **constants)
    made.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
    assert_same(made, fed, rtol=tolerance, atol=tolerance)


ROWS = {"x": normal(2, 5, 24), "s": normal(2, 5, 24)}
SCALES = {"g": normal(24), "b": normal(24), "c": normal(24)}


@pytest.mark.parametrize("kind", ["SkipLayerNormalization", "SkipSimplifiedLayerNormalization"])
@pytest.mark.parametrize("outputs", ["y", "y   t"])
@pytest.mark.parametrize("names", ["x s g", "x s g b", "x s g b c"])
def test_normalized_sums(kind, outputs, names):
    if kind == "SkipSimplifiedLayerNormalization" and names.endswith("c"):
        pytest.skip("it has no shift")
    used = {name: SCALES[name] for name in names.split() if name in SCALES}
    made = contrib(kind, names, outputs, epsilon=1e-5)
    assert_same_of([made], ROWS, " ".join(outputs.split()), **used)


def test_a_sum_with_one_row_for_the_whole_batch():
    fed = {"x": ROWS["x"], "s": normal(1, 5, 24)}
    made = contrib("SkipLayerNormalization", "x s g b", epsilon=1e-3)
    assert_same_of([made], fed, g=SCALES["g"], b=SCALES["b"])


@pytest.mark.parametrize("axis", [-1, 1, 0])
def test_simplified_normalization(axis):
    made = node("SimplifiedLayerNormalization", "x g", axis=axis, epsilon=1e-4)
    scale = normal(*ROWS["x"].shape[axis:])
    assert_same_of([made], {"x": ROWS["x"]}, g=scale)


@pytest.mark.parametrize("a, b", [(0, 0), (1, 0), (0, 1), (1, 1)])
@pytest.mark.parametrize("kind", ["FusedMatMul", "TransposeMatMul"])
def test_scaled_products_of_transposed_factors(kind, a, b):
    fed = {"a": normal(3, 6, 4) if a else normal(3, 4, 6), "b": normal(7, 6) if b else normal(6, 7)}
    assert_same_of([contrib(kind, "a b", transA=a, transB=b, alpha=0.3)], fed)


def test_a_product_with_the_batch_inside():
    fed = {"a": normal(4, 3, 6), "b": normal(6, 3, 7)}
    made = contrib("FusedMatMul", "a b", transBatchA=1, transBatchB=1)
    assert_same_of([made], fed)


@pytest.mark.parametrize(
    "attributes",
    [
        {"activation": "Relu"},
        {"activation": "LeakyRelu", "activation_alpha": 0.2, "transB": 1, "alpha": 0.5},
        {"activation": "Tanh", "beta": 2.0},
        {"activation": "Elu", "activation_alpha": 0.7},
        {"activation": "Selu", "activation_alpha": 1.5, "activation_gamma": 1.1},
        {"activation": "Softplus"},
        {"activation": "Softsign"},
        {"activation": "ThresholdedRelu", "activation_alpha": 0.3},
    ],
)
def test_dense_layers_with_an_activation(attributes):
    weight = normal(9, 6) if attributes.get("transB") else normal(6, 9)
    made = contrib("FusedGemm", "x w c", **attributes)
    assert_same_of([made], {"x": normal(4, 6)}, w=weight, c=normal(9))


@pytest.mark.parametrize(
    "attributes",
    [
        {"activation": "Relu"},
        {"activation": "LeakyRelu", "activation_params": [0.3], "strides": [2, 2]},
        {"activation": "Clip", "activation_params": [0.0, 0.5], "group": 2},
        {"activation": "HardSigmoid", "activation_params": [0.2, 0.4], "pads": [1, 1, 1, 1]},
        {"activation": "Sigmoid"},
    ],
)
@pytest.mark.parametrize("adds", [False, True])
def test_convolutions_with_an_activation(attributes, adds):
    fed, groups = {"x": normal(1, 4, 8, 8)}, attributes.get("group", 1)
    sides = {"strides": 3, "pads": 8}
    side = next((n for name, n in sides.items() if name in attributes), 6)
    names = "x w c"
    if adds:
        fed["z"] = normal(1, 6, side, side)
        names += " z"
    made = contrib("FusedConv", names, **attributes)
    assert_same_of([made], fed, w=normal(6, 4 // groups, 3, 3), c=normal(6))


def test_elementwise_operators():
    nodes = [contrib("QuickGelu", "x", "z", alpha=1.3), contrib("BiasGelu", "z b")]
    assert_same_of(nodes, {"x": ROWS["x"]}, "z y", b=SCALES["b"])


@pytest.mark.parametrize("metric", ["euclidean", "sqeuclidean"])
def test_distances(metric):
    fed = {"a": normal(5, 7), "b": normal(4, 7)}
    assert_same_of([contrib("CDist", "a b", metric=metric)], fed)


BYTES = GENERATOR.integers(-128, 128, (16, 6)).astype("int8")
COLUMNS = {"b": BYTES, "s": np.abs(normal(6)) / 50, "z": np.zeros(6, "int8")}


@pytest.mark.parametrize("names", ["x b s", "x b s z", "x b s z c", "x b s  c"])
@pytest.mark.parametrize("is_scalar", [False, True])
def test_dynamically_quantized_products(names, is_scalar):
    constants = {name: COLUMNS.get(name, SCALES["c"][:6]) for name in names.split()[1:]}
    if is_scalar:
        constants |= {n: v.reshape(-1)[:1] for n, v in constants.items() if n in "sz"}
    assert_same_of([contrib("DynamicQuantizeMatMul", names)], {"x": normal(3, 16)}, **constants)


def test_products_of_bytes():
    fed = {"a": GENERATOR.integers(0, 256, (3, 16)).astype("uint8")}
    constants = {"sa": np.float32([0.1]), "za": np.uint8([7]), **COLUMNS, "c": SCALES["c"][:6]}
    assert_same_of([contrib("MatMulIntegerToFloat", "a b sa s za z c")], fed, **constants)
