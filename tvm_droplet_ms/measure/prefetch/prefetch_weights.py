# SPDX-License-Identifier: Apache-2.0
"""A pass that fetches weights into the caches before a scheduled kernel reads them."""

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

from tvm_ffi.structural import structural_map, structural_visit, structural_walk

import tvm
from tvm import DataType
from tvm.ir import IRModule
from tvm.s_tir import SBlock, SBlockRealize
from tvm.sym import Analyzer
from tvm.tirx import (
    BufferLoad,
    Evaluate,
    For,
    ForKind,
    IntImm,
    IterVar,
    PrimFunc,
    SeqStmt,
    Var,
    address_of,
    call_llvm_intrin,
    const,
)

from .walks import LINE, Loop, Place, place_prefetch

LEAST_BYTES = 1 << 18
"""Least size of weights to fetch. Memory delivers smaller weights in the time of a few lines."""

_FREE = "layout_free_buffers"
_PACKS = "meta_schedule.layout_rewrite_preproc"
_READ, _L2, _L1, _DATA = 0, 2, 3, 1
"""Arguments of ``llvm.prefetch``."""


def PrefetchWeights() -> tvm.transform.Pass:
    """Make a pass that prefetches the weights of scheduled kernels that read them repeatedly.

    Run it for a CPU, after the schedules are applied and before ``SplitLayoutRewritePreproc`` or
    ``RemoveWeightLayoutRewriteBlock``. The weights are the parameters that
    ``AttachAttrLayoutFreeBuffers`` marked, and the buffers that packing blocks write.
    ``walks.place_prefetch`` chooses where to fetch. Kernels compute the same results as before. The
    pass does not change functions without loops around a sum, and does not fetch weights of less
    than ``LEAST_BYTES``.
    """

    def run(mod: IRModule, _context: tvm.transform.PassContext) -> IRModule:
        changed = IRModule(dict(mod.functions_items()), attrs=mod.attrs)
        for variable, function in mod.functions_items():
            if isinstance(function, PrimFunc):
                changed.update_func(variable, _prefetching(function))
        return changed

    return tvm.transform.module_pass(run, opt_level=0, name="PrefetchWeights")


class _Found(NamedTuple):
    """Fetches at the beginning of a loop's body."""

    loop: For
    inner: int
    fetches: list[Any]


def _prefetching(function: PrimFunc) -> PrimFunc:
    """Add prefetches to a function. Returns the same function if there are none."""
    weights = _large_weights(function)
    if not weights:
        return function
    found: dict[Var, _Found] = {}
    blocks = _blocks_in_loops(function.body)
    for realize, loops in blocks:
        for weight in weights:
            fetch = _fetch(realize, loops, weight, [each for each, _ in blocks])
            # If one loop has two products, which no schedule has made yet, only the first counts.
            if fetch is not None:
                found.setdefault(fetch.loop.loop_var, fetch)
    if not found:
        return function

    def with_fetches(loop: For) -> For:
        here = found.get(loop.loop_var)
        return loop if here is None else _split(loop, here)

    return function.with_body(structural_map(function.body, (For, with_fetches)))


def _large_weights(function: PrimFunc) -> list[Any]:
    """Return the buffers of weights: marked parameters, and the outputs of packing blocks."""
    marked = (function.attrs or {}).get(_FREE, ())
    buffers = [function.params[int(number)] for number in marked]
    blocks: list[Any] = []
    structural_walk(function.body, (SBlock, blocks.append))
    for block in blocks:
        if _PACKS in block.annotations:
            buffers += [write.source for write in block.writes]
    return [buffer for buffer in buffers if _bytes_of(buffer) >= LEAST_BYTES]


def _bytes_of(buffer: Any) -> int:
    extents = list(buffer.shape)
    if not all(isinstance(extent, IntImm) for extent in extents):
        return 0
    return prod(int(extent) for extent in extents) * _itemsize(buffer)


def _itemsize(buffer: Any) -> int:
    return int(DataType(str(buffer.dtype)).itemsize)


def _blocks_in_loops(body: Any) -> list[tuple[SBlockRealize, tuple[For, ...]]]:
    """Return the outermost blocks with axes, and the loops around each, from the outermost."""
    found: list[tuple[SBlockRealize, tuple[For, ...]]] = []
    stack: list[For] = []

    def loop(value: For, visitor: Any) -> None:
        stack.append(value)
        visitor.default_visit(value)
        stack.pop()

    def realize(value: SBlockRealize, visitor: Any) -> None:
        if value.block.iter_vars:
            found.append((value, tuple(stack)))
        else:
            visitor.default_visit(value)

    structural_visit(body, [(For, loop), (SBlockRealize, realize)])
    return found


def _sums(realize: SBlockRealize) -> list[Any]:
    """Return the values of a block's reduction axes."""
    pairs = zip(realize.block.iter_vars, realize.iter_values, strict=True)
    return [value for axis, value in pairs if axis.iter_type == IterVar.CommReduce]


def _sums_with(realize: SBlockRealize, blocks: Sequence[SBlockRealize]) -> list[Any]:
    """Return the values of the reduction axes of the only block that sums over a block's output.

    The given block copies weights, such as to a matrix tile.
    """
    (written,) = realize.block.writes
    readers = [
        each
        for each in blocks
        if any(read.source.same_as(written.source) for read in each.block.reads) and _sums(each)
    ]
    return _sums(readers[0]) if len(readers) == 1 else []


def _fetch(
    realize: SBlockRealize, loops: Sequence[For], weight: Any, blocks: Sequence[SBlockRealize]
) -> _Found | None:
    """Return the fetches of a weight in a block's loops; None if the block does not sum with it."""
    block = realize.block
    pairs = list(zip(block.iter_vars, realize.iter_values, strict=True))
    sums = _sums(realize)
    if not sums and len(block.writes) == 1:
        sums = _sums_with(realize, blocks)
    reads = [read for read in block.reads if read.source.same_as(weight)]
    if not sums or len(reads) != 1 or not all(_counts_up(loop) for loop in loops):
        return None
    region = list(reads[0].region)
    if not all(isinstance(dimension.extent, IntImm) for dimension in region):
        return None
    shape = [int(extent) for extent in weight.shape]
    axes = {axis.var: value for axis, value in pairs}
    offset = _flat([_substituted(dimension.min, axes) for dimension in region], shape)
    vector = 1 + int(_flat([int(dimension.extent) - 1 for dimension in region], shape))
    try:
        nest = [_described(loop, loops, offset, sums) for loop in loops]
    except _UnknownError:
        return None
    place = place_prefetch(nest, vector, _itemsize(weight))
    if place is None:
        return None
    return _Found(loops[place.loop], place.inner, _statements(loops, place, offset, weight))


def _counts_up(loop: For) -> bool:
    """True for a loop from 0 in steps of 1 with a constant extent."""
    has_extent = isinstance(loop.extent, IntImm) and int(loop.extent) > 0
    starts = isinstance(loop.min, IntImm) and int(loop.min) == 0
    return has_extent and starts and (loop.step is None or int(loop.step) == 1)


class _UnknownError(Exception):
    """An index depends on more than the loops around it, as in a table lookup."""


def _described(loop: For, loops: Sequence[For], offset: Any, sums: Sequence[Any]) -> Loop:
    """Describe how a loop moves through the weights while the other loops are at 0.

    Raises ``_UnknownError`` if the loops do not determine the index.
    """
    variable, extent = loop.loop_var, int(loop.extent)
    zeros = {other.loop_var: _number(0, other.loop_var) for other in loops}
    analyzer = Analyzer()

    def at(value: Any, iteration: int) -> int:
        numbers = {**zeros, variable: _number(iteration, variable)}
        found = analyzer.simplify(_substituted(value, numbers))
        if not isinstance(found, IntImm):
            raise _UnknownError
        return int(found)

    first = at(offset, 0)
    # Fusion keeps loops whole, so the number of iterations at one place divides the extent.
    divisors = (number for number in range(1, extent) if extent % number == 0)
    repeats = next((number for number in divisors if at(offset, number) != first), extent)
    step = at(offset, repeats) - first if repeats < extent else 0
    last = (extent - 1) // repeats
    is_sum = any(at(value, extent - 1) != at(value, 0) for value in sums)
    is_regular = at(offset, extent - 1) - first == last * step
    return Loop(extent, repeats, step, is_regular, is_sum)


def _statements(loops: Sequence[For], place: Place, offset: Any, weight: Any) -> list[Any]:
    """Make the statements that fetch the lines of a place."""
    zeros = {
        loop.loop_var: _number(0, loop.loop_var)
        for number, loop in enumerate(loops)
        if number in place.within or number > place.loop
    }
    like = loops[place.loop].loop_var
    start = _substituted(offset, zeros) + _number(place.distance, like)
    for term in place.terms:
        iteration = loops[term.loop].loop_var // _number(term.divisor, like)
        start += iteration % _number(term.modulus, like) * _number(term.factor, like)
    line = LINE // _itemsize(weight)
    # A panel of tiles may exceed L1, where the rows of the product stay.
    cache = _L2 if place.is_of_tiles else _L1
    statements = []
    for number in range(place.lines):
        # The last index is a flat offset: the weights are contiguous, and it may exceed them.
        index = [_number(0, like)] * (len(weight.shape) - 1)
        load = BufferLoad(weight, [*index, start + _number(number * line, like)])
        arguments = [const(value, "int32") for value in (_READ, cache, _DATA)]
        call = call_llvm_intrin("void", "llvm.prefetch", address_of(load), *arguments)
        statements.append(Evaluate(call))
    return statements


def _split(loop: For, found: _Found) -> For:
    """Make a loop that fetches before every ``inner`` iterations."""
    if found.inner == 1:
        return _loop(loop, loop.loop_var, loop.extent, SeqStmt([*found.fetches, loop.body]))
    variable = loop.loop_var
    outer, inner = (Var(f"{variable.name}_{part}", variable.ty) for part in ("outer", "inner"))
    first = outer * _number(found.inner, variable)
    body = _substituted(loop.body, {variable: first + inner})
    fetches = [_substituted(fetch, {variable: first}) for fetch in found.fetches]
    kind = loop.kind if loop.kind == ForKind.UNROLLED else ForKind.SERIAL
    rest = For(inner, loop.min, _number(found.inner, variable), kind, body)
    extent = _number(int(loop.extent) // found.inner, variable)
    return _loop(loop, outer, extent, SeqStmt([*fetches, rest]))


def _loop(loop: For, variable: Var, extent: Any, body: Any) -> For:
    return For(variable, loop.min, extent, loop.kind, body, loop.thread_binding, loop.annotations)


def _flat(indices: Sequence[Any], shape: Sequence[int]) -> Any:
    """Return the flat offset of an element in a tensor of a given shape."""
    flat = indices[0]
    for index, extent in zip(indices[1:], shape[1:], strict=True):
        flat = flat * extent + index
    return flat


def _substituted(value: Any, values: Mapping[Any, Any]) -> Any:
    return structural_map(value, (Var, lambda variable: values.get(variable, variable)))


def _number(value: int, like: Var) -> Any:
    """Make a constant of a variable's type."""
    return const(value, str(like.ty.dtype))
