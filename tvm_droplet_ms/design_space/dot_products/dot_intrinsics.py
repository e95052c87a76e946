# SPDX-License-Identifier: Apache-2.0
"""Tensor intrinsics for dot products of bytes and of bfloat16.

Each intrinsic updates a vector of 32-bit lanes. All lanes share a few numbers, and each lane has as
many numbers of its own. The intrinsic adds the products of both to the lane. The byte intrinsics
are exact for all values that they accept:

- VNNI's ``vpdpbusd`` multiplies four unsigned bytes by four signed bytes, and does not saturate.
  A signed byte plus 128 is unsigned, and an unsigned byte minus 128 is signed. A second dot product
  subtracts the effect of this offset.
- ``vpmaddwd`` multiplies two pairs of words per lane. Bytes of either sign are widened to words.
  It is best to widen the shared numbers in advance: inside the loop, each pair takes two shuffles.
- ``vpmaddubsw``, which TVM's ``dot_16x4_avx512`` uses, multiplies two unsigned bytes by two signed
  bytes, and saturates: 2 * 255 * 127 does not fit in a signed word. It is exact for 7-bit weights.
  ``vpmaddwd`` then sums its results.

``vdpbf16ps`` multiplies two pairs of bfloat16 per lane and sums the products in float32. TVM has no
LLVM type for bfloat16, so a function in LLVM IR converts the vectors: see ``imported_code``.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from itertools import product
from typing import Any

from tvm import tirx
from tvm.s_tir import TensorIntrin
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as T

BYTES = ("int8", "uint8")
WORD = "int16"
SMALL_WEIGHTS = "tvm_droplet_ms.small_weights"
"""Kernel attribute that lists the parameter indices of the 7-bit weights."""

MOST_OF_SMALL = 64
"""Largest magnitude of a 7-bit weight: 2 * 255 * 64 is a signed word, 2 * 255 * 65 overflows."""

HALF = "bfloat16"
HALVES = (HALF,)

VNNI_DEPTH, WORDS_DEPTH, HALVES_DEPTH, SMALL_DEPTH = 4, 2, 2, 4
"""Number of products that one instruction adds to each lane."""
_SIGNS = -0x7F7F7F80
"""Four bytes of 128. XOR with them maps an unsigned byte u to the signed byte u - 128, and a signed
byte s to the unsigned byte s + 128."""

_BYTE_PRODUCTS = {4: "ssse3.pmadd.ub.sw.128", 8: "avx2.pmadd.ub.sw", 16: "avx512.pmaddubs.w.512"}
_WORD_PRODUCTS = {4: "sse2.pmadd.wd", 8: "avx2.pmadd.wd", 16: "avx512.pmaddw.d.512"}


@dataclass(frozen=True)
class Dot:
    """A dot-product intrinsic.

    - ``lanes``: the number of sums.
    - ``depth``: the products added to each sum: 4 with VNNI and for 7-bit weights, otherwise 2.
    - ``shared``, ``own``: the dtypes of the numbers that all lanes share, and of each lane's own.
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
        """The name under which the intrinsic is registered."""
        wide = "_wide" if self.is_wide else "_small" if self.is_small else ""
        return f"tvm_droplet_ms.dot_{self.lanes}x{self.depth}_{self.shared}_{self.own}{wide}"

    @property
    def stored(self) -> str:
        """The dtype in which the shared numbers are stored."""
        return WORD if self.is_wide else self.shared

    @property
    def sums(self) -> str:
        """The dtype of the sums."""
        return "float32" if self.own in HALVES else "int32"


@cache
def register_dots() -> None:
    """Register all intrinsics, so that tuning records from other machines replay.

    This includes the intrinsics of ``lane_sum``.
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
        _register(dot.name, partial(_function, dot))
    for lanes in (4, 8, 16):
        _register(lane_sum(lanes), partial(_sum, lanes))


def _register(name: str, make: Callable[..., tirx.PrimFunc]) -> None:
    """Register an intrinsic unless it is registered; ``make``: see ``_function``."""
    if TensorIntrin.get(name, allow_missing=True) is None:
        TensorIntrin.register(name, make(is_one=False), make(is_one=True))


def _function(dot: Dot, *, is_one: bool) -> tirx.PrimFunc:
    """Return the description of an intrinsic; ``is_one``: the implementation, in one statement."""
    with IRBuilder() as builder:
        with T.prim_func(s_tir=True):
            shared, own, sums = (
                T.arg(name, T.Buffer(shape, dtype, offset_factor=1))
                for name, shape, dtype in (
                    ("A", (dot.depth,), dot.stored),
                    ("B", (dot.lanes, dot.depth), dot.own),
                    ("C", (dot.lanes,), dot.sums),
                )
            )
            with T.sblock("root"):
                T.reads(
                    sums[0 : dot.lanes], shared[0 : dot.depth], own[0 : dot.lanes, 0 : dot.depth]
                )
                T.writes(sums[0 : dot.lanes])
                if is_one:
                    total = _addition(dot)(
                        dot,
                        shared.vload([0], f"{dot.stored}x{dot.depth}"),
                        own.vload([0, 0], f"{dot.own}x{dot.lanes * dot.depth}"),
                        sums.vload([0], f"{dot.sums}x{dot.lanes}"),
                    )
                    T.buffer_store(sums, total, [tirx.Ramp(0, 1, dot.lanes)])
                else:
                    with T.grid(dot.lanes, dot.depth) as (i, k), T.sblock("update"):
                        lane, step = T.axis.remap("SR", [i, k])
                        # ``unsafe_set_dtype`` casts widened values back to their original dtype.
                        one = shared[step].astype(dot.shared).astype(dot.sums)
                        other = own[lane, step].astype(dot.sums)
                        T.buffer_store(sums, sums[lane] + one * other, [lane])
        return builder.get()


def _addition(dot: Dot) -> Callable[[Dot, Any, Any, Any], Any]:
    if dot.own in HALVES:
        return _add_halves
    if dot.is_small:
        return _add_small
    return _add_bytes if dot.depth == VNNI_DEPTH else _add_words


def _add_bytes(dot: Dot, shared: Any, own: Any, sums: Any) -> Any:
    """Add the products with VNNI's ``vpdpbusd``."""
    words = f"int32x{dot.lanes}"
    shared = tirx.Broadcast(tirx.reinterpret("int32", shared), dot.lanes)
    own = tirx.reinterpret(words, own)
    signs, nothing = (
        tirx.Broadcast(tirx.const(value, "int32"), dot.lanes) for value in (_SIGNS, 0)
    )

    def added(total: Any, unsigned: Any, signed: Any) -> Any:
        # LLVM 22 takes vectors of bytes. Earlier versions took vectors of words.
        operands = [tirx.reinterpret(f"int8x{4 * dot.lanes}", one) for one in (unsigned, signed)]
        name = f"llvm.x86.avx512.vpdpbusd.{32 * dot.lanes}"
        return tirx.call_llvm_pure_intrin(words, name, total, *operands)

    if (dot.shared, dot.own) == ("uint8", "int8"):
        return added(sums, shared, own)
    if (dot.shared, dot.own) == ("int8", "uint8"):
        return added(sums, own, shared)
    if dot.own == "int8":
        # Do not flip the signs of the shared bytes: LLVM 22 does not terminate on that for Zen 4.
        return added(sums, own ^ signs, shared) - added(nothing, signs, shared)
    return added(sums, shared, own ^ signs) - added(nothing, shared, signs)


def _add_words(dot: Dot, shared: Any, own: Any, sums: Any) -> Any:
    """Add the products with ``vpmaddwd`` and an addition."""
    words = f"int16x{2 * dot.lanes}"
    pair = tirx.reinterpret("int32", tirx.Cast("int16x2", shared))
    shared = tirx.reinterpret(words, tirx.Broadcast(pair, dot.lanes))
    name = f"llvm.x86.{_WORD_PRODUCTS[dot.lanes]}"
    return sums + tirx.call_llvm_pure_intrin(
        f"int32x{dot.lanes}", name, shared, tirx.Cast(words, own)
    )


def _add_small(dot: Dot, shared: Any, own: Any, sums: Any) -> Any:
    """Add the products with ``vpmaddubsw``, then ``vpmaddwd`` with ones."""
    words = f"int16x{2 * dot.lanes}"
    four = tirx.Broadcast(tirx.reinterpret("int32", shared), dot.lanes)
    four = tirx.reinterpret(f"int8x{4 * dot.lanes}", four)
    pairs = tirx.call_llvm_pure_intrin(words, f"llvm.x86.{_BYTE_PRODUCTS[dot.lanes]}", four, own)
    ones = tirx.Broadcast(tirx.const(1, "int16"), 2 * dot.lanes)
    name = f"llvm.x86.{_WORD_PRODUCTS[dot.lanes]}"
    return sums + tirx.call_llvm_pure_intrin(f"int32x{dot.lanes}", name, pairs, ones)


def _add_halves(dot: Dot, shared: Any, own: Any, sums: Any) -> Any:
    """Call the function that ``imported_code`` defines.

    The call passes the operands' addresses, although the function does not need them. Otherwise
    ``BF16ComputeLegalize`` turns a bfloat16 buffer inside a kernel into float32 if nothing takes
    its address.
    """
    addresses = [load.source.data for load in (shared, own)]
    pair = tirx.Broadcast(tirx.reinterpret("int32", shared), dot.lanes)
    own = tirx.reinterpret(f"int32x{dot.lanes}", own)
    operands = (sums, pair, own, *addresses)
    return tirx.call_pure_extern(f"float32x{dot.lanes}", _function_name(dot), *operands)


def _function_name(dot: Dot) -> str:
    return f"tvm_droplet_ms_dot_bf16_{dot.lanes}"


def imported_code(dot: Dot) -> str | None:
    """Return the functions that an intrinsic calls, in LLVM IR; None if it calls none.

    A loop around the intrinsic carries them as ``pragma_import_llvm``, and TVM links them in.
    """
    if dot.own not in HALVES:
        return None
    sums, words, halves = (
        f"<{count} x {kind}>"
        for count, kind in ((dot.lanes, "float"), (dot.lanes, "i32"), (2 * dot.lanes, "bfloat"))
    )
    instruction = f"@llvm.x86.avx512bf16.dpbf16ps.{32 * dot.lanes}"
    # On one line, because each tuning record contains it.
    return " ".join(
        [
            f"declare {sums} {instruction}({sums}, {halves}, {halves})",
            f"define {sums} @{_function_name(dot)}",
            f"({sums} %sums, {words} %shared, {words} %own, ptr %c, ptr %d) {{",
            f"%a = bitcast {words} %shared to {halves}",
            f"%b = bitcast {words} %own to {halves}",
            f"%total = call {sums} {instruction}({sums} %sums, {halves} %a, {halves} %b)",
            f"ret {sums} %total }}",
        ]
    )


def lane_sum(lanes: int) -> str:
    """Return the name of the intrinsic that sums a vector of 4, 8 or 16 lanes by repeated halving.

    A sequential sum is a chain of dependent additions, and LLVM may not reorder float additions.
    """
    return f"tvm_droplet_ms.sum_of_{lanes}_lanes"


def _sum(lanes: int, *, is_one: bool) -> tirx.PrimFunc:
    """Add the sum of the lanes to a number; ``is_one``: in one statement."""
    with IRBuilder() as builder:
        with T.prim_func(s_tir=True):
            items, total = (
                T.arg(name, T.Buffer((extent,), "float32", offset_factor=1))
                for name, extent in (("A", lanes), ("C", 1))
            )
            with T.sblock("root"):
                T.reads(total[0:1], items[0:lanes])
                T.writes(total[0:1])
                if is_one:
                    halves = _halved(items.vload([0], f"float32x{lanes}"), lanes)
                    T.buffer_store(total, total[0] + halves, [0])
                else:
                    with T.grid(lanes) as i, T.sblock("update"):
                        lane = T.axis.remap("R", [i])
                        T.buffer_store(total, total[0] + items[lane], [0])
        return builder.get()


def _halved(vector: Any, lanes: int) -> Any:
    """Return the sum of a vector's lanes: repeatedly add the upper half to the lower half."""
    while lanes > 2:
        lanes //= 2
        kind = f"float32x{lanes}"
        vector = tirx.vectorlow(kind, vector) + tirx.vectorhigh(kind, vector)
    first, second = (tirx.Shuffle([vector], [tirx.const(n, "int32")]) for n in range(2))
    return first + second
