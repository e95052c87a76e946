# SPDX-License-Identifier: Apache-2.0
"""Constant folding with NumPy, and operations whose result is one of their operands.

``relax.transform.FoldConstant`` compiles a function for each shape, which takes 20 to 50 s for a
typical convolutional network. NumPy takes less than a second.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tvm_ffi

import tvm
from tvm import relax

from ..bindings import Bindings, Expr, constant, operator_name, static_shape
from ..rewriting import Emit, operator_pass

Array = np.ndarray[Any, Any]

# Two float32 blocks of 256 KB each fit into the L2 cache.
BLOCK = 256

RESHAPES = {"relax.reshape", "relax.flatten", "relax.expand_dims", "relax.squeeze"}
ARITHMETIC: dict[str, Callable[..., Array]] = {
    f"relax.{name}": getattr(np, name)
    for name in "add subtract multiply divide maximum minimum negative sqrt".split()
}
COMPARISONS: dict[str, Callable[..., Array]] = {
    f"relax.{name}": getattr(np, name)
    for name in "less less_equal greater greater_equal equal not_equal where".split()
}
OF_INTEGERS = ("relax.add", "relax.subtract", "relax.multiply", "relax.maximum", "relax.minimum")
"""Arithmetic that is the same for integers. Importers compute indices with it."""


MOST_ZEROS = 1 << 14
"""Maximum number of elements of a stored tensor of zeros: an initial state, not a canvas."""


def transposed(matrix: Array) -> Array:
    """Transpose a matrix into new memory block by block, so that the blocks stay in the cache."""
    rows, columns = matrix.shape
    result = np.empty((columns, rows), matrix.dtype)
    for row in range(0, rows, BLOCK):
        for column in range(0, columns, BLOCK):
            block = matrix[row : row + BLOCK, column : column + BLOCK]
            result[column : column + BLOCK, row : row + BLOCK] = block.T
    return result


def evaluate(call: relax.Call, arrays: list[Array], shape: tuple[int, ...]) -> Array | None:
    """Evaluate a call on known arguments. None if this module does not support the call."""
    name = operator_name(call)
    if name in RESHAPES:
        return arrays[0].reshape(shape)
    if name == "relax.permute_dims":
        order = None if call.attrs.axes is None else [int(axis) for axis in call.attrs.axes]
        if arrays[0].ndim == 2 and order in (None, [1, 0]):
            return transposed(arrays[0])
        return np.transpose(arrays[0], order)
    if name == "relax.take":
        return _taken(call, *arrays)
    if name == "relax.astype":
        return _converted(arrays[0], str(call.ty.dtype))
    if name in COMPARISONS:
        return COMPARISONS[name](*arrays)
    if name in OF_INTEGERS and all(array.dtype.kind in "iu" for array in arrays):
        return ARITHMETIC[name](*arrays)
    if name in ARITHMETIC and all(array.dtype == np.float32 for array in arrays):
        # An operation that broadcasts a row and a column would store more than it saves.
        if np.prod(shape) > max(1024, sum(array.size for array in arrays)):
            return None
        with np.errstate(all="ignore"):
            return ARITHMETIC[name](*arrays)
    move = _MOVEMENTS.get(name)
    return None if move is None else move(call, arrays)


def _taken(call: relax.Call, data: Array, indices: Array) -> Array | None:
    """Take elements of an array; None if an index is out of bounds or the result would be large."""
    axis = None if call.attrs.axis is None else int(call.attrs.axis)
    extent = data.size if axis is None else data.shape[axis]
    if indices.size > max(1024, extent) or not ((indices >= 0) & (indices < extent)).all():
        return None
    return np.take(data, indices, axis)


def _converted(array: Array, dtype: str) -> Array | None:
    """Convert integers or booleans; None for other arrays and for types that NumPy lacks."""
    if array.dtype.kind not in "iub" or dtype not in np.sctypeDict:
        return None
    return array.astype(dtype)


def tensor_operands(call: Expr) -> list[Expr]:
    """Return the operands of a call that are tensors.

    For a concatenation, these are the parts. For a slice, the numbers are left out.
    """
    name = operator_name(call)
    if name == "relax.concat" and hasattr(call.args[0], "fields"):
        return list(call.args[0].fields)
    if name == "relax.strided_slice":
        return list(call.args[:1])
    return list(call.args)


def _concatenated(call: Expr, arrays: Sequence[Array]) -> Array:
    axis = call.attrs.axis
    return np.concatenate(arrays, 0 if axis is None else int(axis))


def _sliced(call: Expr, arrays: Sequence[Array]) -> Array | None:
    numbers = [_numbers(argument) for argument in call.args[1:]]
    if any(each is None for each in numbers):
        return None
    axes, begin, end, *rest = (each or [] for each in numbers)
    steps = rest[0] if rest else [1] * len(axes)
    if min([*steps, *begin, *end], default=0) < 0 or 0 in steps:
        return None
    places = [slice(None)] * arrays[0].ndim
    for axis, low, high, step in zip(axes, begin, end, steps, strict=True):
        places[axis] = slice(low, high, step)
    return np.ascontiguousarray(arrays[0][tuple(places)])


def _numbers(argument: Expr) -> list[int] | None:
    """Return the values of a tuple of numbers, or None if they are not known."""
    fields = getattr(argument, "fields", None)
    values = [getattr(field, "value", field) for field in (fields or ())]
    known = fields is not None and all(isinstance(value, int) for value in values)
    return values if known else None


def _padded(call: Expr, arrays: Sequence[Array]) -> Array | None:
    attrs = call.attrs
    if str(attrs.pad_mode) != "constant":
        return None
    widths = [int(width) for width in attrs.pad_width]
    if min(widths, default=0) < 0:
        return None
    pairs = list(zip(widths[::2], widths[1::2], strict=True))
    return np.pad(arrays[0], pairs, constant_values=float(attrs.pad_value))


def _repeated(call: Expr, arrays: Sequence[Array]) -> Array:
    axis = call.attrs.axis
    return np.repeat(arrays[0], int(call.attrs.repeats), None if axis is None else int(axis))


def _zeros(call: Expr, _arrays: Sequence[Array]) -> Array | None:
    extents = [getattr(extent, "value", None) for extent in call.args[0].values]
    known = [int(extent) for extent in extents if extent is not None]
    if len(known) < len(extents) or math.prod(known) > MOST_ZEROS:
        return None
    return np.zeros(known, str(call.ty.dtype))


_MOVEMENTS: dict[str, Callable[[Expr, Sequence[Array]], Array | None]] = {
    "relax.concat": _concatenated,
    "relax.strided_slice": _sliced,
    "relax.nn.pad": _padded,
    "relax.repeat": _repeated,
    "relax.zeros": _zeros,
}


@operator_pass("FoldConstantsWithNumPy")
def fold_constants(bindings: Bindings, value: Expr, _emit: Emit) -> Expr | None:
    """Make a pass that evaluates operations on constants with NumPy.

    It supports reshapes, transposes, slices, concatenations, pads, comparisons, known shapes as
    tensors, conversions of integers, ``take``, and arithmetic of float32 and of integers. It leaves
    other operations unchanged. Constants stay bound to variables:
    ``relax.transform.CanonicalizeBindings`` moves them to their uses.
    """
    shape = static_shape(value) if operator_name(value) else None
    if shape is None:
        return None
    if operator_name(value) == "relax.shape_to_tensor":
        extents = _extents(bindings, value.args[0])
        return None if extents is None else constant(np.array(extents, np.int64))
    tensors = [a for a in tensor_operands(value) if not isinstance(a, relax.ShapeExpr)]
    arrays = [bindings.array_of(tensor) for tensor in tensors]
    known = [a for a in arrays if a is not None]
    if len(known) < len(arrays):
        return None
    result = evaluate(value, known, shape)
    if result is None or result.shape != shape or str(result.dtype) != str(value.ty.dtype):
        return None
    return constant(result)


def _extents(bindings: Bindings, shape: Expr) -> tuple[int, ...] | None:
    """Return a shape as numbers, or None if an extent is not known."""
    value = bindings.value_of(shape)
    if operator_name(value) == "relax.shape_of":
        return static_shape(value.args[0])
    known = isinstance(value, relax.ShapeExpr) and all(
        isinstance(extent, tvm.tirx.IntImm) for extent in value.values
    )
    return tuple(int(extent) for extent in value.values) if known else None


CAST, WHERE, BROADCAST, CONCAT = (
    f"relax.{name}" for name in ("astype", "where", "broadcast_to", "concat")
)


@operator_pass("DropIdle", [CAST, WHERE, BROADCAST, CONCAT])
def drop_idle(bindings: Bindings, value: Expr, _emit: Emit) -> Expr | None:
    """Make a pass that drops casts, broadcasts and choices whose result is one of their operands.

    ONNX's ``Attention`` comes with a cast around each step and a mask that hides nothing. The pass
    drops a cast or broadcast to the tensor's own type and shape, a choice whose condition is a
    constant that is true everywhere or nowhere, and a concatenation of one tensor.
    """
    name = operator_name(value)
    if name in (CAST, BROADCAST):
        operand = value.args[0]
    elif name == CONCAT:
        parts = value.args[0]
        if not isinstance(parts, relax.Tuple) or len(parts.fields) != 1:
            return None
        operand = parts.fields[0]
    elif name == WHERE:
        condition = bindings.array_of(value.args[0])
        if condition is None or condition.all() != condition.any():
            return None
        operand = value.args[1 if condition.all() else 2]
    else:
        return None
    return operand if tvm_ffi.structural_equal(operand.ty, value.ty) else None
