# SPDX-License-Identifier: Apache-2.0
"""A pass that rounds float32 vectors to bfloat16 with AVX512_BF16 instructions.

TVM has no LLVM type for bfloat16, so a scheduled kernel rounds with an addition and a shift, and
stores half a cache line at a time. With AVX512_BF16, one instruction rounds two vectors into one.
The pass rewrites vectorized loops as vector expressions, because it has no TVM operator.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from tvm_ffi import structural_equal
from tvm_ffi.structural import structural_map

import tvm
from tvm import tirx
from tvm.ir import Range
from tvm.ir.expr import Call, TensorLoad
from tvm.s_tir import SBlock, SBlockRealize
from tvm.sym import Analyzer
from tvm.target import Target
from tvm.tirx import BufferStore, For, ForKind, IntImm, PrimFunc, Var
from tvm.tirx.transform import prim_func_pass

from ..trees import mentions, nodes_in
from .dot_intrinsics import HALF
from .dot_rule import IMPORTED
from .find_dot import has_features

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


LANES = 16
"""Number of float32 lanes in a vector."""


_ELEMENTWISE = (
    tirx.Add, tirx.Sub, tirx.Mul, tirx.Div, tirx.Min, tirx.Max, tirx.LShift, tirx.RShift,
    tirx.LT, tirx.LE, tirx.GT, tirx.GE, tirx.EQ, tirx.NE, tirx.And, tirx.Or,
)  # fmt: skip


_CALLS = {f"tirx.{name}" for name in "reinterpret exp tanh sqrt round floor fabs".split()}


class UnknownError(Exception):
    """Raised when an expression has no vector form in this module."""


class LaneVector:
    """The vector form of a loop: its block computed in all lanes at once.

    - ``loop``: a loop of ``LANES`` iterations around a block that consists of one store.
    - ``analyzer``: an analyzer with the ranges of all loops.
    - ``outer``: values to substitute for variables of outer loops.

    All methods raise ``UnknownError`` if an expression has no vector form.
    """

    def __init__(
        self, loop: For, analyzer: Analyzer, outer: Mapping[Var, Any] | None = None
    ) -> None:
        realize = loop.body
        self._lane, self._analyzer = loop.loop_var, analyzer
        values = [_substituted(value, outer or {}) for value in realize.iter_values]
        axes = zip(realize.block.iter_vars, values, strict=True)
        self._axes = {axis.var: value for axis, value in axes}
        self._block = realize.block
        self.name = str(realize.block.name_hint)
        self.store: BufferStore = realize.block.body
        self.predicate = realize.predicate

    def of(self, value: Any) -> Any:
        """Return the vector form of an expression of the block."""
        found = self._vector(_substituted(value, self._axes))
        if self._mentions(found):
            raise UnknownError
        return found

    def places(self) -> list[Any]:
        """Return the store indices of the first lane; the other lanes follow contiguously."""
        return self._first(self.store.indices)

    def reads(self) -> list[Any]:
        """Return the regions that all lanes together read."""
        found = []
        for region in self._block.reads:
            ranges = []
            for each in region.region:
                start = _substituted(each.min, self._axes)
                low, high = (self._at(start, lane) for lane in (0, LANES - 1))
                grown = self._analyzer.simplify(high - low)
                if not isinstance(grown, IntImm) or not isinstance(each.extent, IntImm):
                    raise UnknownError
                count = tirx.const(int(grown) + int(each.extent), str(low.ty.dtype))
                ranges.append(Range.from_min_extent(low, count))
            found.append(tirx.BufferRegion(region.source, ranges))
        return found

    def _at(self, value: Any, lane: int) -> Any:
        number = tirx.const(lane, str(self._lane.ty.dtype))
        return self._analyzer.simplify(_substituted(value, {self._lane: number}))

    def _first(self, indices: Sequence[Any]) -> list[Any]:
        """Return the indices of the first lane; lanes must be contiguous along the last axis."""
        found = [_substituted(index, self._axes) for index in indices]
        low = [self._at(index, 0) for index in found]
        grown = [
            self._analyzer.simplify(index - base) for index, base in zip(found, low, strict=True)
        ]
        lane = self._analyzer.simplify(self._lane)
        if any(self._mentions(each) for each in grown[:-1]):
            raise UnknownError
        if not structural_equal(grown[-1], lane):
            raise UnknownError
        return low

    def _mentions(self, value: Any) -> bool:
        return mentions(value, self._lane)

    def _vector(self, value: Any) -> Any:
        """Build the vector form of an expression over the loop variable."""
        if not self._mentions(value):
            return tirx.Broadcast(value, LANES)
        if value.same_as(self._lane):
            zero, one = (tirx.const(n, str(value.ty.dtype)) for n in (0, 1))
            return tirx.Ramp(zero, one, LANES)
        if isinstance(value, TensorLoad):
            places = [self._analyzer.simplify(each) for each in value.indices]
            if not any(map(self._mentions, places)):
                return tirx.Broadcast(tirx.BufferLoad(value.source, places), LANES)
            *outer, last = self._first(value.indices)
            one = tirx.const(1, str(last.ty.dtype))
            return tirx.BufferLoad(value.source, [*outer, tirx.Ramp(last, one, LANES)])
        if isinstance(value, _ELEMENTWISE):
            return type(value)(self._vector(value.a), self._vector(value.b))
        if isinstance(value, tirx.Cast):
            return tirx.Cast(_lanes_of(value), self._vector(value.value))
        if isinstance(value, tirx.Select):
            return tirx.Select(
                *map(self._vector, (value.condition, value.true_value, value.false_value))
            )
        if isinstance(value, Call) and str(getattr(value.op, "name", "")) in _CALLS:
            return tirx.call_intrin(_lanes_of(value), value.op, *map(self._vector, value.args))
        raise UnknownError


def _lanes_of(value: Any) -> str:
    return f"{value.ty.dtype}x{LANES}"


def _substituted(value: Any, variables: Mapping[Var, Any]) -> Any:
    if not variables:
        return value
    return structural_map(value, (Var, lambda each: variables.get(each, each)))


def RoundVectors(target: Target) -> tvm.transform.Pass:
    """Make a pass that rounds stored vectors with AVX512_BF16's instruction.

    The pass applies to scheduled modules, to vectors of 16 that store the result of ``rounded``.
    The instruction rounds ties to even. The pass changes nothing on targets without the feature,
    and skips vectors with unknown operators.
    """
    is_offered = has_features(target, "avx512f", "avx512bf16")

    def run(function: PrimFunc, _mod: Any, _context: Any) -> PrimFunc:
        return _rounding(function) if is_offered else function

    return prim_func_pass(run, opt_level=0, name="RoundVectors")


def _rounding(function: PrimFunc) -> PrimFunc:
    loops = nodes_in(function.body, For)
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
