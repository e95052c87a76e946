# SPDX-License-Identifier: Apache-2.0
"""Attention as one fused kernel whose scores stay in the caches.

Attention is the softmax of queries times keys, times values. Three separate kernels write the
scores to memory and read them four times. If the row length of the scores is prime, such as 197, no
vector length divides it. This kernel computes some rows of queries from end to end, as in
FlashAttention (Dao et al., 2022, algorithm 1), but with whole rows of scores, which fit the caches
of a CPU.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, Generic, TypeVar

from tvm import te, tirx
from tvm.target import Target

from ....design_space.dot_products.dot_intrinsics import HALF
from ....design_space.matrix_tiles.find_matrix import product_geometry
from ....design_space.matrix_tiles.tile_shapes import padded_map
from ..kernel_pass import compute_stage
from .attention_packing import LANES, Element, Extents, InPairs, Packing, at_most, column_of
from .few_rows import FEW_ROWS_RULE, AsTheyLie

ATTENTION_RULE, TILED_RULE = "tvm_droplet_ms.attention", "tvm_droplet_ms.attention_in_tiles"
"""Schedule rules that the kernel requests: for vectors, or for matrix tiles."""

LEAST_WIDTH = 8
"""Minimum width of a value, for vectors."""

_ROW_UNITS = (4, 6, 8, 12)
"""Candidate row units. The rows of a tile are a multiple of the unit, and the number of rows
that are computed together divides it."""


Of = TypeVar("Of")


@dataclass(frozen=True)
class Masks(Generic[Of]):
    """Operations on the scores before the softmax, and on the weights after it.

    - ``scale``: the factor of the scores.
    - ``added``: the terms to add after scaling, with indices (*batch, rows, columns).
    - ``condition``: a boolean mask with the same indices.
    - ``fill``: the value that finally replaces a score if its condition equals ``fills_where``.
    - ``blank``: a boolean mask with the same indices, equal for all columns. It marks rows whose
      weights are set to 0 after the softmax.
    - ``blanks_nan``: whether NaN weights are set to 0, as in a row whose scores are all minus
      infinity.
    """

    scale: float = 1.0
    added: Sequence[Of] = ()
    condition: Of | None = None
    fill: float = 0.0
    fills_where: bool = True
    blank: Of | None = None
    blanks_nan: bool = False


def attention(
    extents: Extents,
    queries: Element,
    keys: Element,
    values: Element,
    masks: Masks[Element],
    axes: Sequence[int],
    *,
    halves: bool = False,
    packs: bool = True,
) -> te.Tensor:
    """Compute the softmax of queries times keys, times values.

    - ``queries``: a function from indices (*batch, rows, depth) to an element.
    - ``keys``: the same with indices (*batch, depth, columns).
    - ``values``: the same with indices (*batch, columns, width).
    - ``axes``: the order of the axes of the result; the last axis stays last.
    - ``halves``: whether the factors of both products are rounded to bfloat16; the depth is even.
    - ``packs``: whether keys and values are packed; otherwise they are read in place
      (``few_rows``).

    Returns values of shape (*batch, rows, width), transposed by ``axes``. Rows and columns are
    padded to multiples of ``row_unit`` and ``LANES``. The padding repeats the last row and the last
    key, so the largest score of a row does not change; the weights of padded keys are 0. A width
    that is no multiple of ``LEAST_WIDTH`` is padded to one of ``LANES``.
    """
    batch, rows, columns = extents.batch, extents.rows, extents.columns
    depth, width = extents.depth, extents.width
    if width % LEAST_WIDTH:
        extents = replace(extents, width=_padded(width, LANES))
    in_tiles = tiled_rows(extents) if halves else None
    rule = ATTENTION_RULE if in_tiles is None else TILED_RULE
    padded_rows = in_tiles or _padded(rows, row_unit(rows))
    packing = InPairs(extents) if halves else Packing(extents)
    if not packs:
        rule, padded_rows, packing = FEW_ROWS_RULE, rows, AsTheyLie(extents)
    packed_queries = compute_stage(
        (*batch, padded_rows, depth),
        lambda *at: packing.stored(queries(*at[:-2], at_most(at[-2], rows, padded_rows), at[-1])),
        "queries",
    )
    value_of = packing.values(lambda *at: values(*at[:-1], at_most(at[-1], width, extents.width)))
    by_panel = (*batch, padded_rows, extents.panels, LANES)
    scores = packing.scores(padded_rows, packed_queries, keys)

    def logit(*at: Any) -> Any:
        row, column = at_most(at[-3], rows, padded_rows), column_of(at[-2], at[-1], columns)
        place = (*at[:-3], row, column)
        value = scores[at] * tirx.const(masks.scale, "float32")
        for added in masks.added:
            value = value + added(*place)
        if masks.condition is not None:
            choices = [tirx.const(masks.fill, "float32"), value]
            choices = choices if masks.fills_where else choices[::-1]
            value = tirx.Select(masks.condition(*place), *choices)
        return value

    logits = compute_stage(by_panel, logit, "logits")
    largest = _over_row(by_panel, logits, te.max, tirx.max, "largest")
    shifted = compute_stage(by_panel, lambda *at: logits[at] - largest[at[:-2]], "shifted")
    exponentials = packing.exponentials(shifted)
    weight_of_lane, weight = packing.weights(padded_rows, exponentials)
    total = _over_row(by_panel, weight_of_lane, te.sum, lambda a, b: a + b, "total")
    n = te.reduce_axis((0, packing.summed), "n")
    mixed = compute_stage(
        (*batch, padded_rows, extents.width),
        lambda *at: te.sum(
            weight(*at[:-1], n) * packing.loaded(value_of(*at[:-2], n, at[-1])),
            axis=[n],
        ),
        "mixed",
    )

    def mean(*at: Any) -> Any:
        value, zero = mixed[at] / total[at[:-1]], tirx.const(0, "float32")
        if masks.blanks_nan:
            value = tirx.Select(total[at[:-1]] > zero, value, zero)
        if masks.blank is None:
            return value
        row = at_most(at[-2], rows, padded_rows)
        return tirx.Select(masks.blank(*at[:-2], row, 0), zero, value)

    normal = te.compute(
        (*batch, padded_rows, extents.width),
        mean,
        name="normal",
        attrs={"schedule_rule": rule},
    )
    shape = (*batch, rows, width)
    return compute_stage(
        [shape[axis] for axis in axes],
        lambda *at: normal[tuple(at[axes.index(axis)] for axis in range(len(axes)))],
        "attention",
    )


def tiled_rows(extents: Extents) -> int | None:
    """Return the rows of an attention, padded for tiles; None if tiles do not apply.

    Tiles apply if the current target multiplies bfloat16 in tiles, both products fit them
    (``product_geometry``), there are at least ``LANES`` rows, and ``LANES`` divides the width.
    """
    target = Target.current(allow_none=True)
    if target is None or extents.width % LANES or extents.rows < LANES:
        return None
    columns = extents.panels * LANES
    keys = product_geometry(target, HALF, extents.depth, columns)
    values = product_geometry(target, HALF, columns, extents.width)
    if keys is None or values is None:
        return None
    return padded_map(extents.rows, 1, *keys)[0]


def row_unit(rows: int) -> int:
    """Return the row unit with the least padding for a number of rows."""
    return min(_ROW_UNITS, key=lambda unit: (_padded(rows, unit), -unit))


def _padded(count: int, unit: int) -> int:
    return -(-count // unit) * unit


def _over_row(
    by_panel: Sequence[int],
    data: Element,
    over: Any,
    pair: Callable[[Any, Any], Any],
    name: str,
) -> te.Tensor:
    """Reduce the panels lane by lane, and then the lanes."""
    *shape, panels, lanes = by_panel
    p = te.reduce_axis((0, panels), "p")
    by_lane = compute_stage(
        (*shape, lanes),
        lambda *at: over(data(*at[:-1], p, at[-1]), axis=[p]),
        f"{name}_of_lane",
    )
    return compute_stage(
        shape, lambda *at: _tree(pair, [by_lane(*at, lane) for lane in range(lanes)]), name
    )


def _tree(pair: Callable[[Any, Any], Any], items: Sequence[Any]) -> Any:
    """Reduce 2**n items in n steps, whose operations are independent of each other."""
    while len(items) > 1:
        items = [reduce(pair, items[n : n + 2]) for n in range(0, len(items), 2)]
    return items[0]
