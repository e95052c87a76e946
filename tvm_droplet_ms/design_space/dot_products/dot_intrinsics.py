# SPDX-License-Identifier: Apache-2.0
"""Tensor intrinsics for dot products of bytes, and of bfloat16.

One of them adds, to each of some lanes of 32 bits, the products of a few numbers that all lanes
share and as many of the lane's own. Those of bytes are exact for all values that they are for:

- VNNI's ``vpdpbusd`` multiplies four unsigned bytes with four signed ones, and does not saturate.
  A signed byte plus 128 is unsigned, and an unsigned one minus 128 is signed; what that adds is
  subtracted, by a second dot product.
- ``vpmaddwd`` multiplies two words each, which bytes of either sign are widened to. What all lanes
  share is best widened before: in the loop that takes two shuffles for each two numbers.
- ``vpmaddubsw``, of which TVM's ``dot_16x4_avx512`` consists, multiplies two unsigned bytes with
  two signed ones, and saturates: 2 * 255 * 127 is no signed word. It is exact for weights of 7
  bits, and ``vpmaddwd`` adds up what it gives.

``vdpbf16ps`` multiplies two bfloat16 each and adds them up in float32. TVM has no LLVM type for
bfloat16, so a function in LLVM's own language makes vectors of it: see ``imported_code``.
"""

from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Any

from tvm import tirx
from tvm.s_tir import TensorIntrin
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as T

from .lane_sums import register_lane_sums

BYTES = ("int8", "uint8")
WORD = "int16"
SMALL_WEIGHTS = "tvm_droplet_ms.small_weights"
"""The attribute of a kernel with the numbers of its weights that have 7 bits."""

MOST_OF_SMALL = 64
"""The largest magnitude of such a weight: 2 * 255 * 64 is a signed word, 2 * 255 * 65 is none."""

HALF = "bfloat16"
HALVES = (HALF,)

VNNI_DEPTH, WORDS_DEPTH, HALVES_DEPTH, SMALL_DEPTH = 4, 2, 2, 4
"""The products that an instruction adds to each lane."""
_SIGNS = -0x7F7F7F80
"""Four bytes of 128: by exclusive or, they make signed bytes of unsigned ones minus 128, and
unsigned bytes of signed ones plus 128."""

_BYTE_PRODUCTS = {4: "ssse3.pmadd.ub.sw.128", 8: "avx2.pmadd.ub.sw", 16: "avx512.pmaddubs.w.512"}
_WORD_PRODUCTS = {4: "sse2.pmadd.wd", 8: "avx2.pmadd.wd", 16: "avx512.pmaddw.d.512"}


@dataclass(frozen=True)
class Dot:
    """An intrinsic.

    - ``lanes``: the sums that it adds to.
    - ``depth``: the products that it adds to each; 4 with VNNI, or else 2.
    - ``shared``, ``own``: the types of the numbers that all lanes share, and of those that they do
      not.
    - ``is_wide``: whether the shared bytes are stored as words.
    - ``is_small``: whether the lanes' own bytes have 7 bits.
    """

    lanes: int
    depth: int
    shared: str
    own: str
    is_wide: bool = False
    is_small: bool = False

    @property
    def name(self) -> str:
        """The name under which it is registered."""
        wide = "_wide" if self.is_wide else "_small" if self.is_small else ""
        return f"tvm_droplet_ms.dot_{self.lanes}x{self.depth}_{self.shared}_{self.own}{wide}"

    @property
    def stored(self) -> str:
        """The type that the shared numbers are stored in."""
        return WORD if self.is_wide else self.shared

    @property
    def sums(self) -> str:
        """The type that is added up in."""
        return "float32" if self.own in HALVES else "int32"


@cache
def register_dots() -> None:
    """Register all intrinsics, so that records replay that another machine has written.

    Those of ``lane_sums`` too.
    """
    dots = [
        Dot(lanes, depth, shared, own, is_wide)
        for dtypes, depth, is_wide in (
            (BYTES, VNNI_DEPTH, False),
            (BYTES, WORDS_DEPTH, False),
            (BYTES, WORDS_DEPTH, True),
            (HALVES, HALVES_DEPTH, False),
        )
        for lanes, shared, own in product(_WORD_PRODUCTS, dtypes, dtypes)
    ]
    dots += [Dot(lanes, SMALL_DEPTH, "uint8", "int8", is_small=True) for lanes in _BYTE_PRODUCTS]
    for dot in dots:
        if TensorIntrin.get(dot.name, allow_missing=True) is None:
            TensorIntrin.register(dot.name, _description(dot), _implementation(dot))
    register_lane_sums()


def _description(dot: Dot) -> tirx.PrimFunc:
    with IRBuilder() as builder:
        with T.prim_func(s_tir=True):
            shared, own, sums = _arguments(dot)
            with T.sblock("root"):
                _regions(dot, shared, own, sums)
                with T.grid(dot.lanes, dot.depth) as (i, k), T.sblock("update"):
                    lane, step = T.axis.remap("SR", [i, k])
                    # ``unsafe_set_dtype`` casts what is stored wider to what it was.
                    one = shared[step].astype(dot.shared).astype(dot.sums)
                    other = own[lane, step].astype(dot.sums)
                    T.buffer_store(sums, sums[lane] + one * other, [lane])
        return builder.get()


def _implementation(dot: Dot) -> tirx.PrimFunc:
    add = _add_bytes if dot.depth == VNNI_DEPTH else _add_words
    if dot.own in HALVES:
        add = _add_halves
    if dot.is_small:
        add = _add_small
    with IRBuilder() as builder:
        with T.prim_func(s_tir=True):
            shared, own, sums = _arguments(dot)
            with T.sblock("root"):
                _regions(dot, shared, own, sums)
                total = add(
                    dot,
                    shared.vload([0], f"{dot.stored}x{dot.depth}"),
                    own.vload([0, 0], f"{dot.own}x{dot.lanes * dot.depth}"),
                    sums.vload([0], f"{dot.sums}x{dot.lanes}"),
                )
                T.buffer_store(sums, total, [tirx.Ramp(0, 1, dot.lanes)])
        return builder.get()


def _arguments(dot: Dot) -> tuple[Any, Any, Any]:
    shapes = ((dot.depth,), dot.stored), ((dot.lanes, dot.depth), dot.own), ((dot.lanes,), dot.sums)
    return tuple(
        T.arg(name, T.Buffer(shape, dtype, offset_factor=1))
        for name, (shape, dtype) in zip("ABC", shapes, strict=True)
    )


def _regions(dot: Dot, shared: Any, own: Any, sums: Any) -> None:
    T.reads(sums[0 : dot.lanes], shared[0 : dot.depth], own[0 : dot.lanes, 0 : dot.depth])
    T.writes(sums[0 : dot.lanes])


def _add_bytes(dot: Dot, shared: Any, own: Any, sums: Any) -> Any:
    """VNNI's instruction."""
    words = f"int32x{dot.lanes}"
    shared = tirx.Broadcast(tirx.reinterpret("int32", shared), dot.lanes)
    own = tirx.reinterpret(words, own)
    signs, nothing = (
        tirx.Broadcast(tirx.const(value, "int32"), dot.lanes) for value in (_SIGNS, 0)
    )

    def added(total: Any, unsigned: Any, signed: Any) -> Any:
        # LLVM 22 takes vectors of bytes, where earlier ones took those of words.
        operands = [tirx.reinterpret(f"int8x{4 * dot.lanes}", one) for one in (unsigned, signed)]
        name = f"llvm.x86.avx512.vpdpbusd.{32 * dot.lanes}"
        return tirx.call_llvm_pure_intrin(words, name, total, *operands)

    if (dot.shared, dot.own) == ("uint8", "int8"):
        return added(sums, shared, own)
    if (dot.shared, dot.own) == ("int8", "uint8"):
        return added(sums, own, shared)
    if dot.own == "int8":
        # The signs of what is shared are not changed: LLVM 22 does not end there for Zen 4.
        return added(sums, own ^ signs, shared) - added(nothing, signs, shared)
    return added(sums, shared, own ^ signs) - added(nothing, shared, signs)


def _add_words(dot: Dot, shared: Any, own: Any, sums: Any) -> Any:
    """``vpmaddwd`` and an addition."""
    words = f"int16x{2 * dot.lanes}"
    pair = tirx.reinterpret("int32", tirx.Cast("int16x2", shared))
    shared = tirx.reinterpret(words, tirx.Broadcast(pair, dot.lanes))
    name = f"llvm.x86.{_WORD_PRODUCTS[dot.lanes]}"
    return sums + tirx.call_llvm_pure_intrin(
        f"int32x{dot.lanes}", name, shared, tirx.Cast(words, own)
    )


def _add_small(dot: Dot, shared: Any, own: Any, sums: Any) -> Any:
    """``vpmaddubsw``, and ``vpmaddwd`` with ones."""
    words = f"int16x{2 * dot.lanes}"
    four = tirx.Broadcast(tirx.reinterpret("int32", shared), dot.lanes)
    four = tirx.reinterpret(f"int8x{4 * dot.lanes}", four)
    pairs = tirx.call_llvm_pure_intrin(words, f"llvm.x86.{_BYTE_PRODUCTS[dot.lanes]}", four, own)
    ones = tirx.Broadcast(tirx.const(1, "int16"), 2 * dot.lanes)
    name = f"llvm.x86.{_WORD_PRODUCTS[dot.lanes]}"
    return sums + tirx.call_llvm_pure_intrin(f"int32x{dot.lanes}", name, pairs, ones)


def _add_halves(dot: Dot, shared: Any, own: Any, sums: Any) -> Any:
    """A call of the function of ``imported_code``.

    It has the addresses of the operands, which it does not need: a buffer of bfloat16 inside of a
    kernel whose address nothing takes becomes one of float32 (``BF16ComputeLegalize``).
    """
    addresses = [load.source.data for load in (shared, own)]
    pair = tirx.Broadcast(tirx.reinterpret("int32", shared), dot.lanes)
    own = tirx.reinterpret(f"int32x{dot.lanes}", own)
    operands = (sums, pair, own, *addresses)
    return tirx.call_pure_extern(f"float32x{dot.lanes}", _function(dot), *operands)


def _function(dot: Dot) -> str:
    return f"tvm_droplet_ms_dot_bf16_{dot.lanes}"


def imported_code(dot: Dot) -> str | None:
    """The functions that a kernel with an intrinsic calls, in LLVM's language; None for none.

    A loop around it has them as ``pragma_import_llvm``, by which TVM puts them in.
    """
    if dot.own not in HALVES:
        return None
    sums, words, halves = (
        f"<{count} x {kind}>"
        for count, kind in ((dot.lanes, "float"), (dot.lanes, "i32"), (2 * dot.lanes, "bfloat"))
    )
    instruction = f"@llvm.x86.avx512bf16.dpbf16ps.{32 * dot.lanes}"
    # On one line, because it is in each record of a schedule.
    return " ".join(
        [
            f"declare {sums} {instruction}({sums}, {halves}, {halves})",
            f"define {sums} @{_function(dot)}",
            f"({sums} %sums, {words} %shared, {words} %own, ptr %c, ptr %d) {{",
            f"%a = bitcast {words} %shared to {halves}",
            f"%b = bitcast {words} %own to {halves}",
            f"%total = call {sums} {instruction}({sums} %sums, {halves} %a, {halves} %b)",
            f"ret {sums} %total }}",
        ]
    )
