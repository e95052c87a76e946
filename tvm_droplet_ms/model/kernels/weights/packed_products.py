# SPDX-License-Identifier: Apache-2.0
"""Products of packed low-bit weights: with a few rows of floats, or with rows of bytes (VNNI).

Reading the weights from memory is the bottleneck, so they are unpacked in registers. A block of a
float row is ``scale * sum(x * (number - zero))``. Separate sums of ``x * number`` and ``x`` would
cancel: the mean of a row times a large zero point loses digits.

Each block of a byte row has its own scale, as in ``accuracy_level=4`` of ONNX Runtime's
``MatMulNBits`` (``mlas/lib/sqnbitgemm.h``). The sums of a block are exact. The kernel reads weights
at memory bandwidth, so there is nothing to search.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from tvm import te, tirx, topi
from tvm.s_tir import Schedule
from tvm.s_tir.schedule import SBlockRV
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as T

from ....design_space.register_tiles.tiling import FINISHED, sample
from ...scheduled import whole
from ..attention.stages import inline_others, vectorize
from ..kernel_pass import compute_stage
from .packing import LANES, TOGETHER, WORD

NARROW_RULE = "tvm_droplet_ms.narrow_product"
"""The schedule rule that the kernel requests."""

_STAGES = ("parts", "product")
_PANELS, _WORDS = (2, 4, 8), (1, 2, 4)
"""Candidate numbers of panels, and of words in each, that are unpacked together."""

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

    parts = compute_stage((rows, panels, blocks, LANES), part, "parts")
    product = te.compute(
        (rows, panels, LANES),
        lambda m, n, lane: te.sum(parts[m, n, b, lane] * scales[n, b, lane], axis=[b]),
        name="product",
        attrs={"schedule_rule": NARROW_RULE},
    )
    result = compute_stage(
        (rows, panels * LANES), lambda m, n: product[m, n // LANES, n % LANES], "narrow"
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


_DOT = "llvm.x86.avx512.vpdpbusd.512"
_FEW_ROWS, _TILE_ROWS, _MOST_BYTE_SUMS = 7, 4, 4
"""Maximum rows that are computed together as one tile, rows of a tile for more rows, and maximum
vectors of sums for few rows (rows times panels), the fastest measured."""


def byte_product(types: Sequence[Any], bits: int) -> tirx.PrimFunc:
    """Make the scheduled kernel.

    - ``types``: the tensor types of the byte rows, (rows, depth); of the scale and the sum of each
      of their blocks, (rows, blocks); and of the words, scales and zeros of ``Packed``.
    - ``bits``: the bits of a number.

    The kernel returns values of shape (rows, columns), with the columns of all panels.
    """
    shapes = [[int(extent) for extent in kind.shape] for kind in types]
    (count, depth), (panels, blocks, *_) = shapes[0], shapes[3]
    rows = count if count <= _FEW_ROWS else _TILE_ROWS
    most = max(rows, _MOST_BYTE_SUMS if rows == count else 2 * rows)
    together = max(n for n in (1, 2, 4) if n * rows <= most and panels % n == 0)
    with IRBuilder() as builder:
        with T.prim_func(s_tir=True):
            arguments = [
                T.arg(name, T.Buffer(shape, str(kind.dtype)))
                for name, shape, kind in zip(_NAMES, shapes, types, strict=True)
            ]
            of_result = (count, panels * LANES)
            result = T.arg("result", T.Buffer(of_result, "float32"))
            tile = _Tile((*arguments, result), rows, together, depth // blocks, bits)
            # TVM looks for a block inside the outermost one (``split_layout_rewrite_preproc.cc``).
            with T.sblock("root"), T.sblock("byte_product"):
                T.reads(*(whole(*each) for each in zip(arguments, shapes, strict=True)))
                T.writes(whole(result, of_result))
                with T.parallel(0, panels // together) as outer:
                    with T.serial(0, -(-count // rows)) as step:
                        # The last step recomputes some rows of the previous step.
                        first = T.min(step * rows, count - rows)
                        tile.compute(first, outer * together, blocks)
        kernel = builder.get()
    return kernel.with_attrs({"tirx.noalias": True, "tirx.is_scheduled": True})


_NAMES = ("x", "of_blocks", "sums", "words", "scales", "zeros")
_VECTOR = tirx.Ramp(0, 1, LANES)


def _wide(value: Any) -> Any:
    return tirx.Broadcast(value, LANES)


@dataclass(frozen=True)
class _Tile:
    """A tile of rows times panels, whose sums are kept in registers.

    ``buffers``: the arguments and the result of the kernel. ``rows``, ``panels``: the extents of
    the tile. ``block``: the rows of the weights in a block. ``bits``: the bits of a number.
    """

    buffers: tuple[Any, ...]
    rows: int
    panels: int
    block: int
    bits: int

    def compute(self, row: Any, panel: Any, blocks: int) -> None:
        """Emit the statements that compute the tile from a first row and a first panel on."""
        _, of_blocks, sums, words, scales, zeros, result = self.buffers
        total, part = (
            T.alloc_buffer((self.rows, self.panels, LANES), kind, scope="local")
            for kind in ("float32", "int32")
        )
        each = [(m, p) for m in range(self.rows) for p in range(self.panels)]
        for m, p in each:
            T.buffer_store(total, _wide(tirx.const(0, "float32")), [m, p, _VECTOR])
        with T.serial(0, blocks) as block:
            for m, p in each:
                T.buffer_store(part, _wide(tirx.const(0, "int32")), [m, p, _VECTOR])
            with T.serial(0, self.block * self.bits // WORD) as word:
                for p in range(self.panels):
                    first = block * self.block + word * (WORD // self.bits)
                    self._add_word(part, p, words[panel + p, block, word, _VECTOR], row, first)
            for m, p in each:
                at = (panel + p, block, _VECTOR)
                value = part[m, p, _VECTOR].astype(f"float32x{LANES}")
                # Both are exact, and so is their difference.
                value = value - _wide(sums[row + m, block]) * zeros[at]
                value = _wide(of_blocks[row + m, block]) * scales[at] * value
                value = total[m, p, _VECTOR] + value
                T.buffer_store(total, value, [m, p, _VECTOR])
        for m, p in each:
            column = tirx.Ramp((panel + p) * LANES, 1, LANES)
            T.buffer_store(result, total[m, p, _VECTOR], [row + m, column])

    def _add_word(self, part: Any, p: int, packed: Any, row: Any, first: Any) -> None:
        """Add the products of a vector of words, four rows of the weights at a time.

        ``first``: the first of these rows.
        """
        for group in range(8 // self.bits):
            own = packed >> _wide(tirx.const(group * self.bits, "int32"))
            own = tirx.reinterpret("int8x64", own & _wide(_mask(self.bits)))
            for m in range(self.rows):
                four = self.buffers[0].vload(
                    [row + m, first + group * TOGETHER], f"int8x{TOGETHER}"
                )
                four = tirx.reinterpret("int8x64", _wide(tirx.reinterpret("int32", four)))
                dot = tirx.call_llvm_pure_intrin(
                    f"int32x{LANES}", _DOT, part[m, p, _VECTOR], own, four
                )
                T.buffer_store(part, dot, [m, p, _VECTOR])


def _mask(bits: int) -> Any:
    """Return a word whose bytes each have the lowest ``bits`` bits set."""
    ones = bytes([(1 << bits) - 1] * TOGETHER)
    return tirx.const(int.from_bytes(ones, "little", signed=True), "int32")
