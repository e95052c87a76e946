# SPDX-License-Identifier: Apache-2.0
"""Finds products of floats whose vectors are multiplied by one number each."""

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
    """The products that a block adds up, and its axes by their positions.

    - ``lane``: along the numbers of a vector, which lie side by side in the result.
    - ``row``: the innermost one that the weights do not go along.
    - ``step``: the innermost one that is added up.
    - ``weights``: what vectors are loaded of. ``is_in_order``: whether those lie side by side.
      ``along``: the axes that they go along.
    - ``shared``: the load of what a vector is multiplied by.
    """

    lane: int
    row: int
    step: int
    weights: Any
    is_in_order: bool
    along: set[int]
    shared: Any


def find_product(block: Any) -> FoundProduct | None:
    """The products of a block in float32; None for one that consists of something else."""
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
    """The position of an axis that is one with the rows, in all that is read and written.

    Such as the lines of images in a 1x1 convolution without strides: their pixels, one line after
    the other, are one long row. None where there is no such axis.
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
    """True if the first indices are axes that cover a buffer."""
    return all(
        analyzer.can_prove_equal(index, axis.var) and int(extent) == int(axis.dom.extent)
        for index, extent, axis in zip(indices, extents, axes, strict=False)
    )


def _factors(block: Any) -> Sequence[Any]:
    """The two loads of float32 whose products a block adds up; none where it does not."""
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
    return loads if all(str(load.source.dtype) == "float32" for load in loads) else ()


def _axes_of(load: Any, axes: Sequence[Any]) -> set[int]:
    """The positions of the axes that the indices of a load depend on."""
    found: list[Any] = []
    for index in load.indices:
        structural_walk(index, (tirx.Var, found.append))
    return {n for n, axis in enumerate(axes) if any(axis.var.same_as(each) for each in found)}
