# SPDX-License-Identifier: Apache-2.0
"""A product of bfloat16 with a number of rows that no tile divides, such as the 197 of a ViT.

A tile of one row loads a vector for each instruction. So some rows are computed twice: the product
has as many as tiles divide, of which the last ones are copies.
"""

from typing import Any

import tvm
from tvm import relax, te

from ....search_strategy.dot_products.dot_intrinsics import HALF
from ...bindings import static_shape
from ..attention.attention_compute import row_unit
from ..attention.attention_packing import at_most

_TILES = range(4, 15)
"""The rows of a good tile."""

_LEAST_ROWS = 16


def legalize_matmul(builder: relax.BlockBuilder, call: Any) -> Any:
    """Legalise ``relax.matmul``; for ``LegalizeOps(customize_legalize_map=...)``.

    ``builder``: the builder that emits the kernel. ``call``: a call of ``relax.matmul``. Returns a
    ``call_tir``. All but products of bfloat16 with a matrix, of rows that need it, are left to TVM.
    """
    rows = _rows(call)
    if rows is None or rows < _LEAST_ROWS or any(rows % tile == 0 for tile in _TILES):
        return tvm.ir.Op.get("relax.matmul").get_attr("FLegalize")(builder, call)
    return builder.call_te(half_matmul, *call.args, primfunc_name_hint="matmul")


def _rows(call: Any) -> int | None:
    """The rows of a product of bfloat16 with a matrix, to float32; None for any other."""
    shapes = [static_shape(operand) for operand in call.args]
    types = [str(each.ty.dtype) for each in (*call.args, call)]
    if types != [HALF, HALF, "float32"] or None in shapes:
        return None
    data, weights = shapes
    is_plain = data is not None and len(data) > 1 and weights is not None and len(weights) == 2
    return data[-2] if is_plain and data is not None else None


def half_matmul(data: te.Tensor, weights: te.Tensor) -> te.Tensor:
    """Multiply data of shape (..., rows, depth) with weights of (depth, columns); in float32."""
    *batch, rows, depth = (int(extent) for extent in data.shape)
    columns = int(weights.shape[1])
    unit = row_unit(rows)
    padded = -(-rows // unit) * unit
    k = te.reduce_axis((0, depth), "k")

    def product(*at: Any) -> Any:
        factors = data(*at[:-2], at_most(at[-2], rows, padded), k), weights(k, at[-1])
        one, other = (factor.astype("float32") for factor in factors)
        return te.sum(one * other, axis=[k])

    whole = te.compute((*batch, padded, columns), product, name="matmul")
    return te.compute((*batch, rows, columns), lambda *at: whole(*at), name="rows")
