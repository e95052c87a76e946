# SPDX-License-Identifier: Apache-2.0
"""A pass that rounds float32 vectors to bfloat16 with AVX512_BF16 instructions.

TVM has no LLVM type for bfloat16, so a scheduled kernel rounds with an addition and a shift, and
stores half a cache line at a time. With AVX512_BF16, one instruction rounds two vectors into one:
ResNet-50's 1x1 layers in matrix tiles take 0.92 to 0.96 of the time.
"""

from collections.abc import Sequence
from typing import Any

from tvm_ffi import structural_equal
from tvm_ffi.structural import structural_map, structural_walk

import tvm
from tvm import tirx
from tvm.ir import IRModule, Range
from tvm.s_tir import SBlock, SBlockRealize
from tvm.sym import Analyzer
from tvm.target import Target
from tvm.tirx import BufferStore, For, ForKind, IntImm, PrimFunc, Var

from .dot_intrinsics import HALF
from .dot_rule import IMPORTED
from .dot_units import has_features
from .lane_vectors import LANES, LaneVector, UnknownError, mentions

_ONE, _TWO = "tvm_droplet_ms_round_one", "tvm_droplet_ms_round_two"
_FUNCTIONS = " ".join(
    [
        "declare <16 x bfloat> @llvm.x86.avx512bf16.cvtneps2bf16.512(<16 x float>)",
        "declare <32 x bfloat> @llvm.x86.avx512bf16.cvtne2ps2bf16.512(<16 x float>, <16 x float>)",
        f"define <16 x i16> @{_ONE}(<16 x float> %a) {{",
        "%r = call <16 x bfloat> @llvm.x86.avx512bf16.cvtneps2bf16.512(<16 x float> %a)",
        "%b = bitcast <16 x bfloat> %r to <16 x i16> ret <16 x i16> %b }",
        f"define <32 x i16> @{_TWO}(<16 x float> %a, <16 x float> %b) {{",
        "%r = call <32 x bfloat> @llvm.x86.avx512bf16.cvtne2ps2bf16.512(<16 x float> %b, "
        "<16 x float> %a)",
        "%c = bitcast <32 x bfloat> %r to <32 x i16> ret <32 x i16> %c }",
    ]
)
"""LLVM functions that round one vector, or two vectors, the first into the lower half."""

_BITS, _HALF_BITS, _SHIFT = "uint32", "uint16", 16


def rounded(value: Any) -> Any:
    """Round a float32 expression to bfloat16 with an addition and a shift.

    Ties round away from zero. TVM rounds ties to even (``BF16StorageLegalize``), which takes three
    more instructions per vector. Infinities and the NaNs that CPUs produce are preserved.
    """
    bits = tirx.reinterpret(_BITS, value) + tirx.const(1 << (_SHIFT - 1), _BITS)
    shifted = tirx.shift_right(bits, tirx.const(_SHIFT, _BITS))
    return tirx.reinterpret(HALF, shifted.astype(_HALF_BITS))


def RoundVectors(target: Target) -> tvm.transform.Pass:
    """Make a pass that rounds stored vectors with AVX512_BF16's instruction.

    The pass applies to scheduled modules, to vectors of 16 that store the result of ``rounded``.
    The instruction rounds ties to even. The pass changes nothing on targets without the feature,
    and skips vectors with unknown operators.
    """
    is_offered = has_features(target, "avx512f", "avx512bf16")

    def run(mod: IRModule, _context: tvm.transform.PassContext) -> IRModule:
        changed = IRModule(dict(mod.functions_items()), attrs=mod.attrs)
        for variable, function in mod.functions_items():
            if is_offered and isinstance(function, PrimFunc):
                changed.update_func(variable, _rounding(function))
        return changed

    return tvm.transform.module_pass(run, opt_level=0, name="RoundVectors")


def _rounding(function: PrimFunc) -> PrimFunc:
    loops: list[For] = []
    structural_walk(function.body, (For, loops.append))
    if not any(_rounded_of(loop) is not None for loop in loops):
        return function
    analyzer = Analyzer()
    for loop in loops:
        analyzer.bind(loop.loop_var, Range.from_min_extent(loop.min, loop.extent))
    changed: dict[Var, Any] = {}
    for loop in sorted(loops, key=_is_pairs, reverse=True):
        inner = loop.body if _is_pairs(loop) else loop
        if _rounded_of(inner) is None or inner.loop_var in changed:
            continue
        try:
            changed[loop.loop_var] = (_pairs if _is_pairs(loop) else _single)(loop, analyzer)
            changed.setdefault(inner.loop_var, None)
        except UnknownError:
            continue
    new = {variable: loop for variable, loop in changed.items() if loop is not None}

    def replace(loop: For) -> Any:
        return new.get(loop.loop_var, loop)

    return function.with_body(structural_map(function.body, (For, replace)))


def _is_pairs(loop: For) -> bool:
    """Return whether a loop has an even extent and contains only one rounded vector."""
    is_even = isinstance(loop.extent, IntImm) and int(loop.extent) % 2 == 0
    is_plain = loop.kind in (ForKind.SERIAL, ForKind.UNROLLED) and _is_from_0(loop)
    if not is_even or not is_plain or _rounded_of(loop.body) is None:
        return False
    return not mentions(loop.body.body.predicate, loop.loop_var)


def _rounded_of(loop: Any) -> Any:
    """Return the expression that a vectorized loop rounds and stores; None for other statements."""
    if not isinstance(loop, For) or loop.kind != ForKind.VECTORIZED:
        return None
    realize = loop.body
    if not (isinstance(loop.extent, IntImm) and int(loop.extent) == LANES and _is_from_0(loop)):
        return None
    if not isinstance(realize, SBlockRealize) or not isinstance(realize.block.body, BufferStore):
        return None
    block = realize.block
    is_plain = block.init is None and not len(block.alloc_buffers) and not len(block.match_buffers)
    if not is_plain or mentions(realize.predicate, loop.loop_var):
        return None
    value = block.body.value
    try:
        inside = value.args[0].value.a.a.args[0]
    except (AttributeError, IndexError):
        return None
    is_rounded = str(inside.ty.dtype) == "float32" and structural_equal(value, rounded(inside))
    return inside if is_rounded else None


def _is_from_0(loop: For) -> bool:
    return isinstance(loop.min, IntImm) and int(loop.min) == 0


def _single(loop: For, analyzer: Analyzer) -> For:
    """Rewrite a loop to round one vector."""
    vector = LaneVector(loop, analyzer)
    value = vector.of(_rounded_of(loop))
    return _loop(loop, loop.loop_var, 1, _ONE, [value], [vector])


def _pairs(loop: For, analyzer: Analyzer) -> For:
    """Rewrite a loop to round two vectors at a time into one store."""
    count = int(loop.extent) // 2
    half = Var(loop.loop_var.name, loop.loop_var.ty)
    analyzer.bind(half, Range.from_min_extent(loop.min, tirx.const(count, str(half.ty.dtype))))
    vectors = [
        LaneVector(loop.body, analyzer, {loop.loop_var: half * 2 + number}) for number in (0, 1)
    ]
    one, two = (vector.places() for vector in vectors)
    *outer, last = (analyzer.simplify(b - a) for a, b in zip(one, two, strict=True))
    steps = [int(each) if isinstance(each, IntImm) else -1 for each in (*outer, last)]
    if any(steps[:-1]) or steps[-1] != LANES:
        raise UnknownError
    values = [vector.of(_rounded_of(loop.body)) for vector in vectors]
    return _loop(loop, half, count, _TWO, values, vectors)


def _loop(
    loop: For,
    variable: Var,
    extent: int,
    function: str,
    values: Sequence[Any],
    vectors: Sequence[LaneVector],
) -> For:
    """Build a loop that rounds ``values`` and stores them from the first vector's place on."""
    store, places = vectors[0].store, vectors[0].places()
    lanes = LANES * len(vectors)
    halves = tirx.call_pure_extern(f"{_HALF_BITS}x{lanes}", function, *values)
    one = tirx.const(1, str(places[-1].ty.dtype))
    at = [*places[:-1], tirx.Ramp(places[-1], one, lanes)]
    body = BufferStore(store.buffer, tirx.reinterpret(f"{HALF}x{lanes}", halves), at)
    written = [Range.from_min_extent(each, one) for each in places[:-1]]
    written.append(Range.from_min_extent(places[-1], one * lanes))
    reads = [region for vector in vectors for region in vector.reads()]
    writes = [tirx.BufferRegion(store.buffer, written)]
    block = SBlock([], reads, writes, vectors[0].name, body)
    realize = SBlockRealize([], vectors[0].predicate, block)
    count = tirx.const(extent, str(variable.ty.dtype))
    # The indices of a vector do not contain its loop variable.
    kind = ForKind.SERIAL if loop.kind == ForKind.VECTORIZED else loop.kind
    annotations = {**dict(loop.annotations or {}), IMPORTED: _FUNCTIONS}
    return For(variable, loop.min, count, kind, realize, loop.thread_binding, annotations)
