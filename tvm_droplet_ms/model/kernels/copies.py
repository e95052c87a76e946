# SPDX-License-Identifier: Apache-2.0
"""Concatenations with a branch per vector or by copies, and pads of bytes by copies.

TVM's concatenation nests one branch per tensor: 64 tensors took 41 s to compile. A branch per byte
keeps LLVM from vectorizing a pad that is fused with the rounding of an image.
"""

from collections.abc import Sequence
from functools import partial
from math import gcd
from typing import Any

from tvm import relax, te, tirx
from tvm.s_tir import Schedule
from tvm.s_tir.schedule import SBlockRV
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from ..bindings import shape_of_type, static_shape
from ..scheduled import emit_scheduled
from .channel_vectors import elementwise_chain, extents_of, vectorize_channels
from .kernel_pass import legalize_as_tvm

CONCATENATION_RULE = "tvm_droplet_ms.concatenation"
_EXTENT = "tvm_droplet_ms.common_extent"
_MIN_VECTOR = 8
_MOST_BRANCHES = 32
"""Maximum number of tensors to join with branches."""


def legalize_concatenation(builder: relax.BlockBuilder, call: Any) -> Any:
    """Legalize ``relax.concat``; tensors without elements are dropped.

    `concatenate` joins tensors along their innermost axis if their extents there have a multiple of
    8 as a common divisor. More than ``_MOST_BRANCHES`` tensors are copied one by one. TVM legalizes
    everything else.
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
        return legalize_as_tvm(builder, call)
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
                    before = [start if n == axis else 0 for n in range(len(shape))]
                    _copy(part, outputs[0], before)
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


def legalize_pad(builder: relax.BlockBuilder, call: Any) -> Any:
    """Legalize ``relax.nn.pad``.

    Byte tensors of known extents with constant padding get a kernel of this module, which is not
    tuned. TVM legalizes everything else.
    """
    attrs = call.attrs
    source, shape = static_shape(call.args[0]), static_shape(call)
    is_constant = str(attrs.pad_mode) == "constant"
    is_known = source is not None and shape is not None and 0 not in source
    is_copy = all(int(width) >= 0 for width in attrs.pad_width)  # Negative widths crop.
    is_of_bytes = str(call.ty.dtype) in ("uint8", "int8")
    if not (is_of_bytes and is_constant and is_copy and is_known and shape):
        return legalize_as_tvm(builder, call)
    before, value = [int(width) for width in attrs.pad_width[::2]], int(attrs.pad_value)

    def statements(inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
        target = outputs[0]
        with IRBuilder() as builder:
            with T.attr(0, "padding", 1):  # The builder expects one statement.
                with T.grid(*target.shape) as place:
                    T.buffer_store(target, tirx.const(value, str(target.dtype)), _indices(place))
                _copy(inputs[0], target, before)
            return builder.get()

    def padded(data: te.Tensor) -> list[te.Tensor]:
        return [te.extern([shape], [data], statements, dtype=[data.dtype], name="pad_bytes")]

    return emit_scheduled(builder, padded, [call.args[0]], "pad_bytes")


def _copy(source: Any, target: Any, before: Sequence[int]) -> None:
    """Copy a tensor; ``before``: the place of its first element in the target."""
    with T.grid(*source.shape) as place:
        at = _indices(place)
        moved = [n + start for n, start in zip(at, before, strict=True)]
        T.buffer_store(target, source[tuple(at)], moved)


def _indices(place: Any) -> list[Any]:
    """Return the variables of a loop nest as a list; a single loop gives a bare variable."""
    return [place] if isinstance(place, tirx.Var) else list(place)
