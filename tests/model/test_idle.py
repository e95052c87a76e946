# SPDX-License-Identifier: Apache-2.0
"""Casts and choices that give back an operand."""

import numpy as np
import onnx
import pytest
from graphs import build, operators
from onnx import TensorProto, helper

from tvm import relax
from tvm.target import Target
from tvm_droplet_ms.frontends import import_model
from tvm_droplet_ms.model.folding.numpy_folding import drop_idle
from tvm_droplet_ms.model.kernels.attention.fused_attention import find_attentions
from tvm_droplet_ms.model.prepare import prepare_graph

op = relax.op


def left(body):
    """The operators that stay."""
    changed = relax.transform.CanonicalizeBindings()(drop_idle()(build((3, 4), body, num_input=1)))
    return dict(operators(relax.transform.DeadCodeElimination()(changed)))


def where(condition):
    return lambda emit, x: emit(op.where(relax.const(condition), emit(op.exp(x)), emit(op.sin(x))))


@pytest.mark.parametrize(
    ("condition", "stays"),
    [
        (np.ones((3, 4), bool), {"relax.exp"}),
        (np.zeros((1, 4), bool), {"relax.sin"}),
        (np.eye(3, 4, dtype=bool), {"relax.exp", "relax.sin", "relax.where"}),
        # The choice broadcasts.
        (np.ones((2, 3, 4), bool), {"relax.exp", "relax.sin", "relax.where"}),
    ],
)
def test_a_choice_that_is_made_is_what_it_chooses(condition, stays):
    assert set(left(where(condition))) == stays


def test_a_cast_to_another_type_stays():
    def there_and_back(emit, x):
        half = emit(op.astype(emit(op.astype(x, "float32")), "float16"))
        return emit(op.astype(half, "float32"))

    assert left(there_and_back) == {"relax.astype": 2}


def test_a_concatenation_of_one_tensor_and_a_broadcast_to_its_shape_are_dropped():
    def alone(emit, x):
        return emit(op.exp(emit(op.broadcast_to(emit(op.concat([x], 0)), (3, 4)))))

    def two(emit, x):
        return emit(op.broadcast_to(emit(op.concat([x, x], 0)), (2, 6, 4)))

    assert left(alone) == {"relax.exp": 1}
    assert left(two) == {"relax.concat": 1, "relax.broadcast_to": 1}


@pytest.mark.parametrize(
    ("inputs", "is_causal"), [("qkv", 0), ("qkv", 1), ("qkvm", 0), ("qkvm", 1), ("qkvb", 0)]
)
def test_onnx_attention_is_found(inputs, is_causal):
    masks = {"m": TensorProto.FLOAT, "b": TensorProto.BOOL}
    values = [
        helper.make_tensor_value_info(name, masks[name], [64, 64])
        if name in masks
        else helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4, 64, 32])
        for name in f"{inputs}y"
    ]
    node = helper.make_node("Attention", list(inputs), ["y"], is_causal=is_causal)
    graph = helper.make_graph([node], "attention", values[:-1], values[-1:])
    opset = [helper.make_opsetid("", 23)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=10)
    onnx.checker.check_model(model)
    with Target({"kind": "llvm", "num-cores": 1}):
        prepared = prepare_graph()(import_model(model).mod)
    (found,) = find_attentions(prepared["main"]).values()
    assert found.mask.scale == pytest.approx(32**-0.5)
