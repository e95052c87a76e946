# SPDX-License-Identifier: Apache-2.0
"""Schedule rules for sums of products: a rule's form, consumers, loops and weights."""

from collections.abc import Callable, Sequence
from operator import gt
from typing import Any

from tvm.ir.expr import TensorLoad
from tvm.ir.utils import derived_object
from tvm.s_tir import SBlockRealize, Schedule
from tvm.s_tir.meta_schedule import TuneContext
from tvm.s_tir.meta_schedule.schedule_rule import PyScheduleRule, ScheduleRule
from tvm.s_tir.schedule import ExprRV, LoopRV, SBlockRV
from tvm.tirx import IterVar

from ..trees import entry_function, nodes_in

FREE = "layout_free_buffers"
"""TVM's attribute with the parameter indices of constants to pack when a model is compiled."""

FINISHED = "pragma_unroll_explicit"
"""An annotation without effect. ``RewriteParallelVectorizeUnroll`` leaves annotated loops and the
loops outside them alone. Otherwise it would vectorize the loop around an intrinsic, which TVM
cannot lower. It also cannot parallelize a loop around a reduction with a separate initialization.
"""


@derived_object
class BlockRule(PyScheduleRule):
    """A schedule rule of MetaSchedule: ``apply`` returns the design spaces of a block."""

    def __init__(self, apply: Callable[[Schedule, SBlockRV], list[Schedule]]) -> None:
        """Create a rule that applies a function."""
        super().__init__()
        self._apply = apply

    def _initialize_with_tune_context(self, context: TuneContext) -> None:
        pass

    def apply(self, sch: Schedule, block: SBlockRV) -> list[Schedule]:
        """Return the design spaces of a block."""
        return self._apply(sch, block)

    def clone(self) -> ScheduleRule:
        """Return the same rule."""
        return BlockRule(self._apply)


def is_marked(schedule: Schedule, weights: Any, name: str) -> bool:
    """Return whether a kernel attribute, such as ``FREE``, lists a buffer's parameter index."""
    function = entry_function(schedule.mod)
    numbers = (function.attrs or {}).get(name, ())
    return any(function.params[int(number)].same_as(weights) for number in numbers)


def inlined_consumers(schedule: Schedule, block: SBlockRV) -> SBlockRV | None:
    """Inline the chain of consumers into its last block, and return that block.

    Each consumer must compute an element from the same element of its producer. It may have fewer
    elements, if the product has copies of its last rows. Returns None, and inlines nothing, if
    there are no consumers or they cannot be computed tile by tile.
    """
    params = list(entry_function(schedule.mod).params)
    chain: list[SBlockRV] = [block]
    while consumers := schedule.get_consumers(chain[-1]):
        # A consumer that also reads another block, such as a second product, cannot move here.
        if len(consumers) > 1 or len(schedule.get_producers(consumers[0])) > 1:
            return None
        if not _follows(schedule.get(consumers[0]), schedule.get(chain[-1])):
            return None
        # An output of the kernel cannot be inlined.
        if len(chain) > 1 and is_written(schedule.get(chain[-1]), params):
            return None
        chain.append(consumers[0])
    for producer in chain[1:-1]:
        schedule.compute_inline(producer)
    return chain[-1] if len(chain) > 1 else None


def is_written(block: Any, buffers: Sequence[Any]) -> bool:
    """Return whether a block writes any of the given buffers."""
    return any(region.source.same_as(each) for region in block.writes for each in buffers)


def is_plain(schedule: Schedule, block: SBlockRV) -> bool:
    """Return whether the loops around a block are its axes, in order."""
    node = schedule.get(block)
    loops = [schedule.get(loop).loop_var for loop in schedule.get_loops(block)]
    realized = nodes_in(entry_function(schedule.mod), SBlockRealize)
    (values,) = (list(each.iter_values) for each in realized if each.block.same_as(node))
    pairs = zip(values, loops, strict=False)
    return len(values) == len(loops) and all(one.same_as(other) for one, other in pairs)


def _follows(after: Any, before: Any) -> bool:
    """Return whether a block reads its producer only at the element that it computes."""
    places = [axis.var for axis in after.iter_vars]
    value = getattr(after.body, "value", None)
    if value is None or any(axis.iter_type != IterVar.DataPar for axis in after.iter_vars):
        return False
    (made,) = before.writes
    (written,) = after.writes
    loads = nodes_in(value, TensorLoad)
    reads = [load.indices for load in loads if load.source.same_as(made.source)]
    extents = [int(extent) for extent in made.source.shape]
    own = [int(extent) for extent in written.source.shape]
    return (
        len(own) == len(extents)
        and not any(map(gt, own, extents))
        and bool(reads)
        and all(_are(indices, places, extents) for indices in (*reads, after.body.indices))
    )


def _are(indices: Any, places: Sequence[Any], extents: Sequence[int]) -> bool:
    """Return whether indices are the given variables, except for axes of one element."""
    return len(indices) == len(places) and all(
        place.same_as(index) or extent == 1
        for index, place, extent in zip(indices, places, extents, strict=True)
    )


def finish_outer(schedule: Schedule, loops: Sequence[LoopRV], is_parallel: bool) -> LoopRV:
    """Fuse and parallelize outer loops if several threads share them; return the outermost one."""
    first = loops[0]
    if is_parallel:
        first = schedule.fuse(*loops)
        schedule.parallel(first)
    schedule.annotate(first, FINISHED, 1)
    return first


def sample(schedule: Schedule, candidates: list[int]) -> ExprRV:
    """Sample one of the candidates with equal probability."""
    return schedule.sample_categorical(candidates, [1.0 / len(candidates)] * len(candidates))


def perfect_tile(schedule: Schedule, loop: LoopRV, parts: int, most: int = 64) -> list[LoopRV]:
    """Split a loop into parts with sampled extents, the innermost at most ``most``."""
    factors = schedule.sample_perfect_tile(loop, n=parts, max_innermost_factor=most)
    return list(schedule.split(loop, factors))
