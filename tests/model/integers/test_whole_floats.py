# SPDX-License-Identifier: Apache-2.0
"""Whole numbers that stay floats within a kernel, and bytes between kernels."""

import numpy as np
import pytest
from onnx_models import value
from operator_runs import run_here
from quantized_graphs import TYPES, Builder
from test_integer_products import as_written

import tvm
from tvm import relax
from tvm_droplet_ms.frontends.onnx.importing import import_onnx
from tvm_droplet_ms.model.bindings import operator_name, values_of
from tvm_droplet_ms.model.integers.whole_floats import move_limits
from tvm_droplet_ms.model.prepare import prepare_graph
from tvm_droplet_ms.tuning.compile.finishing_passes import keep_nan
from tvm_droplet_ms.tuning.compile.lowering import lower

TARGET = tvm.target.Target({"kind": "llvm", "opt-level": 0})
SHAPE = [1, 8, 6, 6]


def first_block(seed, dtype, *, swaps=False):
    """A block of a residual network with a convolution on each side, as quantizers write it.

    ``swaps``: whether the second convolution's branch is written first.
    """
    builder = Builder(seed, dtype)

    def branch(data, channels, outputs):
        bias = builder.constant(builder.random.standard_normal(outputs).astype(np.float32))
        return builder.add("Conv", data, builder.weight(outputs, channels, 1, 1), bias)

    data = builder.requantize("x")
    if swaps:
        shortcut = builder.requantize(branch(data, 8, 16))
    inner = builder.requantize(builder.add("Relu", branch(data, 8, 12)))
    main = builder.requantize(branch(inner, 12, 16))
    if not swaps:
        shortcut = builder.requantize(branch(data, 8, 16))
    total = builder.requantize(builder.add("Relu", builder.add("Add", main, shortcut)))
    output = builder.add("QuantizeLinear", total, *builder.parameters(0.05, point=60))
    return builder.model([value("x", SHAPE)], output, TYPES[dtype][0])


def normalized(seed, dtype):
    """A convolution, a scale for each channel that is quantized by itself, and a product."""
    builder = Builder(seed, dtype)
    data = builder.requantize("x")
    data = builder.requantize(builder.add("Conv", data, builder.weight(12, 8, 1, 1)))
    scales = builder.random.uniform(0.5, 2.0, (12, 1, 1)).astype(np.float32)
    data = builder.requantize(builder.add("Mul", data, builder.constant(scales)))
    data = builder.add("Conv", data, builder.weight(16, 12, 1, 1))
    output = builder.add("QuantizeLinear", data, *builder.parameters(0.05, point=60))
    return builder.model([value("x", SHAPE)], output, TYPES[dtype][0])


def stored(made):
    """The types of what the kernels of a model hand on."""
    with TARGET:
        lowered = lower(prepare_graph()(import_onnx(made).mod), TARGET)
    calls = [each for each in values_of(lowered["main"]) if operator_name(each) == "relax.call_tir"]
    return [str(each.ty.dtype) for each in calls]


def bytes_made(made):
    """How often a prepared model makes bytes."""
    with TARGET:
        prepared = prepare_graph()(import_onnx(made).mod)
    return sum(
        operator_name(each) == "relax.astype" and str(each.ty.dtype) in TYPES
        for each in values_of(prepared["main"])
    )


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("swaps", [False, True])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_sums_of_two_products_are_those_of_onnx_runtime(seed, swaps, dtype):
    made = first_block(seed, dtype, swaps=swaps)
    x = np.random.default_rng(seed).standard_normal(SHAPE).astype(np.float32)
    (found,), (expected,) = run_here(made, {"x": x}), as_written(made, {"x": x})
    assert len(np.unique(expected)) > 5
    steps = np.abs(found.astype(int) - expected.astype(int))
    assert steps.max() <= 1
    assert np.count_nonzero(steps) <= 2


@pytest.mark.parametrize("swaps", [False, True])
def test_bytes_are_stored_between_kernels(swaps):
    assert set(stored(first_block(0, "uint8", swaps=swaps))) == {"uint8"}


def test_no_bytes_are_made_for_the_kernel_itself():
    """Of the input, the inner layer, the shortcut and the output; not of the sum's terms."""
    made = first_block(0, "uint8")
    assert bytes_made(made) == 4


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_scale_behind_a_convolution_is_in_its_kernel(seed, dtype):
    made = normalized(seed, dtype)
    x = np.random.default_rng(seed).standard_normal(SHAPE).astype(np.float32)
    (found,), (expected,) = run_here(made, {"x": x}), as_written(made, {"x": x})
    steps = np.abs(found.astype(int) - expected.astype(int))
    assert len(np.unique(expected)) > 5
    assert steps.max() <= 1
    assert np.count_nonzero(steps) <= 2


def limited(low, high, dtype="float32"):
    """What a rounded number is limited to before it becomes a byte, and then a float again."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((4, 16), dtype))
    with builder.function("main", [x]):
        with builder.dataflow():
            rounded = builder.emit(relax.op.round(x))
            whole = builder.emit(relax.op.clip(rounded, low, high))
            found = builder.emit(relax.op.astype(whole, "uint8"))
            result = builder.emit_output(relax.op.astype(found, "float32"))
        builder.emit_func_output(result)
    return builder.get()


@pytest.mark.parametrize("bounds", [(0, 255), (0.5, 200.5), (0, 6.3), (3, 17)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_limits_of_all_kinds(bounds, dtype):
    with TARGET:
        mod = lower(prepare_graph()(limited(*bounds, dtype)), TARGET)
    x = np.linspace(-20, 300, 64).reshape(4, 16).astype(dtype)
    machine = tvm.relax.VirtualMachine(tvm.compile(mod, TARGET), tvm.cpu())
    found = machine["main"](tvm.runtime.tensor(x)).numpy()
    expected = np.clip(np.round(x), *bounds).astype("uint8").astype("float32")
    np.testing.assert_array_equal(found, expected)


def test_nan_is_what_onnx_runtime_makes_of_it():
    builder = Builder(0)
    output = builder.add("Sigmoid", builder.requantize("x"))
    made = builder.model([value("x", [4, 16])], output)
    x = np.full((4, 16), np.nan, "float32")
    x[:, 1] = 1.0
    (expected,) = as_written(made, {"x": x})
    with TARGET:
        lowered = keep_nan()(lower(prepare_graph()(import_onnx(made).mod), TARGET))
    machine = tvm.relax.VirtualMachine(tvm.compile(lowered, TARGET), tvm.cpu())
    found = machine["main"](tvm.runtime.tensor(x)).numpy()
    np.testing.assert_allclose(found, expected, atol=1e-6)


def chain(zero, low, high, *, relu, scale=0.25):
    """Numbers that are scaled, rounded, shifted and limited; then the zero point is taken off."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((4, 16), "float32"))

    def number(value):
        return relax.const(value, "float32")

    with builder.function("main", [x]):
        with builder.dataflow():
            data = builder.emit(relax.op.nn.relu(x)) if relu else x
            data = builder.emit(relax.op.multiply(data, number(scale)))
            data = builder.emit(relax.op.add(builder.emit(relax.op.round(data)), number(zero)))
            data = builder.emit(relax.op.maximum(data, number(low)))
            data = builder.emit(relax.op.minimum(data, number(high)))
            data = builder.emit(relax.op.subtract(data, number(zero)))
            result = builder.emit_output(relax.op.multiply(data, number(0.5)))
        builder.emit_func_output(result)
    return builder.get()


@pytest.mark.parametrize(
    ("zero", "low", "high", "relu", "scale", "names"),
    [
        (7.0, 0.0, 255.0, False, 0.25, "multiply round maximum minimum multiply"),
        (-3.0, -128.0, 127.0, True, 0.25, "nn.relu multiply round maximum minimum multiply"),
        (0.0, 0.0, 255.0, True, 0.25, "multiply round maximum minimum multiply"),
        (-128.0, -128.0, 127.0, True, 0.25, "multiply round maximum minimum multiply"),
        # A negative scale turns the order of the numbers around.
        (0.0, 0.0, 255.0, True, -0.25, "nn.relu multiply round maximum minimum multiply"),
        # The zero point is no whole number: its sum with a rounded number rounds.
        (0.3, 0.0, 9.0, False, 0.25, "multiply round add maximum minimum subtract multiply"),
    ],
)
def test_zero_points_and_relus_move_into_the_limits(zero, low, high, relu, scale, names):
    made = chain(zero, low, high, relu=relu, scale=scale)
    moved = relax.transform.DeadCodeElimination()(move_limits()(made))
    kinds = [operator_name(each).removeprefix("relax.") for each in values_of(moved["main"])]
    assert [kind for kind in kinds if kind] == names.split()
    edges = [0.0, -0.0, np.inf, -np.inf, 1e30, -1e30, 2.0**25 + 2, 1021.9, 1022.1, -510.0]
    x = np.resize(np.array([*edges, *np.linspace(-1200, 1200, 54)], np.float32), (4, 16))
    found, expected = (
        tvm.relax.VirtualMachine(tvm.compile(mod, TARGET), tvm.cpu())["main"](
            tvm.runtime.tensor(x)
        ).numpy()
        for mod in (moved, made)
    )
    np.testing.assert_array_equal(found, expected)
