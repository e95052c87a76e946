# SPDX-License-Identifier: Apache-2.0
"""Tests of the check of quantised outputs: an element may be off by one step."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from tvm_droplet_ms.tuning.check.output_check import OutputCheck
from tvm_droplet_ms.tuning.check.quantized_steps import output_steps
from tvm_droplet_ms.tuning.frontends.imported import Reference
from tvm_droplet_ms.tuning.frontends.onnx import import_onnx


def made_steps(nodes, outputs):
    """The steps of the outputs of a model of `x`; ``outputs``: their types by name."""
    constants = {"s": np.float32(0.25), "z": np.uint8(7)}
    constants |= {"l": np.float32(0), "h": np.float32(255)}
    graph = helper.make_graph(
        [
            helper.make_node(kind, ins.split(), [out], **({"to": 2} if kind == "Cast" else {}))
            for kind, ins, out in nodes
        ],
        "steps",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 8])],
        [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs.items()],
        [numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()],
    )
    made = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])
    return output_steps(import_onnx(made).mod)


def test_bytes_have_a_step_of_one_and_what_they_stand_for_their_scale():
    nodes = [
        ("QuantizeLinear", "x s z", "q"),
        ("DequantizeLinear", "q s z", "d"),
        ("Transpose", "d", "t"),
        ("Exp", "d", "e"),
    ]
    outputs = {"q": TensorProto.UINT8} | dict.fromkeys("dte", TensorProto.FLOAT)
    assert made_steps(nodes, outputs) == (1.0, 0.25, 0.25, None)


def test_bytes_that_are_not_rounded_are_not_quantised():
    nodes = [("Clip", "x l h", "c"), ("Cast", "c", "y")]
    assert made_steps(nodes, {"y": TensorProto.UINT8}) == (None,)


@pytest.mark.parametrize("steps, agrees", [(0, True), (1, True), (2, False)])
def test_one_step_is_allowed_and_counted(steps, agrees):
    expected = np.arange(16, dtype=np.float32).reshape(2, 8) * np.float32(0.25)
    reference = Reference("NumPy", lambda _: [expected])
    check = OutputCheck(reference, ((),), ([expected],), 1e-4, steps=(0.25,))
    found = expected.copy()
    found[1, 3] += steps * np.float32(0.25)
    assert check.agrees(lambda _: [found]) == agrees
    off = check.steps_off(lambda _: [found])
    assert off[0].tolist() == [0] * 11 + [steps] + [0] * 4
    # Without steps, nothing but rounding is allowed.
    plain = OutputCheck(reference, ((),), ([expected],), 1e-4)
    assert plain.agrees(lambda _: [found]) == (steps == 0)
    assert plain.steps_off(lambda _: [found]) == {}
