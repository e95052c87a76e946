# SPDX-License-Identifier: Apache-2.0
"""Converters for operators that move elements, and for sequences of known length."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tvm import relax, te, tirx, topi
from tvm.relax.frontend.onnx import onnx_frontend
from tvm.relax.frontend.onnx.onnx_frontend import OnnxOpConverter

from ..folding import as_array
from ..operands import UnsupportedNode, WrongExtent, constant_input, dtype_of, shape_of, text


class Expand(OnnxOpConverter):  # type: ignore[misc, unused-ignore]
    """Converts an ONNX ``Expand``. TVM keeps an extent of 1 where the shape is not computed."""

    @classmethod
    def _impl_v8(cls, bb: Any, inputs: Sequence[Any], attr: dict[str, Any], params: Any) -> Any:
        wanted = constant_input(inputs, 1, "shape")
        if wanted is None:
            raise UnsupportedNode("it has no input 'shape'")
        shape = shape_of(inputs[0])
        try:
            result = np.broadcast_shapes(tuple(shape), tuple(int(extent) for extent in wanted))
        except ValueError as error:
            raise WrongExtent(
                f"its input {tuple(shape)} does not broadcast to {tuple(wanted.tolist())}"
            ) from error
        if list(result) == shape:
            return inputs[0]
        return relax.op.broadcast_to(inputs[0], relax.ShapeExpr(list(result)))


class Slice(onnx_frontend.Slice):  # type: ignore[misc, name-defined, unused-ignore]
    """Converts an ONNX ``Slice`` of any operator set. Before version 10, bounds are attributes."""

    @classmethod
    def _impl_v1(cls, bb: Any, inputs: Sequence[Any], attr: dict[str, Any], params: Any) -> Any:
        bounds = [relax.const(np.array(attr[name], np.int64)) for name in ("starts", "ends")]
        axes = attr.get("axes", tuple(range(len(attr["starts"]))))
        arguments = onnx_frontend.onnx_input()
        arguments.extend([inputs[0], *bounds, relax.const(np.array(axes, np.int64))])
        return cls._impl_v13(bb, arguments, attr, params)

    @classmethod
    def _impl_v10(cls, bb: Any, inputs: Sequence[Any], attr: dict[str, Any], params: Any) -> Any:
        return cls._impl_v13(bb, inputs, attr, params)

    @classmethod
    def _impl_v13(cls, bb: Any, inputs: Sequence[Any], attr: dict[str, Any], params: Any) -> Any:
        return super()._impl_v13(bb, _without_backward_bounds(inputs), attr, params)


def _without_backward_bounds(inputs: Any) -> Any:
    """The inputs of a ``Slice``, with 0 and 0 in place of bounds that select nothing.

    TVM computes a negative extent if the end is before the start.
    """
    given = [*inputs, None, None][1:5]
    known = [None if each is None else as_array(each) for each in given]
    starts, ends, axes, steps = known
    if starts is None or ends is None or isinstance(inputs[0], relax.ShapeExpr):
        return inputs
    if any(found is None and each is not None for found, each in zip(known, given, strict=True)):
        return inputs
    axes = np.arange(starts.size) if axes is None else axes
    steps = np.ones_like(starts) if steps is None else steps.copy()
    try:
        shape = shape_of(inputs[0])
    except UnsupportedNode:
        return inputs  # TVM's converter slices tensors of unknown extents.
    starts, ends = starts.copy(), ends.copy()
    for n, axis in enumerate(axes.tolist()):
        start, end, step = (int(each[n]) for each in (starts, ends, steps))
        if step and not range(*slice(start, end, step).indices(shape[axis])):
            starts[n], ends[n], steps[n] = 0, 0, 1
    bounds = [relax.const(each.astype(np.int64), "int64") for each in (starts, ends, axes, steps)]
    changed = onnx_frontend.onnx_input()
    changed.extend([inputs[0], *bounds])
    return changed


class Split(OnnxOpConverter):  # type: ignore[misc, unused-ignore]
    """Converts an ONNX ``Split``, including empty parts and a shorter last part."""

    @classmethod
    def _impl_v1(cls, bb: Any, inputs: Sequence[Any], attr: dict[str, Any], params: Any) -> Any:
        data, axis = inputs[0], attr.get("axis", 0)
        extent = shape_of(data)[axis]
        given = constant_input(inputs, 1, "split")
        sizes = attr.get("split") if given is None else given.tolist()
        if not sizes:
            count = attr.get("num_outputs", attr["tvm_custom"]["num_outputs"])
            size = -(-extent // count)
            sizes = [min(size, max(extent - size * part, 0)) for part in range(count)]
        ends = np.cumsum([int(size) for size in sizes])
        if ends[-1] != extent:
            raise WrongExtent(f"its parts {list(sizes)} are not the extent {extent}")
        if all(sizes):
            parts = relax.op.split(data, [int(end) for end in ends[:-1]], axis)
            return parts if len(sizes) > 1 else data
        return relax.Tuple(
            [
                bb.emit(relax.op.strided_slice(data, [axis], [int(end - size)], [int(end)]))
                for size, end in zip(sizes, ends, strict=True)
            ]
        )


_SORTED = ("float16", "float32", "float64", "int8", "int32", "int64", "uint8")
"""The types that TVM's runtime sorts."""


class TopK(onnx_frontend.TopK):  # type: ignore[misc, name-defined, unused-ignore]
    """Converts an ONNX ``TopK``. One element needs no order; several unsorted ones are refused."""

    @classmethod
    def _impl_v11(cls, bb: Any, inputs: Sequence[Any], attr: dict[str, Any], params: Any) -> Any:
        if dtype_of(inputs[0]) not in _SORTED:
            raise UnsupportedNode(f"it is of {dtype_of(inputs[0])}: expected one of {_SORTED}")
        count = constant_input(inputs, 1, "K")
        if count is not None and count.size == 1 and count.item() == 1:
            attr = {**attr, "sorted": 1}
        return super()._impl_v11(bb, inputs, attr, params)


class EyeLike(OnnxOpConverter):  # type: ignore[misc, unused-ignore]
    """Converts an ONNX ``EyeLike``: a constant, as the extents are known."""

    @classmethod
    def _impl_v9(cls, bb: Any, inputs: Sequence[Any], attr: dict[str, Any], params: Any) -> Any:
        dtype = dtype_of(inputs[0])
        if "dtype" in attr:
            dtype = onnx_frontend.get_type(attr["dtype"])
        rows, columns = shape_of(inputs[0])
        return relax.const(np.eye(rows, columns, attr.get("k", 0)).astype(dtype), dtype)


class SpaceToDepth(OnnxOpConverter):  # type: ignore[misc, unused-ignore]
    """Converts an ONNX ``SpaceToDepth`` in either order of the blocks."""

    @classmethod
    def _impl_v1(cls, bb: Any, inputs: Sequence[Any], attr: dict[str, Any], params: Any) -> Any:
        size = int(attr["blocksize"])
        n, c, h, w = shape_of(inputs[0])
        split = relax.op.reshape(inputs[0], [n, c, h // size, size, w // size, size])
        order = [0, 1, 3, 5, 2, 4] if text(attr, "mode", "DCR") == "CRD" else [0, 3, 5, 1, 2, 4]
        moved = relax.op.permute_dims(split, order)
        return relax.op.reshape(moved, [n, c * size * size, h // size, w // size])


class ReverseSequence(OnnxOpConverter):  # type: ignore[misc, unused-ignore]
    """Converts an ONNX ``ReverseSequence``."""

    @classmethod
    def _impl_v10(cls, bb: Any, inputs: Sequence[Any], attr: dict[str, Any], params: Any) -> Any:
        time, batch = attr.get("time_axis", 0), attr.get("batch_axis", 1)

        def reverse(data: te.Tensor, lengths: te.Tensor) -> te.Tensor:
            def element(*place: Any) -> Any:
                length = lengths[place[batch]].astype(place[time].ty.dtype)
                back = tirx.Select(place[time] < length, length - 1 - place[time], place[time])
                source = (*place[:time], back, *place[time + 1 :])
                return data[source]

            return te.compute(data.shape, element, name="reverse", tag=topi.tag.INJECTIVE)

        return bb.emit_te(reverse, inputs[0], inputs[1], primfunc_name_hint="reverse_sequence")


class BitCast(OnnxOpConverter):  # type: ignore[misc, unused-ignore]
    """Converts an ONNX ``BitCast`` between types of one size."""

    @classmethod
    def _impl_v26(cls, bb: Any, inputs: Sequence[Any], attr: dict[str, Any], params: Any) -> Any:
        dtype = onnx_frontend.get_type(attr["to"])
        if "bool" in (dtype, dtype_of(inputs[0])):  # One bit in LLVM, and a byte in memory.
            return relax.op.astype(inputs[0], dtype)

        def reinterpret(data: te.Tensor) -> te.Tensor:
            return te.compute(
                data.shape,
                lambda *place: tirx.reinterpret(dtype, data(*place)),
                name="bitcast",
                tag=topi.tag.ELEMWISE,
            )

        return bb.emit_te(reinterpret, inputs[0], primfunc_name_hint="bitcast")


class Col2Im(OnnxOpConverter):  # type: ignore[misc, unused-ignore]
    """Converts an ONNX ``Col2Im``, which adds blocks where they overlap."""

    @classmethod
    def _impl_v18(cls, bb: Any, inputs: Sequence[Any], attr: dict[str, Any], params: Any) -> Any:
        image = constant_input(inputs, 1, "image_shape")
        block = constant_input(inputs, 2, "block_shape")
        if image is None or block is None:
            raise UnsupportedNode("it lacks an input")
        extents, sizes = image.tolist(), block.tolist()
        rank = len(extents)
        strides = attr.get("strides", [1] * rank)
        dilations = attr.get("dilations", [1] * rank)
        pads = attr.get("pads", [0] * (2 * rank))
        steps = [
            (extents[n] + pads[n] + pads[rank + n] - dilations[n] * (sizes[n] - 1) - 1)
            // strides[n]
            + 1
            for n in range(rank)
        ]
        batch, rows, _ = shape_of(inputs[0])
        channels = rows // int(np.prod(sizes))
        shape = [batch, channels, *sizes, *steps]
        data = bb.emit(relax.op.reshape(inputs[0], shape))

        def add_blocks(data: te.Tensor) -> te.Tensor:
            inner = [te.reduce_axis((0, size), name=f"k{n}") for n, size in enumerate(sizes)]

            def element(b: Any, c: Any, *place: Any) -> Any:
                ats, inside = [], []
                for n in range(rank):
                    offset = place[n] + pads[n] - inner[n] * dilations[n]
                    at = tirx.floordiv(offset, strides[n])
                    ats.append(at)
                    inside += [tirx.floormod(offset, strides[n]) == 0, at >= 0, at < steps[n]]
                source = (b, c, *inner, *ats)
                value = data[source]
                zero = tirx.const(0, data.dtype)
                return te.sum(tirx.if_then_else(tirx.all(*inside), value, zero), axis=inner)

            return te.compute([batch, channels, *extents], element, name="col2im")

        return bb.emit_te(add_blocks, data, primfunc_name_hint="col2im")


class SequenceInsert(OnnxOpConverter):  # type: ignore[misc, unused-ignore]
    """Converts an ONNX ``SequenceInsert``. TVM's converter is off by one at negative positions."""

    @classmethod
    def _impl_v11(cls, bb: Any, inputs: Sequence[Any], attr: dict[str, Any], params: Any) -> Any:
        items = list(inputs[0])
        given = constant_input(inputs, 2, "position")
        position = len(items) if given is None else int(given.item())
        if not -len(items) <= position <= len(items):
            raise UnsupportedNode(f"its position {position} is not in a sequence of {len(items)}")
        items.insert(position, inputs[1])
        return relax.Tuple(items)


class SplitToSequence(OnnxOpConverter):  # type: ignore[misc, unused-ignore]
    """Converts an ONNX ``SplitToSequence`` into parts of equal or given sizes."""

    @classmethod
    def _impl_v11(cls, bb: Any, inputs: Sequence[Any], attr: dict[str, Any], params: Any) -> Any:
        data, given = inputs[0], constant_input(inputs, 1, "split")
        shape = shape_of(data)
        axis = attr.get("axis", 0) % len(shape)
        if given is None or given.ndim == 0:
            size = 1 if given is None else int(given)
            starts = list(range(0, shape[axis], size))
        else:
            starts = [0, *np.cumsum(given)[:-1].tolist()]
        parts = [
            bb.emit(relax.op.strided_slice(data, [axis], [start], [end]))
            for start, end in zip(starts, [*starts[1:], shape[axis]], strict=True)
        ]
        if given is None and not attr.get("keepdims", 1):
            parts = [bb.emit(relax.op.squeeze(part, [axis])) for part in parts]
        return relax.Tuple(parts)
