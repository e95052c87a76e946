# SPDX-License-Identifier: Apache-2.0
"""Reshapes moved behind the arithmetic that follows a matrix product."""

import numpy as np
import pytest
from graphs import Values, build, operators
from numpy_relax import evaluate

import tvm
from tvm import relax
from tvm_droplet_ms.model.bindings import values_of
from tvm_droplet_ms.model.kernels.lowering_passes import lowering_passes
from tvm_droplet_ms.model.layout.transposes import sink_reshapes

op = relax.op


def dense(emit, values, x, inputs, outputs):
    """As PyTorch's exported linear layer: the tokens as rows, multiplied, and as they were."""
    rows = emit(op.reshape(x, (-1, inputs)))
    product = emit(
        op.add(emit(op.matmul(rows, values.normal(inputs, outputs))), values.normal(outputs))
    )
    return emit(op.reshape(product, (*map(int, list(x.ty.shape)[:-1]), outputs)))


def block(emit, x):
    """A transformer's second half: two layers, a GELU and a residual."""
    values = Values()
    hidden = emit(op.nn.gelu(dense(emit, values, x, 24, 40)))
    return emit(op.add(x, dense(emit, values, hidden, 40, 24)))


def swept(emit, x):
    """Operands of every kind: a number, a row, a constant of all elements, another product."""
    values = Values()
    y = emit(op.multiply(dense(emit, values, x, 24, 16), relax.const(0.5)))
    y = emit(op.subtract(values.normal(1, 1, 16), y))
    y = emit(op.maximum(y, values.normal(2, 9, 16)))
    return emit(op.divide(emit(op.exp(y)), emit(op.exp(dense(emit, values, x, 24, 16)))))


def kept(emit, x):
    """Rows of another axis, and a sum over one: neither has a form in the product's shape."""
    values = Values()
    y = dense(emit, values, x, 24, 16)
    y = emit(op.add(y, values.normal(2, 1, 1)))
    return emit(op.multiply(y, emit(op.mean(y, axis=1, keepdims=True))))


def order(mod):
    """The operators of a graph, one after the other."""
    return [value.op.name for value in values_of(mod["main"]) if isinstance(value, relax.Call)]


@pytest.mark.parametrize("body", [block, swept, kept])
def test_the_result_is_the_same(body):
    mod = build((2, 9, 24), body, num_input=1)
    x = np.random.default_rng(1).standard_normal((2, 9, 24)).astype("float32")
    changed = sink_reshapes()(mod)
    np.testing.assert_allclose(evaluate(changed, x), evaluate(mod, x), rtol=1e-9)
    assert (order(changed) == order(mod)) == (body is kept)


def test_a_gelu_and_a_residual_are_computed_with_their_products():
    mod = relax.transform.CanonicalizeBindings()(
        sink_reshapes()(build((2, 9, 24), block, num_input=1))
    )
    mod = relax.transform.DeadCodeElimination()(mod)
    assert operators(mod)["relax.reshape"] == 3  # In front, of the residual, and at the end.
    with tvm.target.Target({"kind": "llvm", "num-cores": 1}):
        lowered = tvm.transform.Sequential(lowering_passes())(mod)
    names = {str(var.name_hint).rstrip("0123456789") for var in lowered.get_global_vars()}
    assert {"fused_matmul_add_gelu"} <= names
    assert not any(name in names for name in ("gelu", "add"))
