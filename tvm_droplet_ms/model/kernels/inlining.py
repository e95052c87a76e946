# SPDX-License-Identifier: Apache-2.0
"""Limits what MetaSchedule inlines into one expression.

``AutoInline`` (``auto_inline.cc``) inlines an elementwise block into what reads it, however often
it is read there. A polynomial for ``tanh`` reads its argument 19 times. So the last cell of an
LSTM, a ``tanh`` of ``sigmoid`` and ``tanh``, became one expression of 6,643 operations, and no
schedule of it was sampled within two minutes.
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
"""The most operations of one expression. A GELU has 98, the state of an LSTM 339."""

RULE = "schedule_rule"
"""The annotation whose value "None" keeps all rules from a block (``post_order_apply.cc``).
``meta_schedule.inline_rule`` keeps ``AutoInline`` alone: a sampled compute location inlined a block
in three of ten schedules."""

_OPERATIONS = (Add, Call, Cast, Div, Max, Min, Mul, Select, Sub)


class Computed(NamedTuple):
    """The work of a block for one element.

    ``reads``: how often it reads the result of each earlier block, by the place of that block.
    ``may_be_inlined``: whether MetaSchedule may inline it: it is elementwise, and no output of the
    kernel.
    """

    operations: int
    reads: Mapping[int, int]
    may_be_inlined: bool


def not_to_inline(blocks: Sequence[Computed], most: int = MOST_OPERATIONS) -> set[int]:
    """Choose the blocks that must not be inlined.

    ``blocks``: the blocks of a kernel, each after those that it reads. ``most``: the most
    operations of one expression, where its own are not more. Returns the places of blocks. Where an
    expression would be too large, what makes most of it is chosen first.
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

    ``most``: see ``not_to_inline``. For kernels after ``FuseTIR``. A kernel whose expressions stay
    small is left as it is.
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
    """The work of blocks. One that encloses others or writes several results has no reads."""
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
