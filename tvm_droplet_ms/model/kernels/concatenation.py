# SPDX-License-Identifier: Apache-2.0
"""Concatenation along the innermost axis, with one branch per vector instead of per element."""

from functools import reduce
from math import gcd
from typing import Any

import tvm
from tvm import relax, te, tirx
from tvm.s_tir import Schedule
from tvm.s_tir.schedule import SBlockRV
from tvm.tirx import IterVar

from .pool_rules import register_rule, vector_extents

_RULE = "tvm_droplet_ms.concatenation"
_EXTENT = "tvm_droplet_ms.common_extent"
_MIN_VECTOR = 8


def register_concatenation_rule() -> None:
    """Register the schedule rule. It may be called again, and leaves a registered rule as it is."""
    register_rule(_RULE, _schedule)


def legalize_concatenation(builder: relax.BlockBuilder, call: Any) -> Any:
    """Legalise ``relax.concat``; for ``LegalizeOps(customize_legalize_map=...)``.

    Tensors that are joined along their innermost axis, and whose extents there have a multiple of 8
    as a common divisor, become `concatenate`. Everything else is legalised by TVM. ``builder``: the
    builder that emits the kernel. ``call``: a call of ``relax.concat``. Returns a ``call_tir``.
    """
    extents = _innermost_extents(call)
    if not extents or common_extent(extents) % _MIN_VECTOR:
        return tvm.ir.Op.get("relax.concat").get_attr("FLegalize")(builder, call)
    fields = call.args[0]
    if not isinstance(fields, relax.Tuple):
        fields = [builder.emit(relax.TupleGetItem(fields, index)) for index in range(len(extents))]
    return builder.call_te(
        lambda *parts: concatenate(list(parts)), *fields, primfunc_name_hint="concatenate"
    )


def concatenate(parts: list[te.Tensor]) -> te.Tensor:
    """Join tensors along the innermost axis.

    The expression is TOPI's (``include/tvm/topi/transform.h``, ``concatenate``). Its block asks for
    a schedule rule that splits the axis where every vector lies in one part. So the branch has a
    scalar condition. ``parts``: of equal shapes but for the last extent. Of the parts' shape, but
    for the last extent, which is the sum of theirs.
    """
    extents = [int(part.shape[-1]) for part in parts]

    def element(*indices: Any) -> Any:
        *outer, last = indices

        def at(part: te.Tensor, start: int) -> Any:
            index = (*outer, last - start)
            return part[index]

        offset = sum(extents) - extents[-1]
        value = at(parts[-1], offset)
        for part, extent in zip(reversed(parts[:-1]), reversed(extents[:-1]), strict=True):
            start = offset - extent
            value = tirx.if_then_else(last < offset, at(part, start), value)
            offset = start
        return value

    return te.compute(
        (*parts[0].shape[:-1], sum(extents)),
        element,
        name="concatenate",
        attrs={"schedule_rule": _RULE, _EXTENT: common_extent(extents)},
    )


def common_extent(extents: list[int]) -> int:
    """The largest number of which all extents are multiples."""
    return reduce(gcd, extents)


def _innermost_extents(call: Any) -> list[int]:
    """The last extents of the tensors that are joined there; empty in all other cases."""
    types = list(call.args[0].ty.fields)
    if not all(
        isinstance(type_, relax.TensorType) and isinstance(type_.shape, relax.ShapeExpr)
        for type_ in types
    ):
        return []
    axis, rank = call.attrs.axis, len(types[0].shape)
    if axis is None or rank < 2 or int(axis) % rank != rank - 1:
        return []
    if not all(isinstance(extent, tirx.IntImm) for type_ in types for extent in type_.shape):
        return []
    return [int(type_.shape[-1]) for type_ in types]


def _schedule(schedule: Schedule, block: SBlockRV) -> list[Schedule]:
    """Inline the concatenation into what follows, and vectorise within a part."""
    extent = int(schedule.get(block).annotations[_EXTENT])
    shape = [int(axis.dom.extent) for axis in schedule.get(block).iter_vars]
    chain = [block]
    while consumers := schedule.get_consumers(chain[-1]):
        axes = schedule.get(consumers[0]).iter_vars
        if (
            len(consumers) > 1
            or any(axis.iter_type != IterVar.DataPar for axis in axes)
            or [int(axis.dom.extent) for axis in axes] != shape
        ):
            schedule.unannotate(block, "schedule_rule")
            return [schedule]  # TVM's default design space.
        chain.append(consumers[0])
    for producer in chain[:-1]:
        schedule.compute_inline(producer)
    *_, inner, channels = schedule.get_loops(chain[-1])
    extents = vector_extents(extent)
    factor = schedule.sample_categorical(extents, [1.0 / len(extents)] * len(extents))
    outer, vector = schedule.split(channels, [None, factor])
    # A loop between them keeps MetaSchedule from fusing the two into one vector over two parts.
    schedule.reorder(outer, inner, vector)
    schedule.vectorize(vector)
    return [schedule]
