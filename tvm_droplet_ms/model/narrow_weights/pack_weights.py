# SPDX-License-Identifier: Apache-2.0
"""The pass that multiplies by packed weights."""

from math import prod
from typing import Any

import tvm
from tvm import relax
from tvm.ir import IRModule

from ..bindings import Bindings, Expr, constant, is_float32, operator_name, static_shape
from ..kernels.weights.byte_product import byte_product
from ..kernels.weights.narrow_product import narrow_product
from ..kernels.weights.packing import LANES, pack
from ..rewriting import Emit, Rewrite, binding_pass
from .scaled_integers import scaled_integers

_MATMUL = "relax.matmul"

MOST_ROWS = 7
"""Largest number of rows for which a product with packed weights is memory-bound. More rows are
faster in float32."""

_LEAST_COLUMNS, _LEAST_ELEMENTS = LANES, 1 << 12


def pack_weights(*, has_vnni: bool = False) -> tvm.transform.Pass:
    """Make a pass that keeps weights of 2, 4 or 8 bits packed: for few rows, or rows of bytes.

    It rewrites ``matmul(x, w)`` where ``w`` is computed from constant integers, scales and zero
    points. Run it before ``fold_constants``, which turns these into float32. ``has_vnni``: whether
    the CPU has AVX512_VNNI, which multiplies rows that were rounded to bytes in blocks. Returns
    the pass.
    """

    def transform(mod: IRModule, _context: tvm.transform.PassContext) -> IRModule:
        kernels = relax.BlockBuilder()

        def make_rewrite(bindings: Bindings) -> Rewrite:
            def rewrite(_var: Any, value: Expr, emit: Emit) -> Expr | None:
                return _packed_product(kernels, bindings, value, emit, has_vnni)

            return rewrite

        packed = binding_pass("PackProducts", make_rewrite, [_MATMUL])(mod)
        packed.update(kernels.get())
        return packed

    return tvm.transform.module_pass(transform, opt_level=0, name="PackWeights")


def _packed_product(
    kernels: relax.BlockBuilder, bindings: Bindings, value: Expr, emit: Emit, has_vnni: bool
) -> Expr | None:
    if operator_name(value) != _MATMUL:
        return None
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
    scaled = bindings.call_of(value.args[0], "relax.multiply") if _is_reshape(value) else None
    if scaled is None:
        return None
    numbers, scales = scaled.args
    shape, of_scales = static_shape(numbers), static_shape(scales)
    if bindings.call_of(numbers, "relax.round") is None or shape is None:
        return None
    is_flat = static_shape(value) == (*shape[:-2], prod(shape[-2:]))
    return (numbers, scales) if is_flat and of_scales == (*shape[:-1], 1) else None


def _is_reshape(value: Expr) -> bool:
    return operator_name(value) == "relax.reshape"
