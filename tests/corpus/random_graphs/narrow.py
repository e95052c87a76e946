# SPDX-License-Identifier: Apache-2.0
"""Random layers of bytes and of weights of four bits.

Scales are powers of 2, and what is quantized is an input: all products and quotients are exact, so
that no two ways to compute them round a tie differently.
"""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper

from .maker import RUNTIME, GraphMaker, Value

_TYPES = {"uint8": TensorProto.UINT8, "int8": TensorProto.INT8}
_SCALE = np.float32(2**-5)


def _integers(make: GraphMaker, low: int, high: int, shape: tuple[int, ...], dtype: str) -> str:
    return make.constant(make.chooser.integers(low, high, shape, endpoint=True).astype(dtype))


def _power(make: GraphMaker, shape: tuple[int, ...] = ()) -> str:
    return make.constant((2.0 ** make.chooser.integers(-8, -5, shape)).astype("float32"))


def four_bits(make: GraphMaker, x: Value) -> Value | None:
    """ONNX Runtime's product by weights of four or eight bits, scaled by blocks."""
    if x.rank < 2:
        return None
    depth, columns = x.shape[-1], make.pick([1, 3, 8, 16, 17])
    bits, block = make.pick([4, 4, 8]), make.pick([16, 32])
    blocks = -(-depth // block)
    operands = [x.name, _integers(make, 0, 255, (columns, blocks, block * bits // 8), "uint8")]
    scales = make.chooser.uniform(0.01, 0.1, columns * blocks).astype("float32")
    operands.append(make.constant(scales))
    has_zeros = make.chance(40)
    zeros = columns * -(-blocks * bits // 8)
    operands.append(_integers(make, 0, 255, (zeros,), "uint8") if has_zeros else "")
    if make.chance(30):
        operands += ["", make.weight([columns])]
    return make.node(
        "MatMulNBits",
        operands,
        [*x.shape[:-1], columns],
        domain=RUNTIME,
        K=depth,
        N=columns,
        bits=bits,
        block_size=block,
    )


def blocks_of_four_bits(make: GraphMaker, x: Value) -> Value | None:
    """A product by ``DequantizeLinear`` of int4 or uint4, by blocks, columns or as a whole."""
    if x.rank < 2:
        return None
    depth, columns = x.shape[-1], make.pick([1, 4, 7, 16])
    kind = make.pick(["int4", "uint4", "int8"])
    bounds = {"int4": (-8, 7), "uint4": (0, 15), "int8": (-128, 127)}[kind]
    numbers = make.chooser.integers(*bounds, (depth, columns), endpoint=True)
    number = {"int4": TensorProto.INT4, "uint4": TensorProto.UINT4, "int8": TensorProto.INT8}[kind]

    def narrow(values: np.ndarray) -> str:
        array = values.astype(helper.tensor_dtype_to_np_dtype(number))
        return make.constant(array)

    blocks = [size for size in (2, 4, 8, 16) if depth % size == 0]
    options = {}
    shape: tuple[int, ...] = make.pick([(), (columns,)])
    if blocks and make.chance(60):
        options = {"block_size": make.pick(blocks), "axis": 0}
        shape = (depth // options["block_size"], columns)
    elif shape:
        options["axis"] = 1
    operands = [narrow(numbers), make.constant(make.chooser.uniform(0.02, 0.1, shape).astype("f4"))]
    if make.chance(50):
        operands.append(narrow(make.chooser.integers(*bounds, shape, endpoint=True)))
    weight = make.node("DequantizeLinear", operands, (depth, columns), **options)
    return make.node("MatMul", [x.name, weight.name], [*x.shape[:-1], columns])


def _quantized(make: GraphMaker, x: Value, dtype: str) -> tuple[Value, list[str]]:
    zero = 128 if dtype == "uint8" and make.chance(70) else make.integer(0, 3)
    grid = [make.constant(_SCALE), make.constant(np.array(zero, dtype))]
    kind = _TYPES[dtype]
    return make.node("QuantizeLinear", [x.name, *grid], x.shape, dtype=kind), grid


def _weights(make: GraphMaker, shape: tuple[int, ...], axis: int, dtype: str) -> list[str]:
    """Bytes, their scales, of all or by column, and their zeros."""
    scales: tuple[int, ...] = make.pick([(), (shape[axis],)])
    zeros = np.zeros(scales, "int8") if dtype == "int8" else np.full(scales, 128, "uint8")
    low, high = (-127, 127) if dtype == "int8" else (0, 255)
    return [_integers(make, low, high, shape, dtype), _power(make, scales), make.constant(zeros)]


def _dequantized(make: GraphMaker, x: Value, grid: list[str]) -> Value:
    return make.node("DequantizeLinear", [x.name, *grid], x.shape)


def quantized_product(make: GraphMaker, x: Value) -> Value | None:
    """``QLinearMatMul``, or a ``MatMul`` between nodes that quantize."""
    if x not in make.inputs or x.rank < 2:
        return None
    columns, dtype = make.pick([1, 4, 8, 16]), make.pick(["uint8", "uint8", "int8"])
    rows, grid = _quantized(make, x, dtype)
    weight = _weights(make, (x.shape[-1], columns), 1, make.pick(["int8", "int8", dtype]))
    shape = (*x.shape[:-1], columns)
    out = [make.constant(np.float32(2**-2)), make.constant(np.array(make.integer(0, 9), dtype))]
    if make.chance(50):
        operands = [rows.name, *grid, *weight, *out]
        product = make.node("QLinearMatMul", operands, shape, dtype=_TYPES[dtype])
        return _dequantized(make, product, out)
    real = _dequantized(make, rows, grid)
    scaled = make.node("DequantizeLinear", weight, (x.shape[-1], columns), axis=1)
    result = make.node("MatMul", [real.name, scaled.name], shape)
    if make.chance(50):
        return result
    narrow = make.node("QuantizeLinear", [result.name, *out], shape, dtype=_TYPES[dtype])
    return _dequantized(make, narrow, out)


def quantized_convolution(make: GraphMaker, x: Value) -> Value | None:
    """``QLinearConv`` with strides, pads and groups."""
    if x not in make.inputs or x.rank != 4:
        return None
    batch, channels, *image = x.shape
    dtype = make.pick(["uint8", "uint8", "int8"])
    groups = make.pick([1, 1, channels])
    outputs = groups * make.pick([1, 2] if groups > 1 else [1, 4, 5, 8])
    kernel = [make.pick([1, 3]) for _ in image]
    strides = [make.pick([1, 2]) for _ in image]
    begin, end = ([make.integer(0, k // 2) for k in kernel] for _ in range(2))
    pieces = zip(image, kernel, strides, begin, end, strict=True)
    shape = [(n + b + e - k) // s + 1 for n, k, s, b, e in pieces]
    if min(shape) < 1:
        return None
    rows, grid = _quantized(make, x, dtype)
    weight = _weights(make, (outputs, channels // groups, *kernel), 0, "int8")
    out = [make.constant(np.float32(2**-2)), make.constant(np.array(make.integer(0, 9), dtype))]
    operands = [rows.name, *grid, *weight, *out]
    if make.chance(60):
        operands.append(_integers(make, -999, 999, (outputs,), "int32"))
    product = make.node(
        "QLinearConv",
        operands,
        [batch, outputs, *shape],
        dtype=_TYPES[dtype],
        group=groups,
        strides=strides,
        pads=[*begin, *end],
        kernel_shape=kernel,
    )
    return _dequantized(make, product, out)


def dynamic_product(make: GraphMaker, x: Value) -> Value | None:
    """Rows that are quantized by what they hold, as ``quantize_dynamic`` writes a product."""
    if x not in make.inputs or x.rank < 2:
        return None
    columns = make.pick([1, 4, 8, 16])
    shape = (*x.shape[:-1], columns)
    rows = make.node("DynamicQuantizeLinear", [x.name], x.shape, dtype=TensorProto.UINT8, outputs=3)
    scale, zero = (f"{rows.name}_{n}" for n in (1, 2))
    kind = make.pick(["int8", "uint8"])
    weight, by_column, zeros = _weights(make, (x.shape[-1], columns), 1, kind)
    operands = [rows.name, weight, zero, zeros]
    sums = make.node("MatMulInteger", operands, shape, dtype=TensorProto.INT32)
    real = make.node("Cast", [sums.name], shape, to=TensorProto.FLOAT)
    scales = make.node("Mul", [scale, by_column], make.shape_of(by_column))
    return make.node("Mul", [real.name, scales.name], shape)


NARROW = (
    *[four_bits] * 3, *[blocks_of_four_bits] * 2, *[quantized_product] * 3,
    *[quantized_convolution] * 3, *[dynamic_product] * 2,
)  # fmt: skip
"""Layers of few bits, by how often they are tried."""
