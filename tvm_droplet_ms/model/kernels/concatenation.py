# SPDX-License-Identifier: Apache-2.0
"""Concatenation along the innermost axis, with one branch per vector instead of per element."""

from math import gcd
from typing import Any

import tvm
from tvm import relax, te, tirx
from tvm.s_tir import Schedule
from tvm.s_tir.schedule import SBlockRV

from ..bindings import shape_of_type
from .pool_rules import elementwise_chain, extents_of, vectorize_channels

CONCATENATION_RULE = "tvm_droplet_ms.concatenation"
_EXTENT = "tvm_droplet_ms.common_extent"
_MIN_VECTOR = 8


def legalize_concatenation(builder: relax.BlockBuilder, call: Any) -> Any:
    """Legalise ``relax.concat``; for ``LegalizeOps(customize_legalize_map=...)``.

    Tensors that are joined along their innermost axis, and whose extents there have a multiple of 8
    as a common divisor, become `concatenate`. Everything else is legalised by TVM. ``builder``: the
    builder that emits the kernel. ``call``: a call of ``relax.concat``. Returns a ``call_tir``, or
    the only tensor that has elements: tensors without elements are left out.
    """
    filled = _filled(call)
    if len(filled) == 1:
        return filled[0]
    if filled and len(filled) < len(call.args[0].ty.fields):
        call = builder.normalize(relax.op.concat(filled, call.attrs.axis))
    extents = _innermost_extents(call)
    if not extents or gcd(*extents) % _MIN_VECTOR:
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
        attrs={"schedule_rule": CONCATENATION_RULE, _EXTENT: gcd(*extents)},
    )


def _filled(call: Any) -> list[Any]:
    """The tensors that have elements; empty where the tuple is a variable or the axis is none."""
    fields = call.args[0]
    if not isinstance(fields, relax.Tuple) or call.attrs.axis is None:
        return []
    shapes = [shape_of_type(each) for each in fields.ty.fields]
    return [field for field, shape in zip(fields, shapes, strict=True) if not shape or all(shape)]


def _innermost_extents(call: Any) -> list[int]:
    """The last extents of the tensors that are joined there; empty in all other cases."""
    shapes = [shape_of_type(each) for each in call.args[0].ty.fields]
    known = [shape for shape in shapes if shape is not None]
    axis = call.attrs.axis
    if len(known) < len(shapes) or axis is None or len(known[0]) < 2:
        return []
    rank = len(known[0])
    return [shape[-1] for shape in known] if int(axis) % rank == rank - 1 else []


def schedule_concatenation(schedule: Schedule, block: SBlockRV) -> list[Schedule]:
    """Inline the concatenation into what follows, and vectorise within a part."""
    extent = int(schedule.get(block).annotations[_EXTENT])
    chain = elementwise_chain(schedule, block)
    if chain is None or (chain and extents_of(schedule, chain[0]) != extents_of(schedule, block)):
        schedule.unannotate(block, "schedule_rule")
        return [schedule]  # TVM's default design space.
    *producers, last = [block, *chain]
    for producer in producers:
        schedule.compute_inline(producer)
    vectorize_channels(schedule, last, extent)
    return [schedule]
