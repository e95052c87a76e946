# SPDX-License-Identifier: Apache-2.0
"""Converters for operators that make, move or write elements, and for sequences."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import onnx

from tvm import relax, te, tirx, topi
from tvm.relax import op
from tvm.relax.frontend.onnx import onnx_frontend

from .....model.indices import scatter
from ..folding import as_array
from ..operands import (
    Attributes,
    UnsupportedNode,
    WrongExtent,
    constant,
    constant_input,
    converts,
    dtype_of,
    integers,
    part,
    parts,
    shape_of,
    text,
    tvms,
    windows_of,
)


@converts("Expand")
def expand(bb: Any, inputs: Any, attr: Attributes) -> Any:
    """TVM keeps an extent of 1 where the shape is not computed."""
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
    return op.broadcast_to(inputs[0], relax.ShapeExpr(list(result)))


@converts("ConstantOfShape")
def constant_of_shape(bb: Any, inputs: Any, attr: Attributes) -> Any:
    """A constant where the shape is one; TVM's converter fills a tensor at run time."""
    shape = as_array(inputs[0])
    if shape is None:
        return tvms("ConstantOfShape", bb, inputs, attr)
    value = attr.get("value")
    fill = np.zeros(1, np.float32) if value is None else onnx.numpy_helper.to_array(value)
    return constant(np.full([int(extent) for extent in shape], fill.item(), fill.dtype))


def _with_list_of_axes(operator: str, bb: Any, inputs: Any, attr: Attributes) -> Any:
    """Accept a scalar as the list of axes, as ONNX Runtime does."""
    axes = as_array(inputs[1]) if len(inputs) > 1 else None
    if axes is not None and not axes.ndim:
        inputs = [inputs[0], integers(axes.reshape(1))]
    return tvms(operator, bb, inputs, attr)


converts("Squeeze")(partial(_with_list_of_axes, "Squeeze"))
converts("Unsqueeze")(partial(_with_list_of_axes, "Unsqueeze"))


@converts("OneHot")
def one_hot(bb: Any, inputs: Any, attr: Attributes) -> Any:
    """Compare with the positions, as TVM's converter makes integers float64.

    A negative index counts from the end, and an index out of bounds selects nothing.
    """
    depth, pair = (as_array(inputs[n]) for n in (1, 2))
    rank = inputs[0].ty.ndim
    if depth is None or pair is None or pair.size != 2 or rank < 0:
        return tvms("OneHot", bb, inputs, attr)
    extent, axis = int(depth.reshape(-1)[0]), int(attr.get("axis", -1)) % (rank + 1)
    positions = np.arange(extent).reshape([extent, *[1] * (rank - axis)])
    column = bb.emit(op.expand_dims(inputs[0].astype("int64"), axis))
    is_on = [op.equal(column, integers(each)) for each in (positions, positions - extent)]
    off, on = (constant(each) for each in pair.reshape(-1))
    return op.where(op.logical_or(*is_on), on, off)


@converts("Slice")
def slice_of_attributes(bb: Any, inputs: Any, attr: Attributes) -> Any:
    """Before version 10, bounds are attributes."""
    axes = attr.get("axes", tuple(range(len(attr["starts"]))))
    bounds = [integers(each) for each in (attr["starts"], attr["ends"], axes)]
    return slice_of_inputs(bb, [inputs[0], *bounds], attr)


@converts("Slice", since=10)
def slice_of_inputs(bb: Any, inputs: Any, attr: Attributes) -> Any:
    """Put 0 and 0 in place of bounds that select nothing.

    TVM computes a negative extent if the end is before the start.
    """
    given = [*inputs, None, None][1:5]
    known = [None if each is None else as_array(each) for each in given]
    starts, ends, axes, steps = known
    is_open = any(found is None and each is not None for found, each in zip(known, given))
    if bounded := _bounded(bb, inputs[0], given, axes, steps):
        return tvms("Slice", bb, bounded, attr)
    if starts is None or ends is None or is_open or isinstance(inputs[0], relax.ShapeExpr):
        return tvms("Slice", bb, inputs, attr)
    try:
        shape = shape_of(inputs[0])
    except UnsupportedNode:  # TVM's converter slices tensors of unknown extents.
        return tvms("Slice", bb, inputs, attr)
    axes = np.arange(starts.size) if axes is None else axes
    steps = np.ones_like(starts) if steps is None else steps.copy()
    starts, ends = starts.copy(), ends.copy()
    for n, axis in enumerate(axes.tolist()):
        start, end, step = (int(each[n]) for each in (starts, ends, steps))
        if step and not range(*slice(start, end, step).indices(shape[axis])):
            starts[n], ends[n], steps[n] = 0, 0, 1
    return tvms("Slice", bb, [inputs[0], *map(integers, (starts, ends, axes, steps))], attr)


def _bounded(bb: Any, data: Any, given: Any, axes: Any, steps: Any) -> list[Any] | None:
    """The inputs of a slice whose bounds are computed, with ends at or after the starts.

    None for a slice that this is not about: of constant bounds, backwards, or of unknown extents.
    """
    starts, ends, given_axes, given_steps = given
    if as_array(starts) is not None and as_array(ends) is not None:
        return None
    if (axes is None) != (given_axes is None) or (steps is None) != (given_steps is None):
        return None
    if isinstance(data, relax.ShapeExpr) or (steps is not None and (steps <= 0).any()):
        return None
    try:
        extents = np.array(shape_of(data), "int64")
        (count,) = shape_of(starts)
    except (UnsupportedNode, ValueError):
        return None
    axes = np.arange(count) if axes is None else axes
    limit, zero = integers(extents[axes]), integers(np.zeros(count))

    def inside(bound: Any) -> Any:
        wide = bb.normalize(op.astype(bound, "int64"))
        from_end = op.where(op.less(wide, zero), op.add(wide, limit), wide)
        return bb.normalize(op.minimum(op.maximum(from_end, zero), limit))

    first = inside(starts)
    last = bb.normalize(op.maximum(inside(ends), first))
    return [data, first, last, integers(axes), integers(np.ones(count) if steps is None else steps)]


@converts("Split")
def split(bb: Any, inputs: Any, attr: Attributes) -> Any:
    """Split into parts, among them empty ones and a shorter last part."""
    data, axis = inputs[0], attr.get("axis", 0)
    extent = shape_of(data)[axis]
    given = constant_input(inputs, 1, "split")
    sizes = attr.get("split") if given is None else given.tolist()
    if not sizes:
        count = attr.get("num_outputs", attr["tvm_custom"]["num_outputs"])
        size = -(-extent // count)
        sizes = [min(size, max(extent - size * n, 0)) for n in range(count)]
    ends = np.cumsum([int(size) for size in sizes]).tolist()
    if ends[-1] != extent:
        raise WrongExtent(f"its parts {list(sizes)} are not the extent {extent}")
    if all(sizes):
        return op.split(data, ends[:-1], axis) if len(sizes) > 1 else data
    return relax.Tuple(parts(bb, data, axis, [int(size) for size in sizes]))


_SORTED = ("float16", "float32", "float64", "int8", "int32", "int64", "uint8")
"""The types that TVM's runtime sorts."""


@converts("TopK")
def top_k(bb: Any, inputs: Any, attr: Attributes) -> Any:
    """One element needs no order; several unsorted ones are refused."""
    if dtype_of(inputs[0]) not in _SORTED:
        raise UnsupportedNode(f"it is of {dtype_of(inputs[0])}: expected one of {_SORTED}")
    count = constant_input(inputs, 1, "K")
    if count is not None and count.size == 1 and count.item() == 1:
        attr = {**attr, "sorted": 1}
    return tvms("TopK", bb, inputs, attr)


@converts("EyeLike")
def eye_like(bb: Any, inputs: Any, attr: Attributes) -> Any:
    """A constant, as the extents are known."""
    dtype = onnx_frontend.get_type(attr["dtype"]) if "dtype" in attr else dtype_of(inputs[0])
    rows, columns = shape_of(inputs[0])
    return constant(np.eye(rows, columns, attr.get("k", 0)), dtype)


@converts("SpaceToDepth")
def space_to_depth(bb: Any, inputs: Any, attr: Attributes) -> Any:
    """Blocks become channels, in either order."""
    size = int(attr["blocksize"])
    n, c, h, w = shape_of(inputs[0])
    apart = op.reshape(inputs[0], [n, c, h // size, size, w // size, size])
    order = [0, 1, 3, 5, 2, 4] if text(attr, "mode", "DCR") == "CRD" else [0, 3, 5, 1, 2, 4]
    return op.reshape(op.permute_dims(apart, order), [n, c * size * size, h // size, w // size])


@converts("ReverseSequence")
def reverse_sequence(bb: Any, inputs: Any, attr: Attributes) -> Any:
    """Each sequence of a batch is reversed within its own length.

    TOPI's operator would need a known batch.
    """
    time, batch = attr.get("time_axis", 0), attr.get("batch_axis", 1)

    def reverse(data: te.Tensor, lengths: te.Tensor) -> te.Tensor:
        def element(*place: Any) -> Any:
            at = place[time]
            length = tirx.min(lengths[place[batch]].astype(at.ty.dtype), data.shape[time])
            back = tirx.Select(at < length, length - 1 - at, at)
            return data(*place[:time], back, *place[time + 1 :])

        return te.compute(data.shape, element, name="reverse", tag=topi.tag.INJECTIVE)

    return bb.emit_te(reverse, *inputs[:2], primfunc_name_hint="reverse_sequence")


@converts("BitCast")
def bit_cast(bb: Any, inputs: Any, attr: Attributes) -> Any:
    """The bits of a number as another type of the same size."""
    dtype = onnx_frontend.get_type(attr["to"])
    if "bool" in (dtype, dtype_of(inputs[0])):  # One bit in LLVM, and a byte in memory.
        return inputs[0].astype(dtype)

    def reinterpret(data: te.Tensor) -> te.Tensor:
        def element(*place: Any) -> Any:
            return tirx.reinterpret(dtype, data(*place))

        return te.compute(data.shape, element, name="bitcast", tag=topi.tag.ELEMWISE)

    return bb.emit_te(reinterpret, inputs[0], primfunc_name_hint="bitcast")


@converts("Col2Im")
def col2im(bb: Any, inputs: Any, attr: Attributes) -> Any:
    """Add blocks where they overlap."""
    image = constant_input(inputs, 1, "image_shape")
    block = constant_input(inputs, 2, "block_shape")
    if image is None or block is None:
        raise UnsupportedNode("it lacks an input")
    extents, sizes = image.tolist(), block.tolist()
    rank = len(extents)
    strides, dilations, pads = windows_of(attr, rank)
    room = [extents[n] + pads[n] + pads[rank + n] for n in range(rank)]
    steps = [(room[n] - dilations[n] * (sizes[n] - 1) - 1) // strides[n] + 1 for n in range(rank)]
    batch, rows, _ = shape_of(inputs[0])
    channels = rows // int(np.prod(sizes))
    data = bb.emit(op.reshape(inputs[0], [batch, channels, *sizes, *steps]))

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
            zero = tirx.const(0, data.dtype)
            return te.sum(tirx.if_then_else(tirx.all(*inside), data[source], zero), axis=inner)

        return te.compute([batch, channels, *extents], element, name="col2im")

    return bb.emit_te(add_blocks, data, primfunc_name_hint="col2im")


@converts("SequenceInsert")
def sequence_insert(bb: Any, inputs: Any, attr: Attributes) -> Any:
    """TVM's converter is off by one at negative positions."""
    items = list(inputs[0])
    given = constant_input(inputs, 2, "position")
    position = len(items) if given is None else int(given.item())
    if not -len(items) <= position <= len(items):
        raise UnsupportedNode(f"its position {position} is not in a sequence of {len(items)}")
    items.insert(position, inputs[1])
    return relax.Tuple(items)


@converts("SplitToSequence")
def split_to_sequence(bb: Any, inputs: Any, attr: Attributes) -> Any:
    """Split into parts of equal or given sizes."""
    data, given = inputs[0], constant_input(inputs, 1, "split")
    shape = shape_of(data)
    axis = attr.get("axis", 0) % len(shape)
    if given is None or given.ndim == 0:
        starts = list(range(0, shape[axis], 1 if given is None else int(given)))
    else:
        starts = [0, *np.cumsum(given)[:-1].tolist()]
    ends = [*starts[1:], shape[axis]]
    found = [bb.emit(part(data, axis, *ends)) for ends in zip(starts, ends, strict=True)]
    if given is None and not attr.get("keepdims", 1):
        found = [bb.emit(op.squeeze(each, [axis])) for each in found]
    return relax.Tuple(found)


_REDUCTIONS = {"none": "update", "add": "add", "mul": "mul", "max": "max", "min": "min"}


@converts("ScatterElements", "Scatter")
def scatter_elements(bb: Any, inputs: Any, attr: Attributes) -> Any:
    """Write, or combine, elements at indices along an axis."""
    name = text(attr, "reduction", "none")
    if name not in _REDUCTIONS:
        raise UnsupportedNode(f"its reduction is {name!r}: expected one of {[*_REDUCTIONS]}")
    return _scattered(bb, inputs[:3], attr.get("axis", 0), _REDUCTIONS[name])


@converts("MaxUnpool")
def max_unpool(bb: Any, inputs: Any, attr: Attributes) -> Any:
    """Write the values to their positions in a tensor of zeros."""
    data, indices = inputs[:2]
    shape, kernel = shape_of(data), attr["kernel_shape"]
    rank = len(kernel)
    strides, _, pads = windows_of(attr, rank)
    sizes = [
        (shape[n + 2] - 1) * strides[n] + kernel[n] - pads[n] - pads[rank + n] for n in range(rank)
    ]
    # As in ONNX Runtime, the positions refer to the requested shape.
    given = constant_input(inputs, 2, "output_shape")
    wanted = [*shape[:2], *sizes] if given is None else [int(extent) for extent in given]
    zeros = constant(np.zeros(int(np.prod(wanted))), dtype_of(data))
    flat = [bb.emit(op.reshape(each, [-1])) for each in (indices, data)]
    return op.reshape(_scattered(bb, [zeros, *flat], 0, "update"), wanted)


@converts("TensorScatter")
def tensor_scatter(bb: Any, inputs: Any, attr: Attributes) -> Any:
    """Write into a cache from a start index on."""
    cache, rows, starts = (inputs[n] for n in range(3))
    shape = shape_of(cache)
    axis = attr.get("axis", -2) % len(shape)
    starts = integers(np.zeros(shape[0])) if starts is None else starts
    return written_from(bb, cache, rows, starts, axis, text(attr, "mode", "linear") == "circular")


def written_from(
    bb: Any, cache: Any, rows: Any, starts: Any, axis: int, is_circular: bool = False
) -> Any:
    """A cache with rows written along an axis, from a start index for each batch element.

    ``starts``: (batch,), or one element for all.
    """
    shape, size = shape_of(cache), shape_of(rows)
    column = [size[axis] if n == axis else 1 for n in range(len(shape))]
    offsets = integers(np.arange(size[axis]).reshape(column))
    starts = bb.emit(starts.astype("int64"))
    places = bb.emit(op.reshape(starts, [-1, *(1 for _ in shape[1:])]) + offsets)
    if is_circular:
        places = bb.emit(op.floor_mod(places, integers(shape[axis])))
    places = bb.emit(op.broadcast_to(places, size))
    return bb.emit(op.scatter_elements(cache, places, rows, axis, "update"))


def _scattered(bb: Any, tensors: Sequence[Any], axis: int, reduction: str) -> Any:
    """A copy of the first tensor, with the third written at the indices in the second."""
    write = partial(op.scatter_elements, reduction=reduction)
    return bb.emit(scatter(bb.emit, tensors, axis, write))
