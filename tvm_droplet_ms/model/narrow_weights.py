# SPDX-License-Identifier: Apache-2.0
"""Products of floats with low-bit weights, which stay packed in memory."""

from math import prod
from typing import Any

import numpy as np

import tvm
from tvm import relax
from tvm.ir import IRModule

from .bindings import Bindings, Expr, array_of, constant, is_float32, operator_name, static_shape
from .folding.numpy_folding import RESHAPES, evaluate
from .integers.quantized_values import known
from .kernels.weights.packed_products import byte_product, narrow_product
from .kernels.weights.packing import LANES, Array, Scaled, pack
from .rewriting import Emit, operator_pass

_DEEPEST = 8
"""Maximum number of operations between the integers and the matrix."""


def scaled_integers(bindings: Bindings, expr: Expr, depth: int = _DEEPEST) -> Scaled | None:
    """Return the integers, zero points and scales of a float32 tensor; None for any other tensor.

    ``depth``: the maximum number of operations to look through.
    """
    value = bindings.value_of(expr)
    name, shape = operator_name(value), static_shape(value)
    if not depth or not name or shape is None:
        return None
    if name == "relax.astype":
        integers = _integers(bindings, value.args[0])
        return None if integers is None else _like(*integers, np.float32(1))
    if name == "relax.dequantize":
        return _dequantized(bindings, value)
    if name not in _MOVES:
        return None
    found = scaled_integers(bindings, value.args[0], depth - 1)
    if found is None:
        return None
    if name in ("relax.subtract", "relax.multiply"):
        other = known(bindings, value.args[1])
        if other is None or other.dtype != np.float32 or shape != found.numbers.shape:
            return None
        if name == "relax.multiply":
            return _like(found.numbers, found.zeros, found.scales * other)
        # A number that is subtracted after scaling is not a zero point of the integers.
        is_scaled = bool((found.scales != 1).any())
        return None if is_scaled else _like(found.numbers, found.zeros + other, found.scales)
    moved = (evaluate(value, [each], shape) for each in (found.numbers, found.zeros, found.scales))
    return Scaled(*(each for each in moved if each is not None))


def _integers(bindings: Bindings, expr: Expr) -> tuple[Array, Array] | None:
    """Return constant bytes and the numbers subtracted from them as wider integers, or None."""
    value = bindings.value_of(expr)
    array = array_of(value)
    if array is not None:
        is_byte = array.dtype in (np.int8, np.uint8)
        return (array, np.zeros((), "float32")) if is_byte else None
    name = operator_name(value)
    if name not in ("relax.astype", "relax.subtract") or str(value.ty.dtype) != "int32":
        return None
    found = _integers(bindings, value.args[0])
    if found is None or name == "relax.astype":
        return found
    zeros = known(bindings, value.args[1])
    is_same = zeros is not None and static_shape(value) == found[0].shape
    return (found[0], found[1] + zeros.astype("float32")) if is_same and zeros is not None else None


_MOVES = {*RESHAPES, "relax.permute_dims", "relax.subtract", "relax.multiply"}


def _like(numbers: Array, zeros: Any, scales: Any) -> Scaled:
    """Broadcast zero points and scales to the shape of the integers."""
    tables = (np.broadcast_to(each, numbers.shape) for each in (zeros, scales))
    return Scaled(numbers, *tables)


def _dequantized(bindings: Bindings, value: relax.Call) -> Scaled | None:
    """Match a ``relax.dequantize`` of constants, whose scales and zero points are along an axis."""
    numbers, scale, zero = (bindings.array_of(each) for each in value.args)
    if numbers is None or scale is None or zero is None or numbers.dtype.itemsize > 1:
        return None
    column = [1] * numbers.ndim
    column[int(value.attrs.axis)] = -1
    tables = (each.astype("float32").reshape(column if each.ndim else ()) for each in (zero, scale))
    return _like(numbers, *tables)


MOST_ROWS = 7
"""Largest number of rows for which a product with packed weights is memory-bound. More rows are
faster in float32."""

_LEAST_COLUMNS, _LEAST_ELEMENTS = LANES, 1 << 12


def pack_weights(*, has_vnni: bool = False) -> tvm.transform.Pass:
    """Make a pass that keeps weights of 2, 4 or 8 bits packed: for few rows, or rows of bytes.

    It rewrites ``matmul(x, w)`` where ``w`` is computed from constant integers, scales and zero
    points. Run it before ``fold_constants``, which turns these into float32. ``has_vnni``: whether
    the CPU has AVX512_VNNI, which multiplies rows that were rounded to bytes in blocks.
    """

    def transform(mod: IRModule, _context: tvm.transform.PassContext) -> IRModule:
        kernels = relax.BlockBuilder()

        @operator_pass("PackProducts", ["relax.matmul"])
        def pack_products(bindings: Bindings, value: Expr, emit: Emit) -> Expr | None:
            return _packed_product(kernels, bindings, value, emit, has_vnni)

        packed: IRModule = pack_products()(mod)
        packed.update(kernels.get())
        return packed

    return tvm.transform.module_pass(transform, opt_level=0, name="PackWeights")


def _packed_product(
    kernels: relax.BlockBuilder, bindings: Bindings, value: Expr, emit: Emit, has_vnni: bool
) -> Expr | None:
    x, weights = value.args
    shape, of_weights = static_shape(x), static_shape(weights)
    if shape is None or of_weights is None or len(of_weights) != 2:
        return None
    if not all(map(is_float32, (x, value))):
        return None
    rows, (depth, columns) = prod(shape[:-1]), of_weights
    if not rows or columns < _LEAST_COLUMNS or depth * columns < _LEAST_ELEMENTS:
        return None
    rounded = _rounded_blocks(bindings, x) if has_vnni else None
    if rounded is None and rows > MOST_ROWS:
        return None
    matrix = scaled_integers(bindings, weights)
    if matrix is None:
        return None
    packed = None
    if rounded is not None:
        numbers, of_blocks = rounded
        packed = pack(matrix, (static_shape(numbers) or ())[-1])
        if packed is not None:
            blocks = packed.words.shape[1]
            sums = emit(relax.op.sum(numbers, axis=[-1]))
            factors = [
                emit(relax.op.reshape(emit(relax.op.astype(numbers, "int8")), [rows, depth])),
                *(emit(relax.op.reshape(each, [rows, blocks])) for each in (of_blocks, sums)),
            ]
            make = byte_product
    if packed is None:
        packed = pack(matrix) if rows <= MOST_ROWS else None
        if packed is None:
            return None
        factors, make = [emit(relax.op.reshape(x, [rows, depth]))], narrow_product
    arguments = [*factors, *map(constant, (packed.words, packed.scales, packed.zeros))]
    kernel = make([each.ty for each in arguments], packed.bits)
    variable = kernels.add_func(kernel, make.__name__)
    kind = relax.TensorType((rows, packed.words.shape[0] * LANES), "float32")
    product = emit(relax.call_tir(variable, arguments, kind))
    if columns % LANES:
        product = emit(relax.op.strided_slice(product, [1], [0], [columns]))
    return relax.op.reshape(product, [*shape[:-1], columns])


def _rounded_blocks(bindings: Bindings, x: Expr) -> tuple[Expr, Expr] | None:
    """Return the integers and the scales of rows that were rounded in blocks; None for other rows.

    ``MatMulNBits`` with ``accuracy_level=4`` has such rows: the product of rounded numbers of shape
    (..., blocks, rows of a block) and scales of shape (..., blocks, 1).
    """
    value = bindings.value_of(x)
    is_reshape = operator_name(value) == "relax.reshape"
    scaled = bindings.call_of(value.args[0], "relax.multiply") if is_reshape else None
    if scaled is None:
        return None
    numbers, scales = scaled.args
    shape, of_scales = static_shape(numbers), static_shape(scales)
    if bindings.call_of(numbers, "relax.round") is None or shape is None:
        return None
    is_flat = static_shape(value) == (*shape[:-2], prod(shape[-2:]))
    return (numbers, scales) if is_flat and of_scales == (*shape[:-1], 1) else None
