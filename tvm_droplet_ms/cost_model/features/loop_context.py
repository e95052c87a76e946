# SPDX-License-Identifier: Apache-2.0
"""The loops around each block of a scheduled module, their touched memory and operations."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from tvm import s_tir, sym, tirx
from tvm.ir import Call, IRModule

from ...design_space.trees import entry_function
from ..nests import Access, LoopNest

KINDS: dict[str, tuple[type, ...]] = {
    "additions": (tirx.Add, tirx.Sub),
    "multiplications": (tirx.Mul,),
    "divisions": (tirx.Div, tirx.Mod, tirx.FloorDiv, tirx.FloorMod),
    "choices": (tirx.Min, tirx.Max, tirx.Select),
    "calls": (Call,),
}
"""TVM's expressions by kind of operation; counts are in this order."""

_PARTS = (
    *("a", "b", "value", "condition", "true_value", "false_value"),
    *("body", "block", "then_case", "else_case"),
)


def operations(stmt: Any) -> np.ndarray:
    """Count the operations of each kind in one execution of a statement.

    Operations within buffer indices are left out. The body of a loop counts once. ``stmt``: the
    body of a block. Returns additions, multiplications, divisions, choices (minimum, maximum,
    select) and calls, of shape ``(len(KINDS),)``, float64.
    """
    counts = np.zeros(len(KINDS))
    for node in _nodes(stmt):
        place = _kind(node.__class__)
        if place is not None:
            counts[place] += 1
    return counts


def _nodes(node: Any) -> Iterator[Any]:
    """A node and all nodes within it, except those in buffer indices."""
    yield node
    if isinstance(node, tirx.SeqStmt | Call):
        parts = list(node.seq if isinstance(node, tirx.SeqStmt) else node.args)
    else:
        parts = [getattr(node, name) for name in _parts(node.__class__)]
    for part in parts:
        yield from _nodes(part)


@cache
def _kind(node_type: type) -> int | None:
    """The index in ``KINDS`` of a node type; None if it is not an operation."""
    for place, types in enumerate(KINDS.values()):
        if issubclass(node_type, types):
            return place
    return None


@cache
def _parts(node_type: type) -> tuple[str, ...]:
    """The fields of a node type that hold statements and expressions."""
    return tuple(name for name in _PARTS if hasattr(node_type, name))


_UNROLL = "pragma_auto_unroll_max_step"
_PACKING = "meta_schedule.layout_rewrite_preproc"


def loop_nests(mod: IRModule) -> list[LoopNest]:
    """The loop nests of a scheduled module, in the module's order.

    Nests that pack constant weights are skipped: they run once, when a model is compiled. TVM's
    features and builders skip them too (``RemoveWeightLayoutRewriteBlock``). ``mod``: a scheduled
    module of one kernel.
    """
    numbers: dict[int, int] = {}
    # Blocks share the objects of their common loops. This list keeps the loops alive for ``id``.
    blocks = scheduled_blocks(mod)
    for _, loops in blocks:
        for loop in loops:
            numbers.setdefault(id(loop), len(numbers))
    return [_nest(realize, loops, numbers) for realize, loops in blocks]


def scheduled_blocks(mod: IRModule) -> list[tuple[Any, tuple[Any, ...]]]:
    """Each innermost block of the kernel with its loops, the outermost first.

    Blocks that pack constant weights are skipped.
    """
    return [
        (realize, loops)
        for realize, loops in _blocks(entry_function(mod).body, ())
        if _PACKING not in realize.block.annotations
    ]


def _blocks(stmt: Any, loops: tuple[Any, ...]) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    """Each innermost block of a statement with its loops, the outermost first."""
    if isinstance(stmt, s_tir.SBlockRealize):
        within = list(_blocks(stmt.block.body, loops))
        yield from within or [(stmt, loops)]
    elif isinstance(stmt, tirx.SeqStmt):
        for part in stmt.seq:
            yield from _blocks(part, loops)
    elif isinstance(stmt, tirx.For):
        yield from _blocks(stmt.body, (*loops, stmt))


def _nest(realize: Any, loops: tuple[Any, ...], numbers: Mapping[int, int]) -> LoopNest:
    limits = [int(loop.annotations[_UNROLL]) for loop in loops if _UNROLL in loop.annotations]
    inner_first = loops[::-1]
    return LoopNest(
        np.array([_constant(loop.extent) for loop in inner_first], dtype=int),
        np.array([int(loop.kind) for loop in inner_first], dtype=int),
        max(limits, default=0),
        tuple(_accesses(realize, inner_first)),
        tuple(numbers[id(loop)] for loop in inner_first),
        operations(realize.block.body),
    )


def _accesses(realize: Any, loops: tuple[Any, ...]) -> Iterator[Access]:
    """The accesses of a block, with the bytes that each of its loops touches, innermost first.

    For each loop, its inner loops run and its outer loops are fixed at 0. The block's axes are
    assumed to vary independently of each other.
    """
    block = realize.block
    regions = [_Region.from_tvm(region, is_write=True) for region in block.writes]
    regions += [_Region.from_tvm(region, is_write=False) for region in block.reads]
    axes = list(zip((axis.var for axis in block.iter_vars), realize.iter_values, strict=True))
    analyzer = sym.Analyzer()
    for loop in loops:
        analyzer.update(loop.loop_var, sym.ConstIntBound(0, 0), True)
    spans = [np.zeros((len(region.starts), len(loops))) for region in regions]
    for column, loop in enumerate(loops):
        last = _constant(loop.extent) - 1
        if column and last == 0:
            for span in spans:
                span[:, column] = span[:, column - 1]
            continue
        analyzer.update(loop.loop_var, sym.ConstIntBound(0, last), True)
        for variable, value in axes:
            analyzer.update(variable, analyzer.const_int_bound(value), True)
        for span, region in zip(spans, regions, strict=True):
            for row, start in enumerate(region.starts):
                bound = analyzer.const_int_bound(start)
                span[row, column] = bound.max_value - bound.min_value
    for span, region in zip(spans, regions, strict=True):
        yield Access(region.buffer, region.is_write, *region.touched(span))


@dataclass(frozen=True)
class _Region:
    """A region of a buffer, read from TVM once: each attribute of a TVM object costs a call.

    - ``buffer``: the buffer's name.
    - ``is_write``: whether the block writes it.
    - ``itemsize``: the bytes of an element.
    - ``starts``: the first index in each dimension, the innermost dimension first.
    - ``extents``, ``lengths``: the elements of the region and of the buffer in each dimension, in
      the same order.
    """

    buffer: str
    is_write: bool
    itemsize: int
    starts: list[Any]
    extents: np.ndarray
    lengths: np.ndarray

    @staticmethod
    def from_tvm(region: Any, *, is_write: bool) -> "_Region":
        """Read a ``BufferRegion``."""
        ranges = list(region.region)[::-1]
        return _Region(
            str(region.source.name),
            is_write,
            int(region.source.dtype.itemsize),
            [axis.min for axis in ranges],
            np.array([_constant(axis.extent) for axis in ranges], dtype=float),
            np.array([_constant(length) for length in region.source.shape][::-1], dtype=float),
        )

    def touched(self, span: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Covered bytes and contiguous bytes among them, of shape ``(loops,)`` each.

        ``span``: distance that the start moves in each dimension, of shape ``(dimensions, loops)``.
        """
        covered = np.minimum(span + self.extents[:, None], self.lengths[:, None])
        # A contiguous run continues into the next dimension only if this one is fully covered.
        whole = np.cumprod(covered == self.lengths[:, None], axis=0, dtype=bool)
        within_run = np.concatenate([np.ones_like(whole[:1]), whole[:-1]])
        runs = np.where(within_run, covered, 1.0).prod(axis=0)
        return self.itemsize * covered.prod(axis=0), self.itemsize * runs


def _constant(value: Any) -> int:
    """A size or an extent; 1 if it is not constant."""
    return max(1, int(value)) if isinstance(value, int | tirx.IntImm) else 1
