# SPDX-License-Identifier: Apache-2.0
"""Indices that importers compute of constants: folded by NumPy as TVM folds them."""

import numpy as np
import pytest
from graphs import operators

import tvm
from tvm import relax
from tvm_droplet_ms.model.folding.numpy_folding import fold_constants

op = relax.op
LEFT = np.array([[-3, 2, 7], [0, -1, 5]])
RIGHT = np.array([[2, 2, 2], [0, 4, -6]])


def model(body):
    """A function without inputs."""
    builder = relax.BlockBuilder()
    with builder.function("main", []):
        with builder.dataflow():
            out = builder.emit_output(body(builder.emit))
        builder.emit_func_output(out)
    return builder.get()


def run(mod):
    return relax.VirtualMachine(tvm.compile(mod, "llvm"), tvm.cpu())["main"]().numpy()


def check(mod):
    folded = relax.transform.DeadCodeElimination()(
        relax.transform.CanonicalizeBindings()(fold_constants()(mod))
    )
    assert not operators(folded)
    expected = run(mod)
    assert run(folded).dtype == expected.dtype
    np.testing.assert_array_equal(run(folded), expected)


@pytest.mark.parametrize("dtype", ["int64", "int32", "float32"])
@pytest.mark.parametrize(
    "operator", [op.less, op.less_equal, op.greater, op.greater_equal, op.equal, op.not_equal]
)
def test_comparisons(operator, dtype):
    left, right = (relax.const(array.astype(dtype)) for array in (LEFT, RIGHT))
    check(model(lambda emit: emit(operator(left, right))))


@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8"])
@pytest.mark.parametrize("operator", [op.add, op.subtract, op.multiply, op.maximum, op.minimum])
def test_arithmetic_of_integers(operator, dtype):
    left, right = (relax.const(array.astype(dtype)) for array in (LEFT, RIGHT))
    check(model(lambda emit: emit(operator(left, right))))


@pytest.mark.parametrize("dtype", ["int64", "int8", "uint8", "bool", "float32", "float64"])
@pytest.mark.parametrize("before", ["int64", "int32", "bool"])
def test_conversions_of_integers(before, dtype):
    values = relax.const(np.array([[-3, 0, 300], [1, 70000, -129]]).astype(before))
    check(model(lambda emit: emit(op.astype(values, dtype))))


def test_negative_indices_are_wrapped():
    """ONNX's Gather as it is imported."""
    indices, extent = relax.const(LEFT.astype("int64")), relax.const(np.int64(8))

    def body(emit):
        is_negative = emit(op.less(indices, relax.const(np.int64(0))))
        return emit(op.where(is_negative, emit(op.add(indices, extent)), indices))

    check(model(body))


def test_the_shape_of_a_tensor():
    data = relax.const(np.zeros((3, 5), "float32"))
    check(model(lambda emit: emit(op.shape_to_tensor(emit(op.shape_of(data))))))


@pytest.mark.parametrize(("axis", "indices"), [(0, [1, 0, 1]), (1, [[2], [0]]), (1, 2)])
def test_elements_are_taken(axis, indices):
    data, places = relax.const(LEFT.astype("float32")), relax.const(np.array(indices, "int64"))
    check(model(lambda emit: emit(op.take(data, places, axis))))


def test_an_index_outside_is_left_to_tvm():
    data, places = relax.const(LEFT.astype("float32")), relax.const(np.array([3], "int64"))
    mod = model(lambda emit: emit(op.take(data, places, 0)))
    assert operators(fold_constants()(mod)) == {"relax.take": 1}
