# SPDX-License-Identifier: Apache-2.0
"""A CPU's instructions for dot products, and the blocks that they compute."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from tvm_ffi.structural import structural_map

from tvm import tirx
from tvm.ir import Range
from tvm.ir.expr import TensorLoad
from tvm.ir.prim.expr import Cast
from tvm.sym import Analyzer
from tvm.target import Target
from tvm.target.codegen import target_has_features
from tvm.tirx import IntImm, IterVar

from ..factorizations import divisors
from ..trees import added_product
from .dot_intrinsics import BYTES, HALVES, HALVES_DEPTH, SMALL_DEPTH, VNNI_DEPTH, WORDS_DEPTH, Dot

VNNI = ("avx512vnni", "avx512vl")
"""CPU features for byte dot products in 512-bit vectors."""


@dataclass(frozen=True)
class DotUnit:
    """The dot-product instructions of a CPU for some dtypes.

    - ``lanes``: the numbers of lanes of its vectors, the longest first.
    - ``depth``: see ``Dot``.
    - ``registers``: the number of vector registers.
    - ``dtypes``: the dtypes of the factors.
    - ``is_small``: whether they accept only unsigned bytes with signed 7-bit bytes.
    """

    lanes: tuple[int, ...]
    depth: int
    registers: int
    dtypes: tuple[str, ...] = BYTES
    is_small: bool = False

    @property
    def widens(self) -> bool:
        """Whether bytes must be widened to words, as on CPUs without VNNI."""
        return self.dtypes == BYTES and self.depth == WORDS_DEPTH

    @property
    def of_small(self) -> "DotUnit":
        """The unit for 7-bit weights."""
        return replace(self, depth=SMALL_DEPTH, is_small=True)


def dot_unit(target: Target) -> DotUnit | None:
    """Return the byte unit of a target; None unless it is an x86 CPU with AVX2."""

    def has(*features: str) -> bool:
        return has_features(target, *features)

    if not has("avx2"):
        return None
    if has(*VNNI):
        return DotUnit((16, 8, 4), VNNI_DEPTH, 32)
    if has("avxvnni"):
        return DotUnit((8, 4), VNNI_DEPTH, 16)
    if has("avx512bw", "avx512vl"):
        return DotUnit((16, 8, 4), WORDS_DEPTH, 32)
    return DotUnit((8, 4), WORDS_DEPTH, 16)


def half_unit(target: Target) -> DotUnit | None:
    """Return the bfloat16 unit of a target; None for CPUs without AVX512_BF16."""
    if not has_features(target, "avx512bf16", "avx512vl"):
        return None
    return DotUnit((16, 8, 4), HALVES_DEPTH, 32, HALVES)


def has_features(target: Target, *features: str) -> bool:
    """Return whether a target is a CPU with all of the given features."""
    return target.kind.name == "llvm" and bool(target_has_features(list(features), target))


@dataclass(frozen=True)
class FoundDot:
    """The dot products of a block.

    - ``dot``: the intrinsic.
    - ``lane``, ``step``: the positions, among the block's axes, of the axis over the lanes and of
      the axis over the products of one lane.
    - ``shared``, ``weights``: the buffer that all lanes share, and the buffer of each lane's own
      numbers.
    - ``packed_axes``: the axes of the weights over the lanes and over the products; None if the
      weights are already packed, with both axes innermost.
    - ``uses``: how many times the block reads each weight.
    - ``vectors``: the number of consecutive vectors that are multiplied by the same shared numbers:
      all vectors, or the vectors of a group.
    """

    dot: Dot
    lane: int
    step: int
    shared: Any
    weights: Any
    packed_axes: tuple[int, int] | None
    uses: float
    vectors: int


def find_dot(block: Any, unit: DotUnit) -> FoundDot | None:
    """Find the dot products of a block; None if it has none that `unit` computes.

    The block sums products of two bytes in int32, or of two bfloat16 in float32. All lanes share
    the first factor, so activations come before weights, as in TVM's operators.
    """
    factors = factors_of(block, unit)
    axes = list(block.iter_vars)
    if factors is None or not all(isinstance(axis.dom.extent, IntImm) for axis in axes):
        return None
    shared, own = factors
    uses = prod(_extent(axis) for axis in axes) / prod(map(int, own.source.shape))
    for lane, step, lanes in _axes(axes, unit):
        types = str(shared.source.dtype), str(own.source.dtype)
        dot = Dot(lanes, unit.depth, *types, is_small=unit.is_small)
        steps = _Steps(axes, lane, step, dot)
        if not steps.add(shared, 0, 1) or not steps.add(block.body, 1, 0):
            continue
        is_packed = steps.add(own, dot.depth, 1)
        packed = None if is_packed else steps.axes_to_pack(own)
        if is_packed or packed is not None:
            vectors = _vectors(axes, lane, step, shared, dot)
            return FoundDot(dot, lane, step, shared.source, own.source, packed, uses, vectors)
    return None


def _vectors(axes: Sequence[Any], lane: int, step: int, shared: Any, dot: Dot) -> int:
    """Return how many consecutive vectors read the same shared numbers."""
    counts = divisors(_extent(axes[lane]) // dot.lanes)
    return next(
        count
        for count in reversed(counts)
        if _Steps(axes, lane, step, replace(dot, lanes=count * dot.lanes)).add(shared, 0, 1)
    )


def factors_of(block: Any, unit: DotUnit) -> tuple[Any, Any] | None:
    """Return the two loads whose products a block sums; None if it sums none."""
    added = added_product(block)
    if added is None:
        return None
    loads = [factor.value for factor in (added.a, added.b) if isinstance(factor, Cast)]
    if len(loads) != 2 or not all(isinstance(load, TensorLoad) for load in loads):
        return None
    types = [str(load.source.dtype) for load in loads]
    if not all(_is_plain(load.source) for load in loads) or not {*types} <= {*unit.dtypes}:
        return None
    if unit.is_small and types != ["uint8", "int8"]:
        return None
    if str(block.body.value.ty) != Dot(1, unit.depth, types[0], types[1]).sums:
        return None
    if loads[0].source.same_as(loads[1].source):
        return None  # A packed copy would replace both factors.
    return loads[0], loads[1]


def _is_plain(buffer: Any) -> bool:
    return all(isinstance(extent, IntImm) for extent in buffer.shape) and not len(buffer.strides)


def _extent(axis: Any) -> int:
    return int(axis.dom.extent)


def _axes(axes: Sequence[Any], unit: DotUnit) -> Iterator[tuple[int, int, int]]:
    """Yield the candidate lane and product axes, each pair with a number of lanes."""
    for lane, across in enumerate(axes):
        for step, along in enumerate(axes):
            if across.iter_type != IterVar.DataPar or along.iter_type != IterVar.CommReduce:
                continue
            if _extent(along) % unit.depth == 0:
                for lanes in unit.lanes:
                    if _extent(across) % lanes == 0:
                        yield lane, step, lanes


class _Steps:
    """Increments of indices and addresses for one step along the lanes or along the products."""

    def __init__(self, axes: Sequence[Any], lane: int, step: int, dot: Dot) -> None:
        self._analyzer = Analyzer()
        self._dot = dot
        self._first: dict[Any, Any] = {}
        self._all: dict[Any, Any] = {}
        for axis in axes:
            self._analyzer.bind(axis.var, Range(0, axis.dom.extent))
        self._lane = self._split(axes[lane], dot.lanes)
        self._product = self._split(axes[step], dot.depth)

    def _split(self, axis: Any, length: int) -> Any:
        dtype = str(axis.var.ty)
        outer, inner = tirx.Var("outer", dtype), tirx.Var("inner", dtype)
        self._analyzer.bind(outer, Range(0, tirx.const(_extent(axis) // length, dtype)))
        self._analyzer.bind(inner, Range(0, tirx.const(length, dtype)))
        self._first[axis.var] = outer * length
        self._all[axis.var] = outer * length + inner
        return inner

    def add(self, access: Any, by_lane: int, by_product: int) -> bool:
        """Return whether the address grows by these amounts for each lane and each product."""
        buffer = access.source if isinstance(access, TensorLoad) else access.buffer
        address = tirx.const(0, str(self._lane.ty))
        for index, extent in zip(access.indices, buffer.shape, strict=True):
            address = address * int(extent) + index
        return self._grows(address, self._lane * by_lane + self._product * by_product)

    def axes_to_pack(self, load: Any) -> tuple[int, int] | None:
        """Return the tensor axes over the lanes and over the products; None if there are none."""
        found: dict[str, list[int]] = {"lane": [], "product": []}
        for number, index in enumerate(load.indices):
            if self._grows(index, self._lane):
                name, length = "lane", self._dot.lanes
            elif self._grows(index, self._product):
                name, length = "product", self._dot.depth
            elif self._grows(index, tirx.const(0, str(self._lane.ty))):
                continue
            else:
                return None
            start = _replaced(index, self._first)
            if int(load.source.shape[number]) % length or not self._is_zero(start % length):
                return None
            found[name].append(number)
        if len(found["lane"]) != 1 or len(found["product"]) != 1:
            return None
        return found["lane"][0], found["product"][0]

    def _grows(self, value: Any, by: Any) -> bool:
        return self._is_zero(_replaced(value, self._all) - _replaced(value, self._first) - by)

    def _is_zero(self, value: Any) -> bool:
        return bool(self._analyzer.can_prove_equal(value, tirx.const(0, str(value.ty))))


def _replaced(value: Any, values: Mapping[Any, Any]) -> Any:
    """Substitute values for variables in an expression."""
    return structural_map(value, (tirx.Var, lambda variable: values.get(variable, variable)))
