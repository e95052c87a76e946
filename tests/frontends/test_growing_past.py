# SPDX-License-Identifier: Apache-2.0
"""Attention in ONNX with a past that grows from nothing, beside ONNX Runtime."""

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto
from onnx_graphs import FLOAT, INT, model, node

from tvm.s_tir.meta_schedule.database import MemoryDatabase
from tvm.target import Target
from tvm_droplet_ms.frontends import import_model
from tvm_droplet_ms.model.prepare import prepare_graph
from tvm_droplet_ms.tuning.compile.compiled_model import CompiledModel
from tvm_droplet_ms.tuning.compile.lowering import build, lower

HEADS, WIDTH, PLACES = 2, 16, 32
TARGET = Target({"kind": "llvm", "num-cores": 1, "opt-level": 1})


def decoder():
    """A layer whose keys and values are the past and what is new; a mask hides places."""
    rng = np.random.default_rng(0)
    weights = {
        name: rng.standard_normal((HEADS * WIDTH, HEADS * WIDTH)).astype("float32") / 6
        for name in ("wq", "wk", "wv")
    }
    nodes = []
    for name in "qkv":
        nodes += [
            node("MatMul", f"x w{name}", f"{name}_rows"),
            node("Reshape", f"{name}_rows split", f"{name}_apart"),
            node("Transpose", f"{name}_apart", name, perm=[0, 2, 1, 3]),
        ]
    nodes += [
        node("Concat", "past_keys k", "keys", axis=2),
        node("Concat", "past_values v", "values", axis=2),
        node("Transpose", "keys", "turned", perm=[0, 1, 3, 2]),
        node("MatMul", "q turned", "scores"),
        node("Cast", "mask", "is_seen", to=TensorProto.BOOL),
        node("Unsqueeze", "is_seen middle", "seen"),
        node("Where", "seen zero least", "added"),
        node("Add", "scores added", "masked"),
        node("Softmax", "masked", "soft", axis=-1),
        # As PyTorch's exporter does, for rows that see nothing.
        node("IsNaN", "soft", "is_nan"),
        node("Where", "is_nan zero soft", "weights"),
        node("MatMul", "weights values", "y"),
    ]
    past = [1, HEADS, "past", WIDTH]
    inputs = [
        ("x", FLOAT, [1, "new", HEADS * WIDTH]),
        ("mask", INT, [1, "all"]),
        ("past_keys", FLOAT, past),
        ("past_values", FLOAT, past),
    ]
    outputs = [(name, FLOAT, None) for name in ("y", "keys", "values")]
    constants = {
        "split": np.array([1, -1, HEADS, WIDTH]),
        "middle": np.array([1, 2]),
        "zero": np.float32(0),
        "least": np.float32(-np.inf),
    }
    return model(nodes, inputs, *outputs, **weights, **constants)


def compiled(past, new):
    """The decoder for some lengths, prepared as for tuning, without schedules."""
    imported = import_model(decoder(), dims={"past": past, "new": new, "all": past + new})
    with TARGET:
        graph = prepare_graph()(imported.mod)
    lowered = lower(graph, TARGET)
    kernels = [var.name_hint for var in lowered.get_global_vars()]
    return CompiledModel(build(lowered, MemoryDatabase(), TARGET)), kernels


@pytest.fixture(scope="module")
def reference():
    session = onnxruntime.InferenceSession(
        decoder().SerializeToString(), providers=["CPUExecutionProvider"]
    )
    names = [each.name for each in session.get_inputs()]
    return lambda arrays: session.run(None, dict(zip(names, arrays, strict=True)))


def test_the_past_grows_from_nothing(reference):
    rng = np.random.default_rng(1)
    nothing = np.zeros((1, HEADS, 0, WIDTH), "float32")
    past = [nothing, nothing]
    for length, new in ((0, 5), (5, 1), (6, 16)):
        run, _ = compiled(length, new)
        x = rng.standard_normal((1, new, HEADS * WIDTH)).astype("float32")
        arrays = [x, np.ones((1, length + new), "int64"), *past]
        found, expected = run(arrays), reference(arrays)
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
        past = found[1:]


def test_a_past_of_one_length_is_filled_from_its_end(reference):
    """What is not filled is masked: one library computes each step of a growing past."""
    rng = np.random.default_rng(2)
    run, kernels = compiled(PLACES, 1)
    assert any("attention" in kernel for kernel in kernels)
    nothing = np.zeros((1, HEADS, 0, WIDTH), "float32")
    growing, fixed = [nothing, nothing], [np.zeros((1, HEADS, PLACES, WIDTH), "float32")] * 2
    mask = np.zeros((1, PLACES + 1), "int64")
    for length in range(4):
        x = rng.standard_normal((1, 1, HEADS * WIDTH)).astype("float32")
        mask[:, PLACES - length :] = 1
        expected, *growing = reference([x, np.ones((1, length + 1), "int64"), *growing])
        found, *after = run([x, mask, *fixed])
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
        fixed = [cache[:, :, 1:] for cache in after]


def test_a_row_that_sees_nothing_is_0(reference):
    run, kernels = compiled(PLACES, 1)
    x, past = np.ones((1, 1, HEADS * WIDTH), "float32"), np.ones((1, HEADS, PLACES, WIDTH), "f4")
    arrays = [x, np.zeros((1, PLACES + 1), "int64"), past, past]
    found, expected = run(arrays)[0], reference(arrays)[0]
    np.testing.assert_array_equal(expected, 0)
    np.testing.assert_array_equal(found, 0)
