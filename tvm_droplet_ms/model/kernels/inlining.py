# SPDX-License-Identifier: Apache-2.0
"""Limits the size of the expressions into which MetaSchedule inlines.

``AutoInline`` (``auto_inline.cc``) inlines an elementwise block into its readers, however often
they read it. A polynomial for ``tanh`` reads its argument 19 times, so the last cell of an LSTM
became one expression of 6,643 operations.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tvm_ffi.structural import structural_walk

import tvm
from tvm.ir import Call, IRModule
from tvm.ir.expr import TensorLoad
from tvm.ir.prim.expr import Add, Cast, Div, Max, Min, Mul, Select, Sub
from tvm.s_tir import Schedule
from tvm.tirx import IterVar, PrimFunc

from .kernel_pass import blocks_in, kernel_pass

MOST_OPERATIONS = 1000
"""Maximum operations of one expression. A GELU has 98, the state of an LSTM 339."""

RULE = "schedule_rule"
"""The annotation whose value "None" disables all rules for a block (``post_order_apply.cc``).
``meta_schedule.inline_rule`` disables only ``AutoInline``: a sampled compute location still inlined
a block in three of ten schedules."""

_OPERATIONS = (Add, Call, Cast, Div, Max, Min, Mul, Select, Sub)


class Computed(NamedTuple):
    """The work of a block for one element.

    ``operations``: the number of operations. ``reads``: how often the block reads the result of
    each earlier block, by that block's index. ``may_be_inlined``: whether MetaSchedule may inline
    the block: it is elementwise, and its result is not an output of the kernel.
    """

    operations: int
    reads: Mapping[int, int]
    may_be_inlined: bool


def not_to_inline(blocks: Sequence[Computed], most: int = MOST_OPERATIONS) -> set[int]:
    """Choose the blocks that must not be inlined.

    ``blocks``: the blocks of a kernel, each after the blocks that it reads. ``most``: the maximum
    operations of one expression, unless the block alone has more. Returns the indices of blocks. If
    an expression would be too large, the blocks that contribute most are chosen first.
    """
    chosen: set[int] = set()
    sizes: list[int] = []
    for block in blocks:
        inlined = {
            place: count * sizes[place]
            for place, count in block.reads.items()
            if blocks[place].may_be_inlined and place not in chosen
        }
        size = block.operations + sum(inlined.values())
        for place in sorted(inlined, key=lambda place: -inlined[place]):
            if size <= most:
                break
            chosen.add(place)
            size -= inlined[place]
        sizes.append(size)
    return chosen


def limit_inlining(most: int = MOST_OPERATIONS) -> tvm.transform.Pass:
    """Make a pass that marks blocks that must not be inlined.

    ``most``: see ``not_to_inline``. The pass applies to kernels after ``FuseTIR``. It leaves
    kernels with small expressions unchanged.
    """

    def limit(function: PrimFunc) -> PrimFunc | None:
        blocks = blocks_in(function.body)
        chosen = not_to_inline(_computed(blocks, function.params), most)
        if not chosen:
            return None
        schedule = Schedule(IRModule({"main": function}), debug_mask="none")
        for place in sorted(chosen):
            schedule.annotate(schedule.get_sblock(blocks[place].name_hint), RULE, "None")
        return schedule.mod["main"].with_attrs(dict(function.attrs or {}))

    return kernel_pass("LimitInlining", limit)


def _computed(blocks: Sequence[Any], outputs: Sequence[Any]) -> list[Computed]:
    """Return the work of blocks. Enclosing blocks and blocks with several results have no reads."""
    results = [block.writes[0].source if len(block.writes) == 1 else None for block in blocks]
    written: dict[Any, int] = {}
    found = []
    for place, (block, result) in enumerate(zip(blocks, results, strict=True)):
        if result is None or not block.iter_vars:
            found.append(Computed(0, {}, False))
            continue
        operations: list[Any] = []
        loads: Counter[Any] = Counter()

        def load(node: Any, loads: Counter[Any] = loads) -> None:
            loads[node.source] += 1

        structural_walk(block.body, [(_OPERATIONS, operations.append), (TensorLoad, load)])
        reads = {written[source]: times for source, times in loads.items() if source in written}
        is_elementwise = all(axis.iter_type == IterVar.DataPar for axis in block.iter_vars)
        is_output = any(result.same_as(output) for output in outputs)
        found.append(Computed(len(operations), reads, is_elementwise and not is_output))
        written[result] = place
    return found
