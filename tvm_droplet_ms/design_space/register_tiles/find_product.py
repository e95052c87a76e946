# SPDX-License-Identifier: Apache-2.0
"""Finds sums of float products in which a vector is multiplied by a scalar."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm_ffi import structural_equal
from tvm_ffi.structural import structural_walk

from tvm import tirx
from tvm.ir.expr import TensorLoad
from tvm.ir.prim.expr import Add, Mul
from tvm.sym import Analyzer
from tvm.tirx import IntImm, IterVar


@dataclass(frozen=True)
class FoundProduct:
    """The products that a block sums; axes are positions among the block's axes.

    - ``lane``: the axis along the numbers of a vector, which are contiguous in the result.
    - ``row``: the innermost data-parallel axis that does not index the weights.
    - ``step``: the innermost reduction axis.
    - ``weights``: the buffer that vectors are loaded from. ``is_in_order``: whether the numbers of
      a vector are contiguous in it. ``along``: the axes that index it.
    - ``shared``: the load of the scalar that multiplies a vector.
    """

    lane: int
    row: int
    step: int
    weights: Any
    is_in_order: bool
    along: set[int]
    shared: Any


def find_product(block: Any) -> FoundProduct | None:
    """Find the products of floats of a block; None if the block computes something else."""
    axes, loads = list(block.iter_vars), _factors(block)
    if (
        not loads
        or not block.body.indices
        or not all(isinstance(axis.dom.extent, IntImm) for axis in axes)
    ):
        return None
    lane = next((n for n, axis in enumerate(axes) if axis.var.same_as(block.body.indices[-1])), -1)
    own = [load for load in loads if lane in _axes_of(load, axes)]
    if len(own) != 1:
        return None
    along = _axes_of(own[0], axes)
    rows, sums = (
        [n for n, axis in enumerate(axes) if axis.iter_type == kind and int(axis.dom.extent) > 1]
        for kind in (IterVar.DataPar, IterVar.CommReduce)
    )
    rows = [row for row in rows if row not in along]
    if not rows or not sums:
        return None
    is_in_order = axes[lane].var.same_as(own[0].indices[-1])
    shared = next(load for load in loads if load is not own[0])
    return FoundProduct(lane, rows[-1], sums[-1], own[0].source, is_in_order, along, shared)


def outer_rows(block: Any, found: FoundProduct) -> int | None:
    """Return the position of an axis that can be fused with the rows, in all reads and writes.

    An example is the lines of images in a 1x1 convolution without strides: the pixels of
    consecutive lines form one long row. Returns None if there is no such axis.
    """
    axes, analyzer = list(block.iter_vars), Analyzer()
    for axis in axes:
        analyzer.bind(axis.var, axis.dom)
    line = found.row - 1
    if line < 0 or line in found.along or axes[line].iter_type != IterVar.DataPar:
        return None
    pair = axes[line : line + 2]
    reads = [
        place
        for place in range(len(found.shared.indices) - 1)
        if _are(found.shared.indices[place:], found.shared.source.shape[place:], pair, analyzer)
    ]
    writes = _are(block.body.indices[line:], block.body.buffer.shape[line:], pair, analyzer)
    return line if len(reads) == 1 and writes else None


def _are(indices: Any, extents: Any, axes: Sequence[Any], analyzer: Analyzer) -> bool:
    """Return whether the first indices are these axes, each over a whole dimension."""
    return all(
        analyzer.can_prove_equal(index, axis.var) and int(extent) == int(axis.dom.extent)
        for index, extent, axis in zip(indices, extents, axes, strict=False)
    )


def _factors(block: Any) -> Sequence[Any]:
    """Return the two loads of floats whose products a block sums; empty if it sums none."""
    total = getattr(block.body, "value", None)
    if block.init is None or not isinstance(total, Add) or not isinstance(total.b, Mul):
        return ()
    before, loads = total.a, (total.b.a, total.b.b)
    if not all(isinstance(load, TensorLoad) for load in (before, *loads)):
        return ()
    if not before.source.same_as(block.body.buffer) or not structural_equal(
        before.indices, block.body.indices
    ):
        return ()
    types = {str(load.source.dtype) for load in (before, *loads)}
    return loads if types in ({"float32"}, {"float64"}) else ()


def _axes_of(load: Any, axes: Sequence[Any]) -> set[int]:
    """Return the positions of the axes that index a load."""
    found: list[Any] = []
    for index in load.indices:
        structural_walk(index, (tirx.Var, found.append))
    return {n for n, axis in enumerate(axes) if any(axis.var.same_as(each) for each in found)}
