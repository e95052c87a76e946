# SPDX-License-Identifier: Apache-2.0
"""The operators of the language in NumPy, for folding weights and for tests. Imports no TVM."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from .equality.language import Operator, Tensor, TupleType, Type

Array = np.ndarray[Any, Any]
Value = Array | tuple[Any, ...]

_ERF = np.vectorize(math.erf, otypes=[np.float64])


def _order(layout: str, wanted: str) -> list[int]:
    return [layout.index(letter) for letter in wanted]


def _windows(
    data: Array, kernel: Sequence[int], strides: Sequence[int], dilation: Sequence[int]
) -> Array:
    """Sliding windows over NCHW data, with the axes N, C, out height, out width, kernel (2)."""
    reach = [(extent - 1) * step + 1 for extent, step in zip(kernel, dilation)]
    view = sliding_window_view(data, reach, axis=(2, 3))
    view = view[:, :, :: strides[0], :: strides[1]]
    return view[..., :: dilation[0], :: dilation[1]]


def _pad_image(data: Array, padding: Sequence[int], value: float) -> Array:
    top, left, bottom, right = padding
    widths = [(0, 0), (0, 0), (top, bottom), (left, right)]
    return np.pad(data, widths, constant_values=value)


def _conv2d(op: Operator, data: Array, weight: Array) -> Array:
    data = data.transpose(_order(op.get("layout"), "NCHW"))
    weight = weight.transpose(_order(op.get("kernel_layout"), "OIHW"))
    groups = op.get("groups")
    if data.shape[1] != weight.shape[1] * groups:
        raise ValueError(
            f"{data.shape[1]} channels for a weight of {weight.shape}, {groups} groups"
        )
    data = _pad_image(data, op.get("padding"), 0)
    view = _windows(data, weight.shape[2:], op.get("strides"), op.get("dilation"))
    parts = zip(np.split(view, groups, axis=1), np.split(weight, groups), strict=True)
    outputs = [np.tensordot(part, kernel, ([1, 4, 5], [1, 2, 3])) for part, kernel in parts]
    result: Array = np.concatenate(outputs, axis=3)
    return np.transpose(result, _order("NHWC", op.get("layout")))


def _pool(
    op: Operator, data: Array, padding_value: float, reduce: Callable[[Array], Array]
) -> Array:
    data = data.transpose(_order(op.get("layout"), "NCHW"))
    kernel, strides = op.get("pool_size"), op.get("strides")
    dilation = op.get("dilation")
    padding = list(op.get("padding"))
    if op.get("ceil_mode"):
        for axis in range(2):
            reach = (kernel[axis] - 1) * dilation[axis] + 1
            extent = data.shape[2 + axis] + padding[axis] + padding[2 + axis]
            padding[2 + axis] += -(extent - reach) % strides[axis]
    data = _pad_image(data, padding, padding_value)
    result: Array = reduce(_windows(data, kernel, strides, dilation))
    return np.transpose(result, _order("NCHW", op.get("layout")))


def _max_pool2d(op: Operator, data: Array) -> Array:
    return _pool(op, data, -np.inf, lambda view: view.max(axis=(4, 5)))


def _avg_pool2d(op: Operator, data: Array) -> Array:
    if op.get("count_include_pad") and not op.get("ceil_mode"):
        return _pool(op, data, 0, lambda view: view.mean(axis=(4, 5)))
    if op.get("count_include_pad") and any(op.get("padding")):
        raise NotImplementedError("avg_pool2d that counts padding, rounded up")
    return _pool(op, data, np.nan, lambda view: np.nanmean(view, axis=(4, 5)))


def _batch_norm(
    op: Operator, data: Array, gamma: Array, beta: Array, mean: Array, variance: Array
) -> Value:
    axis = op.get("axis")
    shape = [1] * data.ndim
    shape[axis] = -1
    if op.get("training"):
        others = tuple(each for each in range(data.ndim) if each != axis)
        mean, variance = data.mean(axis=others), data.var(axis=others)
    wide = [each.reshape(shape) for each in (gamma, beta, mean, variance)]
    result = (data - wide[2]) / np.sqrt(wide[3] + op.get("epsilon"))
    result = result * wide[0] if op.get("scale") else result
    return (result + wide[1] if op.get("center") else result), mean, variance


def _layer_norm(op: Operator, data: Array, gamma: Array, beta: Array) -> Array:
    axes = tuple(op.get("axes"))
    shape = [extent if axis in axes else 1 for axis, extent in enumerate(data.shape)]
    centered = data - data.mean(axis=axes, keepdims=True)
    result: Array = centered / np.sqrt(data.var(axis=axes, keepdims=True) + op.get("epsilon"))
    return result * gamma.reshape(shape) + beta.reshape(shape)


def _softmax(op: Operator, data: Array) -> Array:
    powers = np.exp(data - data.max(axis=op.get("axis"), keepdims=True))
    result: Array = powers / powers.sum(axis=op.get("axis"), keepdims=True)
    return result


def _strided_slice(op: Operator, data: Array) -> Array:
    slices = [slice(None)] * data.ndim
    pieces = zip(op.get("axes"), op.get("begin"), op.get("end"), op.get("strides"), strict=True)
    for axis, begin, end, stride in pieces:
        slices[axis] = slice(begin, end, stride)
    result: Array = data[tuple(slices)]
    return result


def _split(op: Operator, data: Array) -> Value:
    return tuple(np.split(data, op.get("sections"), axis=op.get("axis")))


def _dropout(op: Operator, data: Array) -> Value:
    return data, np.ones_like(data)


def _reduce(function: Callable[..., Array]) -> Callable[..., Array]:
    def reduce(op: Operator, data: Array) -> Array:
        return function(data, axis=tuple(op.get("axis")), keepdims=op.get("keepdims"))

    return reduce


def _pad(op: Operator, data: Array) -> Array:
    return np.pad(data, op.get("widths"), constant_values=op.get("value"))


def _einsum(op: Operator, *arrays: Array) -> Array:
    return np.asarray(np.einsum(op.get("subscripts"), *arrays))


def _plain(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda op, *arrays: function(*arrays)


def _sigmoid(data: Array) -> Array:
    return 1 / (1 + np.exp(-data))


def _gelu(data: Array) -> Array:
    result: Array = data * 0.5 * (1 + _ERF(data / math.sqrt(2)))
    return result


OPERATORS: dict[str, Callable[..., Any]] = {
    "add": _plain(np.add),
    "subtract": _plain(np.subtract),
    "multiply": _plain(np.multiply),
    "divide": _plain(np.divide),
    "maximum": _plain(np.maximum),
    "minimum": _plain(np.minimum),
    "power": _plain(np.power),
    "relu": _plain(lambda data: np.maximum(data, 0)),
    "relu6": _plain(lambda data: np.clip(data, 0, 6)),
    "gelu": _plain(_gelu),
    "silu": _plain(lambda data: data * _sigmoid(data)),
    "sigmoid": _plain(_sigmoid),
    "tanh": _plain(np.tanh),
    "sqrt": _plain(np.sqrt),
    "exp": _plain(np.exp),
    "erf": _plain(_ERF),
    "negative": _plain(np.negative),
    "clip": lambda op, data: np.clip(data, op.get("min"), op.get("max")),
    "conv2d": _conv2d,
    "max_pool2d": _max_pool2d,
    "avg_pool2d": _avg_pool2d,
    "batch_norm": _batch_norm,
    "layer_norm": _layer_norm,
    "softmax": _softmax,
    "dropout": _dropout,
    "matmul": _plain(np.matmul),
    "einsum": _einsum,
    "sum": _reduce(np.sum),
    "mean": _reduce(np.mean),
    "concat": lambda op, *arrays: np.concatenate(arrays, axis=op.get("axis")),
    "stack": lambda op, *arrays: np.stack(arrays, axis=op.get("axis")),
    "strided_slice": _strided_slice,
    "split": _split,
    "get": lambda op, fields: fields[op.get("index")],
    "reshape": lambda op, data: data.reshape(op.get("shape")),
    "permute_dims": lambda op, data: data.transpose(op.get("axes")),
    "expand_dims": lambda op, data: np.expand_dims(data, op.get("axis")),
    "squeeze": lambda op, data: np.squeeze(data, op.get("axis")),
    "broadcast_to": lambda op, data: np.broadcast_to(data, op.get("shape")),
    "pad": _pad,
    "eye": lambda op: np.eye(*op.get("shape"), dtype=op.get("dtype")),
    "full": lambda op: np.full(op.get("shape"), op.get("value"), op.get("dtype")),
}
"""Maps an operator name to a function of the operator and its operands."""


def evaluate(operator: Operator, operands: Sequence[Value]) -> Value:
    """Evaluate a call.

    ``operator``: an operator whose name is in :data:`OPERATORS`. Returns an array in the precision
    of the floating-point operands, or a tuple of arrays. Raises ``KeyError`` if the operator is
    unknown.
    """
    value = OPERATORS[operator.name](operator, *operands)
    if isinstance(value, tuple):
        return value
    floats = [o.dtype for o in operands if isinstance(o, np.ndarray) and o.dtype.kind == "f"]
    # NumPy scalars and math.erf would widen float32 to float64.
    wanted = np.result_type(*floats) if floats and np.asarray(value).dtype.kind == "f" else None
    return np.asarray(value, dtype=wanted)


def infer(operator: Operator, types: tuple[Type, ...]) -> Type | None:
    """Infer the type of a call by evaluating it. An ``Infer`` function without TVM.

    ``types``: the types of its operands. Returns None if NumPy rejects the operands.
    """
    with np.errstate(all="ignore"):
        try:
            return _type_of(evaluate(operator, [_blank(type_) for type_ in types]))
        except (ValueError, IndexError, TypeError):
            return None


def _blank(type_: Type) -> Value:
    if isinstance(type_, TupleType):
        return tuple(map(_blank, type_.fields))
    return np.ones(type_.shape, type_.dtype)


def _type_of(value: Value) -> Type:
    if isinstance(value, tuple):
        return TupleType(tuple(map(_type_of, value)))
    return Tensor(value.shape, str(value.dtype))


_MOVES = frozenset(
    {"concat", "stack", "strided_slice", "reshape", "permute_dims", "expand_dims", "squeeze"}
    | {"broadcast_to", "eye", "full"}
)
_INTEGERS = frozenset(
    {"add", "subtract", "multiply", "maximum", "minimum", "negative", "relu", "matmul", "sum"}
    | {"pad"}
)
"""Operators for which NumPy and TVM agree on integers. Division and power are excluded: TVM rounds
toward zero, but NumPy returns floats."""

_CANNOT = NotImplementedError, ValueError, TypeError, IndexError, OverflowError
"""Errors that NumPy and the interpreter raise for unsupported calls."""


def folded(operator: Operator, operands: Sequence[Array], type_: Type) -> Array | None:
    """Evaluate a call on weights with TVM's semantics.

    ``operands``: the values of its operands. ``type_``: the type of the call as TVM infers it.
    Returns the value, which has this type. Returns None if NumPy does not support the call or
    computes it differently; the call must then stay in the graph.
    """
    if operator.name not in OPERATORS or not isinstance(type_, Tensor):
        return None
    with np.errstate(all="ignore"):
        try:
            dtypes = {operand.dtype for operand in operands} | {np.dtype(type_.dtype)}
            if not all(_is_known(operator.name, dtype) for dtype in dtypes):
                return None
            value = evaluate(operator, operands)
        except _CANNOT:
            return None
    if not isinstance(value, np.ndarray):
        return None
    return value if Tensor(value.shape, str(value.dtype)) == type_ else None


def _is_known(name: str, dtype: "np.dtype[np.generic]") -> bool:
    """True if NumPy and TVM agree on an operator for a data type."""
    if dtype.kind == "f" or name in _MOVES:
        return True
    return dtype.kind in "iu" and name in _INTEGERS
