# SPDX-License-Identifier: Apache-2.0
"""Counts the operations that a kernel executes, including recomputation.

A step inside a loop that it does not depend on is recomputed in each iteration. The last step of a
split reduction (``RFactor``) may lie inside the loop over the outputs.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

from tvm_ffi.structural import WalkResult, structural_walk

from tvm import s_tir, tirx
from tvm.ir import Call, IRModule
from tvm.ir.expr import TensorLoad
from tvm.ir.prim.expr import Add, Cast, Div, Max, Min, Mul, Select, Sub
from tvm.s_tir import Schedule

from ..trees import entry_function, mentions

FEW_OPERATIONS = 10_000
"""Number of operations that is never refused: a vectorized loop over a few elements may execute 64
operations per element, most of them masked, in negligible time."""

MOST_TIMES = 4.0
"""Maximum operations of a schedule, as a multiple of the unscheduled kernel's. Padded tiles and
halos of a convolution at most double the operations."""

_OPERATIONS = (Add, Call, Cast, Div, Max, Min, Mul, Select, Sub)
_PACKING = "meta_schedule.layout_rewrite_preproc"
"""Marks a block that packs constant weights: it runs once, when a model is compiled."""

_SHARED_COPY = "meta_schedule.cooperative_fetch"
"""Marks a block whose loops the GPU's threads will share once a postprocessor binds them."""


@dataclass(frozen=True)
class _Threads:
    """The GPU thread loops around a statement.

    - ``extents``: the extents by thread axis, such as "threadIdx.x".
    - ``virtual``: the variables and extents of virtual threads inside the innermost block.
    """

    extents: Mapping[str, float] = field(default_factory=dict)
    virtual: Sequence[tuple[Any, float]] = ()

    @property
    def of_block(self) -> float:
        """The number of threads in one thread block."""
        return prod(n for axis, n in self.extents.items() if axis.startswith("threadIdx"))


def executed_operations(mod: IRModule) -> float:
    """Count the operations of one run of a kernel.

    ``mod``: a module of one kernel, scheduled or not. Returns a sum over all stores: one for the
    store plus the operations of its value, times the extents of the loops around it. Conditions
    are assumed to hold. Reduction initializations and the packing of weights do not count. A loop
    of unknown extent counts as one iteration, and an intrinsic as one operation.

    On a GPU, nested loops of one thread axis are the same threads: a copy to shared memory is
    inside the threads' loops, and has a loop of the same axis over which they share its work. Work
    that does not depend on a virtual thread is computed once for all virtual threads.
    """
    return _executed(entry_function(mod).body, _Threads())


class WorkLimit:
    """Refuses schedules that execute many times the operations of the unscheduled kernel.

    It is applied to a schedule like a postprocessor. ``samples``: a schedule of each design space.
    If all samples execute more operations than the workload, the limit follows the smallest sample,
    so that some schedules remain.
    """

    def __init__(self, mod: IRModule, samples: Iterable[IRModule] = ()) -> None:
        least = min(map(executed_operations, samples), default=0.0)
        self._most = max(FEW_OPERATIONS, MOST_TIMES * max(executed_operations(mod), least))

    def apply(self, schedule: Schedule) -> bool:
        """Return whether a schedule is within the limit."""
        return executed_operations(schedule.mod) <= self._most

    def __str__(self) -> str:
        return "WorkLimit"


def _executed(stmt: Any, around: _Threads) -> float:
    if isinstance(stmt, tirx.For):
        extent = stmt.extent
        times = float(extent.value) if isinstance(extent, tirx.IntImm) else 1.0
        if not times:
            return 0.0
        inside, times = _bound(stmt, times, around)
        return times * _executed(stmt.body, inside)
    if isinstance(stmt, s_tir.SBlockRealize):
        inside = replace(around, virtual=())
        # Virtual threads share one run of a block that does not depend on them.
        values = list(stmt.iter_values)
        repeats = prod(extent for own, extent in around.virtual if not mentions(values, own))
        return _executed(stmt.block, inside) / repeats
    if isinstance(stmt, s_tir.SBlock):
        if _PACKING in stmt.annotations:
            return 0.0
        shared = around.of_block if _SHARED_COPY in stmt.annotations else 1.0
        return _executed(stmt.body, around) / shared
    if isinstance(stmt, tirx.SeqStmt):
        return sum(_executed(part, around) for part in stmt.seq)
    if isinstance(stmt, tirx.IfThenElse):
        parts = [_executed(stmt.then_case, around)]
        if stmt.else_case is not None:
            parts.append(_executed(stmt.else_case, around))
        return max(parts)
    if isinstance(stmt, tirx.BufferStore):
        return 1.0 + _operations(stmt.value)
    body = getattr(stmt, "body", None)
    return _executed(body, around) if isinstance(body, tirx.Stmt) else 1.0


def _bound(loop: Any, extent: float, around: _Threads) -> tuple[_Threads, float]:
    """Return the threads inside a loop, and the factor by which it repeats its body."""
    if loop.thread_binding is None:
        return around, extent
    axis = str(loop.thread_binding.thread_tag)
    if axis.startswith("vthread"):
        return replace(around, virtual=(*around.virtual, (loop.loop_var, extent))), extent
    times = extent / around.extents.get(axis, 1.0)
    return replace(around, extents={**around.extents, axis: extent}), times


def _operations(value: Any) -> int:
    """Count the operations of an expression, without its index expressions."""
    found: list[Any] = []
    steps = [(TensorLoad, lambda _: WalkResult.SKIP), (_OPERATIONS, found.append)]
    structural_walk(value, steps, order="pre")
    return len(found)
