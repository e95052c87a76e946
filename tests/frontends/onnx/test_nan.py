# SPDX-License-Identifier: Apache-2.0
"""NaN and infinities stay where ONNX Runtime keeps them, and only there."""

import numpy as np
import pytest

pytest.importorskip("onnxruntime")

from onnx_models import node
from operator_runs import assert_same_of

LIMITS = {"low": np.float32(-1), "high": np.float32(1), "one": np.ones(1, "float32")}
LIMITS |= {"one_scale": np.float32(1), "zero": np.uint8(128)}
NODES = {
    **{name: node(name, "x") for name in ("Relu", "Erf", "Elu", "Selu", "HardSigmoid", "Celu")},
    **{name: node(name, "x") for name in ("Sigmoid", "Tanh", "Exp", "HardSwish", "Softmax")},
    "ThresholdedRelu": node("ThresholdedRelu", "x", alpha=0.3),
    "Clip": node("Clip", "x low high"),
    "Max of a number": node("Max", "x one"),
    "Min of a number": node("Min", "one x"),
    "QuantizeLinear": node("QuantizeLinear", "x one_scale zero"),
}


@pytest.mark.parametrize("name", NODES)
def test_a_nan_stays_one_as_in_onnx_runtime(name):
    x = np.random.default_rng(0).standard_normal((3, 37)).astype("float32")
    x[0, ::5] = np.nan
    used = {key: array for key, array in LIMITS.items() if key in NODES[name].input}
    assert_same_of([NODES[name]], {"x": x}, atol=1e-5, **used)


@pytest.mark.parametrize(
    "name, given",
    [
        ("Elu", {"alpha": 0.7}),
        ("Selu", {"alpha": 1.5, "gamma": 1.1}),
        ("HardSigmoid", {"alpha": 0.3, "beta": 0.4}),
        ("Softplus", {}),
        ("ThresholdedRelu", {"alpha": 0.3}),
    ],
)
@pytest.mark.parametrize("is_fused", [False, True])
def test_activations_of_what_is_not_finite(name, given, is_fused):
    x = np.linspace(-3, 3, 35, dtype="float32")[:, None]
    x[::5], x[1::7], x[2::9] = np.nan, np.inf, -np.inf
    if not is_fused:
        return assert_same_of([node(name, "x", **given)], {"x": x}, atol=1e-5)
    given = {f"activation_{key}": number for key, number in given.items()}
    fused = node("FusedGemm", "x w", activation=name, domain="com.microsoft", **given)
    assert_same_of([fused], {"x": x}, atol=1e-5, w=np.ones((1, 16), "float32"))
