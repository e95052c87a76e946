# SPDX-License-Identifier: Apache-2.0
"""A product of a few rows of floats and packed low-bit weights.

Reading the weights from memory is the bottleneck, so they are unpacked in registers. A block is
``scale * sum(x * (number - zero))``. Separate sums of ``x * number`` and ``x`` would cancel: the
mean of a row times a large zero point loses digits.
"""

from collections.abc import Sequence
from math import prod
from typing import Any

from tvm import te, tirx, topi
from tvm.s_tir import Schedule
from tvm.s_tir.schedule import SBlockRV

from ....design_space.register_tiles.tiling import FINISHED
from ..attention.stages import inline_others, sample, vectorize
from .packing import LANES, TOGETHER, WORD

NARROW_RULE = "tvm_droplet_ms.narrow_product"
"""The schedule rule that the kernel requests."""

_BY_RULE = {"schedule_rule": "None"}
_STAGES = ("parts", "product")
_PANELS, _WORDS = (2, 4, 8), (1, 2, 4)
"""Candidate numbers of panels, and of words in each, that are unpacked together. A single panel
took 2.6 times as long."""

_MOST_SUMS = 16
"""Maximum vectors of sums that the registers hold."""


def narrow_product(types: Sequence[Any], bits: int) -> tirx.PrimFunc:
    """Make the kernel.

    - ``types``: the tensor types of the rows, and of the words, scales and zeros of ``Packed``.
    - ``bits``: the bits of a number.

    The kernel returns values of shape (rows, columns), with the columns of all panels.
    """
    names = ("x", "words", "scales", "zeros")
    x, words, scales, zeros = inputs = [
        te.placeholder([int(extent) for extent in kind.shape], str(kind.dtype), name)
        for kind, name in zip(types, names, strict=True)
    ]
    panels, blocks, count, _ = topi.utils.get_const_tuple(words.shape)
    rows, depth = topi.utils.get_const_tuple(x.shape)
    per_word, block = WORD // bits, depth // blocks
    word, group = te.reduce_axis((0, count), "word"), te.reduce_axis((0, 8 // bits), "group")
    byte = te.reduce_axis((0, TOGETHER), "byte")
    b = te.reduce_axis((0, blocks), "b")
    mask = tirx.const((1 << bits) - 1, "int32")

    def part(m: Any, n: Any, b: Any, lane: Any) -> Any:
        shift = (byte * 8 + group * bits).astype("int32")
        number = ((words[n, b, word, lane] >> shift) & mask).astype("float32")
        value = number - zeros[n, b, lane]
        row = b * block + word * per_word + group * TOGETHER + byte
        return te.sum(x[m, row] * value, axis=[word, group, byte])

    parts = te.compute((rows, panels, blocks, LANES), part, name="parts", attrs=_BY_RULE)
    product = te.compute(
        (rows, panels, LANES),
        lambda m, n, lane: te.sum(parts[m, n, b, lane] * scales[n, b, lane], axis=[b]),
        name="product",
        attrs={"schedule_rule": NARROW_RULE},
    )
    result = te.compute(
        (rows, panels * LANES),
        lambda m, n: product[m, n // LANES, n % LANES],
        name="narrow",
        attrs=_BY_RULE,
    )
    # Relax has 64-bit extents.
    kernel = te.create_prim_func([*inputs, result], index_dtype_override="int64")
    return kernel.without_attr("global_symbol")


def schedule_narrow(schedule: Schedule, product: SBlockRV) -> list[Schedule]:
    """Return one design space, over the numbers of panels and words that are unpacked together."""
    parts = schedule.get_sblock("parts")
    last = inline_others(schedule, _STAGES)
    row, panel, lane, block = schedule.get_loops(product)
    rows, panels = (int(schedule.get(loop).extent) for loop in (row, panel))
    *_, word, _, _ = schedule.get_loops(parts)
    count = int(schedule.get(word).extent)
    several = [n for n in _PANELS if n <= panels and n * rows <= _MOST_SUMS]
    together = sample(schedule, several or [1])
    words = sample(schedule, [n for n in _WORDS if count % n == 0])
    outer, panel = schedule.split(panel, [None, together])
    schedule.reorder(outer, block, row, panel, lane)
    schedule.parallel(outer)
    schedule.annotate(outer, FINISHED, 1)
    schedule.vectorize(lane)
    schedule.compute_at(parts, block, preserve_unit_loops=True)
    *_, of_row, of_panel, _, of_lane, word, group, byte = schedule.get_loops(parts)
    step, word = schedule.split(word, [None, words])
    schedule.reorder(step, word, group, byte, of_row, of_panel, of_lane)
    schedule.vectorize(of_lane)
    for loop in (row, panel, of_row, of_panel, word, group, byte):
        schedule.unroll(loop)
    extents = [int(schedule.get(loop).extent) for loop in schedule.get_loops(last)]
    if extents[-1] == panels * LANES and prod(extents[:-1]) == rows:
        schedule.reverse_compute_at(last, outer, preserve_unit_loops=True)
        vectorize(schedule, last)
    zeros = schedule.get_loops(schedule.decompose_reduction(parts, step))
    of_all = schedule.get_loops(schedule.decompose_reduction(product, block))
    for loop in (*zeros[-4:-1], *of_all[-3:-1]):
        schedule.unroll(loop)
    for loop in (lane, of_lane, zeros[-1], of_all[-1]):
        schedule.annotate(loop, FINISHED, 1)
    return [schedule]
