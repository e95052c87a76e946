# SPDX-License-Identifier: Apache-2.0
"""A NaN stays one where ONNX Runtime keeps it."""

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
