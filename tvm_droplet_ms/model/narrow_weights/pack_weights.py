# SPDX-License-Identifier: Apache-2.0
"""The pass that multiplies a few rows by packed weights."""

from math import prod
from typing import Any

import tvm
from tvm import relax
from tvm.ir import IRModule

from ..bindings import Bindings, Expr, constant, is_float32, operator_name, static_shape
from ..kernels.weights.narrow_product import narrow_product
from ..kernels.weights.packing import LANES, pack
from ..rewriting import Emit, Rewrite, binding_pass
from .scaled_integers import scaled_integers

_MATMUL = "relax.matmul"

MOST_ROWS = 7
"""The most rows that a product with packed weights is bound by memory for. More rows are faster
with float32."""

_LEAST_COLUMNS, _LEAST_ELEMENTS = LANES, 1 << 12


def pack_weights() -> tvm.transform.Pass:
    """Make a pass that keeps weights of 2, 4 or 8 bits packed for products of few rows.

    For ``matmul(x, w)`` where ``w`` is computed of constant integers, scales and zero points, in
    front of ``fold_constants``, which makes float32 of them. Returns the pass.
    """

    def transform(mod: IRModule, _context: tvm.transform.PassContext) -> IRModule:
        kernels = relax.BlockBuilder()

        def make_rewrite(bindings: Bindings) -> Rewrite:
            def rewrite(_var: Any, value: Expr, emit: Emit) -> Expr | None:
                return _packed_product(kernels, bindings, value, emit)

            return rewrite

        packed = binding_pass("PackProducts", make_rewrite, [_MATMUL])(mod)
        packed.update(kernels.get())
        return packed

    return tvm.transform.module_pass(transform, opt_level=0, name="PackWeights")


def _packed_product(
    kernels: relax.BlockBuilder, bindings: Bindings, value: Expr, emit: Emit
) -> Expr | None:
    if operator_name(value) != _MATMUL:
        return None
    x, weights = value.args
    shape, of_weights = static_shape(x), static_shape(weights)
    if shape is None or of_weights is None or len(of_weights) != 2 or not is_float32(x):
        return None
    rows, (depth, columns) = prod(shape[:-1]), of_weights
    if not 0 < rows <= MOST_ROWS or columns < _LEAST_COLUMNS or depth * columns < _LEAST_ELEMENTS:
        return None
    matrix = scaled_integers(bindings, weights)
    packed = None if matrix is None else pack(matrix)
    if packed is None:
        return None
    flat = emit(relax.op.reshape(x, [rows, depth]))
    arguments = [flat, *map(constant, (packed.words, packed.scales, packed.offsets))]
    kernel = narrow_product([each.ty for each in arguments], packed.bits)
    variable = kernels.add_func(kernel, "narrow_product")
    kind = relax.TensorType((rows, packed.words.shape[0] * LANES), "float32")
    product = emit(relax.call_tir(variable, arguments, kind))
    if columns % LANES:
        product = emit(relax.op.strided_slice(product, [1], [0], [columns]))
    return relax.op.reshape(product, [*shape[:-1], columns])
