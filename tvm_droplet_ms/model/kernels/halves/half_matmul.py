# SPDX-License-Identifier: Apache-2.0
"""bfloat16 products with a number of rows that no tile divides, such as the 197 rows of a ViT.

A tile of one row loads a vector for each instruction. So the product is extended to a number of
rows that tiles divide, and the additional rows are copies of the last one. Matrix tiles read their
rows from memory. For them the data are copied and extended by rows of zeros, for bytes too.
"""

from collections.abc import Sequence
from typing import Any

import tvm
from tvm import relax, te, tirx
from tvm.target import Target

from ....design_space.dot_products.dot_intrinsics import BYTES, HALF
from ....design_space.matrix_tiles.find_matrix import product_geometry
from ....design_space.matrix_tiles.tile_shapes import padded_map
from ...bindings import static_shape
from ..attention.attention_compute import row_unit
from ..attention.attention_packing import at_most

_TILES = range(4, 15)
"""Row counts of good tiles."""

_LEAST_ROWS = 16

_FEWEST_TILED = 8
"""Minimum rows for matrix tiles."""


def legalize_matmul(builder: relax.BlockBuilder, call: Any) -> Any:
    """Legalize ``relax.matmul``; for ``LegalizeOps(customize_legalize_map=...)``.

    ``builder``: the builder that emits the kernel. ``call``: a call of ``relax.matmul``. Returns a
    ``call_tir``. TVM legalizes everything except products with a matrix, of bfloat16 or bytes,
    whose rows need padding.
    """
    rows = _rows(call)
    tiled = None if rows is None else _tiled_rows(call, rows)
    if rows is not None and tiled is not None:
        if tiled != rows:
            arguments = (*call.args, tiled)
            return builder.call_te(tiled_matmul, *arguments, primfunc_name_hint="matmul")
        rows = None
    is_of_bytes = str(call.ty.dtype) != "float32"
    if rows is None or rows < _LEAST_ROWS or _is_middle_one(list(call.args[0].ty.shape)):
        rows = 1
    is_good = rows == 1 or any(rows % tile == 0 for tile in _TILES)
    if is_good or is_of_bytes:
        return tvm.ir.Op.get("relax.matmul").get_attr("FLegalize")(builder, call)
    return builder.call_te(half_matmul, *call.args, primfunc_name_hint="matmul")


def _tiled_rows(call: Any, rows: int) -> int | None:
    """Return the rows that matrix tiles need; None if matrix tiles do not apply."""
    target = Target.current(allow_none=True)
    if target is None or rows < _FEWEST_TILED:
        return None
    depth, outputs = (int(extent) for extent in call.args[1].ty.shape)
    geometry = product_geometry(target, str(call.args[0].ty.dtype), depth, outputs)
    return None if geometry is None else padded_map(rows, 1, *geometry)[0]


def _rows(call: Any) -> int | None:
    """Return the rows of a product of bfloat16 or bytes with a matrix; None for other products."""
    shapes = [static_shape(operand) for operand in call.args]
    types = [str(each.ty.dtype) for each in call.args]
    sums = {"float32": (HALF,), "int32": BYTES}.get(str(call.ty.dtype), ())
    if not {*types} <= {*sums} or None in shapes:
        return None
    data, weights = shapes
    is_plain = data is not None and len(data) > 1 and weights is not None and len(weights) == 2
    if not is_plain or data is None:
        return None
    return data[-3] if _is_middle_one(data) else data[-2]


def _is_middle_one(shape: Sequence[int]) -> bool:
    """Return whether the row axis is one axis further out, as in sequences of batch size 1."""
    return len(shape) > 2 and shape[-2] == 1


def tiled_matmul(data: te.Tensor, weights: te.Tensor, computed: int) -> te.Tensor:
    """Multiply data of shape (..., rows, depth) with weights of (depth, columns).

    ``computed``: the rows to compute; excess rows are dropped. Returns float32 for bfloat16, and
    int32 for bytes.
    """
    shape = [int(extent) for extent in data.shape]
    axis = len(shape) - (3 if _is_middle_one(shape) else 2)
    columns, dtype = int(weights.shape[1]), str(data.dtype)
    bits, sums = ("uint16", "float32") if dtype == HALF else (dtype, "int32")
    k = te.reduce_axis((0, shape[-1]), "k")

    def copied(*at: Any) -> Any:
        stored = tirx.reinterpret(bits, data(*at))
        is_inside = at[axis] < shape[axis]
        return tirx.reinterpret(dtype, tirx.if_then_else(is_inside, stored, tirx.const(0, bits)))

    more = [*shape[:axis], computed, *shape[axis + 1 :]]
    longer = te.compute(more, copied, name="pad_temp")
    whole = te.compute(
        (*more[:-1], columns),
        lambda *at: te.sum(
            longer(*at[:-1], k).astype(sums) * weights(k, at[-1]).astype(sums), axis=[k]
        ),
        name="matmul",
    )
    return te.compute((*shape[:-1], columns), lambda *at: whole(*at), name="rows")


def half_matmul(data: te.Tensor, weights: te.Tensor) -> te.Tensor:
    """Multiply data of shape (..., rows, depth) with weights of (depth, columns), in float32."""
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
