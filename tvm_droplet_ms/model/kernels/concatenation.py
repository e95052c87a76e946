# SPDX-License-Identifier: Apache-2.0
"""Concatenation along the innermost axis with a branch per vector, and of many tensors by copies.

TVM's kernel nests one branch per tensor. A concatenation of the 64 results of a loop's steps took
41 s to compile.
"""

from collections.abc import Sequence
from functools import partial
from math import gcd
from typing import Any

import tvm
from tvm import relax, te, tirx
from tvm.s_tir import Schedule
from tvm.s_tir.schedule import SBlockRV
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from ..bindings import shape_of_type
from ..scheduled import emit_scheduled
from .pool_rules import elementwise_chain, extents_of, vectorize_channels

CONCATENATION_RULE = "tvm_droplet_ms.concatenation"
_EXTENT = "tvm_droplet_ms.common_extent"
_MIN_VECTOR = 8
_MOST_BRANCHES = 32
"""Maximum number of tensors to join with branches."""


def legalize_concatenation(builder: relax.BlockBuilder, call: Any) -> Any:
    """Legalize ``relax.concat``; for ``LegalizeOps(customize_legalize_map=...)``.

    `concatenate` joins tensors along their innermost axis if their extents there have a multiple of
    8 as a common divisor. More than ``_MOST_BRANCHES`` tensors are copied one by one. TVM legalizes
    everything else. ``builder``: the builder that emits the kernel. ``call``: a call of
    ``relax.concat``. Returns a ``call_tir``, or the only tensor with elements: tensors without
    elements are dropped.
    """
    filled = _filled(call)
    is_less = 0 < len(filled) < len(call.args[0].ty.fields)
    if is_less and len(filled) == 1:
        return filled[0]
    if is_less:
        call = builder.normalize(relax.op.concat(filled, call.attrs.axis))
    if len(filled) > _MOST_BRANCHES and all(shape_of_type(part.ty) for part in filled):
        axis = int(call.attrs.axis) % len(call.ty.shape)
        return emit_scheduled(builder, partial(_copies, axis), filled, "concatenate_copies")
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

    The expression is TOPI's (``include/tvm/topi/transform.h``, ``concatenate``). Its block requests
    a schedule rule that splits the axis so that each vector lies in one part. So the branch has a
    scalar condition. ``parts``: tensors of equal shapes except for the last extent. Returns a
    tensor whose last extent is the sum of the parts' last extents.
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


def _copies(axis: int, *parts: te.Tensor) -> list[te.Tensor]:
    """Concatenate tensors along an axis by copying them one after the other."""
    shape = list(parts[0].shape)
    shape[axis] = sum(int(part.shape[axis]) for part in parts)

    def statements(inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
        with IRBuilder() as builder:
            with T.attr(0, "copies", 1):  # The builder expects one statement.
                start = 0
                for part in inputs:
                    with T.grid(*part.shape) as indices:
                        # A single axis gives a bare variable instead of a tuple.
                        source = [indices] if len(part.shape) == 1 else list(indices)
                        at = [e + start if n == axis else e for n, e in enumerate(source)]
                        T.buffer_store(outputs[0], part[tuple(source)], at)
                    start += int(part.shape[axis])
            return builder.get()

    return [te.extern([shape], list(parts), statements, dtype=[parts[0].dtype], name="copies")]


def _filled(call: Any) -> list[Any]:
    """Return the tensors with elements; empty if the tuple is a variable or the axis is None."""
    fields = call.args[0]
    if not isinstance(fields, relax.Tuple) or call.attrs.axis is None:
        return []
    shapes = [shape_of_type(each) for each in fields.ty.fields]
    return [field for field, shape in zip(fields, shapes, strict=True) if not shape or all(shape)]


def _innermost_extents(call: Any) -> list[int]:
    """Return the last extents of tensors that are joined along the last axis; otherwise empty."""
    shapes = [shape_of_type(each) for each in call.args[0].ty.fields]
    known = [shape for shape in shapes if shape is not None]
    axis = call.attrs.axis
    if len(known) < len(shapes) or axis is None or len(known[0]) < 2:
        return []
    rank = len(known[0])
    return [shape[-1] for shape in known] if int(axis) % rank == rank - 1 else []


def schedule_concatenation(schedule: Schedule, block: SBlockRV) -> list[Schedule]:
    """Inline the concatenation into its consumers, and vectorize within a part."""
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
