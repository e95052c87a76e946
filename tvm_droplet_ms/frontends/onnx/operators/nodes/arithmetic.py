# SPDX-License-Identifier: Apache-2.0
"""Converters for elementwise operators, products, normalizations and reductions."""

from functools import partial
from typing import Any

import numpy as np

from tvm import relax, te, tirx
from tvm.relax import op

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
    number,
    shape_of,
    text,
    tvms,
)

_MOST_ROWS = 4
"""Maximum number of rows of a determinant: the sum has a term for each permutation of rows."""


@converts("Clip", since=11)
def clip(bb: Any, inputs: Any, attr: Attributes) -> Any:
    """Clip as graph passes know it: TVM's converter makes kernels. A NaN is no bound."""
    bounds = [as_array(inputs[n]) for n in (1, 2)]
    if any(bound is None and inputs[n] is not None for n, bound in enumerate(bounds, 1)):
        return tvms("Clip", bb, inputs, attr)
    low, high = (end if bound is None else bound for bound, end in zip(bounds, (-np.inf, np.inf)))
    return _clipped(bb, inputs, attr, low, high)


@converts("Clip")
def clip_of_attributes(bb: Any, inputs: Any, attr: Attributes) -> Any:
    """Clip as above. Before version 11, bounds are attributes."""
    return _clipped(bb, inputs, attr, attr.get("min", -np.inf), attr.get("max", np.inf))


def _clipped(bb: Any, inputs: Any, attr: Attributes, low: Any, high: Any) -> Any:
    result = inputs[0]
    if dtype_of(result) != "float32" or np.size(low) != 1 or np.size(high) != 1:
        return tvms("Clip", bb, inputs, attr)
    for bound, limit in ((low, op.maximum), (high, op.minimum)):
        if np.isfinite(bound):
            result = bb.emit(limit(result, number(np.asarray(bound).item(), result)))
    return result


@converts("ThresholdedRelu")
def thresholded_relu(bb: Any, inputs: Any, attr: Attributes) -> Any:
    """TVM's converter multiplies by 0 or 1, which makes NaN of minus infinity."""
    data = inputs[0]
    return op.where(data > number(attr.get("alpha", 1.0), data), data, number(0, data))


@converts("IsInf")
def is_inf(bb: Any, inputs: Any, attr: Attributes) -> Any:
    """TVM's converter ignores the sign."""
    data = inputs[0]
    positive, negative = attr.get("detect_positive", 1), attr.get("detect_negative", 1)
    if positive and negative:
        return op.isinf(data)
    if not positive and not negative:
        return op.zeros(relax.ShapeExpr(shape_of(data)), "bool")
    return op.equal(data, number(np.inf if positive else -np.inf, data))


@converts("Mod")
def mod(bb: Any, inputs: Any, attr: Attributes) -> Any:
    """Floats have the sign of the divisor, or that of the dividend (``fmod``)."""
    dividend, divisor = inputs
    if attr.get("fmod", 0) or not dtype_of(dividend).startswith("float"):
        return tvms("Mod", bb, inputs, attr)
    # As in Python and NumPy: fmod is exact, and a quotient that is rounded down is not.
    rest = bb.emit(op.mod(dividend, divisor))
    return op.where(rest * divisor < number(0, rest), rest + divisor, rest)


@converts("Pow")
def power(bb: Any, inputs: Any, attr: Attributes) -> Any:
    """A power of any types. TVM has powers only of floats of one type."""
    kinds = [dtype_of(each) for each in inputs[:2]]
    if kinds[0] == kinds[1] and kinds[0].startswith("float"):
        return tvms("Pow", bb, inputs, attr)
    floats = [kind for kind in kinds if kind.startswith("float")]
    kind = max(floats, key=lambda name: int(name.removeprefix("float")), default="float64")
    base, exponent = (bb.emit(each.astype(kind)) for each in inputs[:2])
    return op.power(base, exponent).astype(kinds[0])


@converts("PRelu", since=7)
def prelu(bb: Any, inputs: Any, attr: Attributes) -> Any:
    """TVM checks a list of slopes against the last extent only when it makes a kernel."""
    data, slope = (tuple(shape_of(each)) for each in inputs[:2])
    if np.broadcast_shapes(data, slope) != data:
        raise WrongExtent(f"its slopes of shape {slope} do not broadcast to {data}")
    return tvms("PRelu", bb, inputs, attr)


@converts("PRelu")
def prelu_of_channels(bb: Any, inputs: Any, attr: Attributes) -> Any:
    """Before version 7, a list of slopes has one per channel."""
    data, slope = inputs[:2]
    if shape_of(slope) != shape_of(data)[1:2]:
        return prelu(bb, inputs, attr)
    return op.nn.prelu(data, slope, 1)


@converts("Einsum")
def einsum(bb: Any, inputs: Any, attr: Attributes) -> Any:
    """TVM's converter makes a kernel that no pass knows."""
    return op.einsum(tuple(inputs), text(attr, "equation", "").replace(" ", ""))


@converts("BitShift")
def bit_shift(bb: Any, inputs: Any, attr: Attributes) -> Any:
    """Shift bits.

    A shift by the type's width or more gives 0; a negative number shifted right gives -1.
    """
    data, count = inputs[:2]
    dtype = dtype_of(data)
    zero, is_signed = number(0, data), not dtype.startswith("u")
    fits = count < number(np.iinfo(dtype).bits, data)
    if is_signed:
        fits = op.logical_and(fits, count >= zero)
    fits = bb.emit(fits)
    safe = op.where(fits, count, zero)
    if text(attr, "direction", "LEFT") == "LEFT":
        return op.where(fits, op.left_shift(data, safe), zero)
    beyond = op.where(data < zero, number(-1, data), zero) if is_signed else zero
    return op.where(fits, op.right_shift(data, safe), beyond)


@converts("Dropout")
def dropout(bb: Any, inputs: Any, attr: Attributes) -> Any:
    """For inference, it returns its input and a mask of ones."""
    if attr["tvm_custom"]["opset"] < 10:
        return _with_mask(inputs[0], dtype_of(inputs[0]))
    # From version 12 on, an input says whether it drops at random.
    ratio, mode = inputs[1], inputs[2]
    if mode is not None and as_array(mode) is None:
        raise UnsupportedNode("its input 'training_mode' is not constant")
    share = 0.5 if ratio is None else as_array(ratio)
    if mode is not None and np.any(as_array(mode)) and (share is None or share != 0):
        raise UnsupportedNode("it drops at random: its input 'training_mode' is set")
    return _with_mask(inputs[0], "bool")


def _with_mask(data: Any, dtype: str) -> Any:
    return relax.Tuple([data, op.ones(relax.ShapeExpr(shape_of(data)), dtype)])


@converts("Det")
def det(bb: Any, inputs: Any, attr: Attributes) -> Any:
    """The determinant of small matrices: the sum over all permutations."""
    *batch, rows, columns = shape_of(inputs[0])
    if rows != columns or rows > _MOST_ROWS:
        raise UnsupportedNode(
            f"it is of {rows} by {columns}: expected as many rows as columns, {_MOST_ROWS} at most"
        )

    def determinant(data: te.Tensor) -> te.Tensor:
        def minor(place: tuple[Any, ...], row: int, left: tuple[int, ...]) -> Any:
            if row == rows:
                return tirx.const(1.0, data.dtype)
            total = tirx.const(0.0, data.dtype)
            for n, column in enumerate(left):
                product = data(*place, row, column) * minor(
                    place, row + 1, left[:n] + left[n + 1 :]
                )
                total = total - product if n % 2 else total + product
            return total

        return te.compute(
            tuple(batch), lambda *place: minor(place, 0, tuple(range(rows))), name="det"
        )

    return bb.emit_te(determinant, inputs[0], primfunc_name_hint="det")


@converts("BatchNormalization")
def batch_normalization(bb: Any, inputs: Any, attr: Attributes) -> Any:
    """The momentum is the weight of the old running mean in ONNX, and of the new mean in TVM."""
    momentum = 1.0 - attr.get("momentum", 0.9)
    return tvms("BatchNormalization", bb, inputs, {**attr, "momentum": momentum})


@converts("GroupNormalization")
def group_normalization_of_groups(bb: Any, inputs: Any, attr: Attributes) -> Any:
    """Before version 21, there is one scale and one bias per group."""
    data, scale, bias = inputs[:3]
    repeats = shape_of(data)[1] // int(attr["num_groups"])
    scale, bias = (bb.emit(op.repeat(each, repeats, 0)) for each in (scale, bias))
    return _by_groups(bb, data, scale, bias, attr)


@converts("GroupNormalization", since=21)
def group_normalization(bb: Any, inputs: Any, attr: Attributes) -> Any:
    """Normalize groups of channels.

    TVM's kernel subtracts the squared mean from the mean of the squares, which cancels if the mean
    is large. Here the values are centered first.
    """
    if attr.get("stash_type", 1) != 1:
        raise UnsupportedNode(f"its stash_type is {attr['stash_type']}: expected 1")
    return _by_groups(bb, inputs[0], inputs[1], inputs[2], attr)


def _by_groups(bb: Any, data: Any, scale: Any, bias: Any, attr: Attributes) -> Any:
    """Normalize each group of channels in float32. Scale and bias have one number per channel."""
    shape, groups = shape_of(data), int(attr["num_groups"])
    if groups < 1 or shape[1] % groups:
        raise UnsupportedNode(f"it has {groups} groups of {shape[1]} channels")
    dtype = dtype_of(data)
    if dtype != "float32":
        data = data.astype("float32")
    data = bb.emit(op.reshape(data, [shape[0], groups, int(np.prod(shape[1:])) // groups]))
    centered = bb.emit(data - op.mean(data, -1, keepdims=True))
    variance = op.mean(centered * centered, -1, keepdims=True)
    epsilon = relax.const(attr.get("epsilon", 1e-05), "float32")
    result = bb.emit(op.reshape(centered / op.sqrt(variance + epsilon), shape))
    if dtype != "float32":
        result = bb.emit(result.astype(dtype))
    column = [shape[1]] + [1] * (len(shape) - 2)
    scale, bias = (bb.emit(op.reshape(each, column)) for each in (scale, bias))
    return result * scale + bias


@converts("LpNormalization")
def lp_normalization(bb: Any, inputs: Any, attr: Attributes) -> Any:
    """A norm of zero gives zeros."""
    data, axis = inputs[0], attr.get("axis", -1)
    if attr.get("p", 2) == 1:
        norm = bb.emit(op.sum(op.abs(data), axis, keepdims=True))
    else:
        norm = bb.emit(op.sqrt(op.sum(data * data, axis, keepdims=True)))
    zero = number(0, data)
    quotient = bb.emit(data / norm)
    return op.where(op.equal(norm, zero), zero, quotient)


def _extremum(operator: str, of_nothing: float, bb: Any, inputs: Any, attr: Attributes) -> Any:
    """A reduction whose value for no elements is infinite, and not the largest finite number."""
    data, *rest = inputs
    shape, dtype = shape_of(data), dtype_of(data)
    if dtype == "bool":
        # The smallest uint8 is 0, and a maximum over nothing is thus False.
        given = [bb.emit(data.astype("uint8")), *rest]
        return bb.emit(_extremum(operator, of_nothing, bb, given, attr)).astype("bool")
    if 0 in shape:
        return _of_nothing(shape, dtype, of_nothing, inputs, attr)
    if not dtype.startswith("float"):
        return tvms(operator, bb, inputs, attr)
    # TVM returns the finite number that its reduction starts with where all elements are infinite.
    # The elements are halved, so that no finite element equals this number. Halving is exact except
    # for the last bit of numbers whose half is subnormal.
    half = bb.emit(data * number(0.5, data))
    found = bb.emit(tvms(operator, bb, [half, *rest], attr))
    start = number(np.copysign(np.finfo(dtype).max, of_nothing), data)
    doubled = bb.emit(found * number(2.0, data))
    return op.where(op.equal(found, start), number(of_nothing, data), doubled)


def _of_nothing(
    shape: list[int], dtype: str, of_nothing: float, inputs: Any, attr: Attributes
) -> Any:
    given = constant_input(inputs, 1, "axes")
    axes = attr.get("axes", range(len(shape))) if given is None else given.tolist()
    axes = {int(axis) % len(shape) for axis in axes}
    kept = [1 if n in axes else extent for n, extent in enumerate(shape)]
    if not attr.get("keepdims", 1):
        kept = [extent for n, extent in enumerate(kept) if n not in axes]
    value = of_nothing
    if not dtype.startswith("float"):
        value = np.iinfo(dtype).min if of_nothing < 0 else np.iinfo(dtype).max
    return relax.const(np.full(kept, value, dtype), dtype)


converts("ReduceMax")(partial(_extremum, "ReduceMax", -np.inf))
converts("ReduceMin")(partial(_extremum, "ReduceMin", np.inf))


def _place(operator: str, bb: Any, inputs: Any, attr: Attributes) -> Any:
    """The index of an extremum, kept within the axis.

    TVM starts with index -1 and the smallest or largest number, and keeps this index if no element
    is beyond the number. With ``select_last_index``, this index counts from the end.
    """
    place = bb.emit(tvms(operator, bb, inputs, attr))
    if not attr.get("select_last_index", 0):
        return op.maximum(place, integers(0))
    return op.minimum(place, integers(shape_of(inputs[0])[attr.get("axis", 0)] - 1))


converts("ArgMax")(partial(_place, "ArgMax"))
converts("ArgMin")(partial(_place, "ArgMin"))


@converts("ReduceMean")
def reduce_mean(bb: Any, inputs: Any, attr: Attributes) -> Any:
    """TVM's kernel of integers has a wider type than it declares: a sum and a quotient instead."""
    mean = tvms("ReduceMean", bb, inputs, attr)
    if not isinstance(mean, relax.Call):
        return mean
    data, dtype = mean.args[0], dtype_of(mean.args[0])
    if not dtype.startswith(("int", "uint")):
        return mean
    shape = shape_of(data)
    axes = range(len(shape)) if mean.attrs.axis is None else mean.attrs.axis
    count = int(np.prod([shape[int(axis)] for axis in axes]))
    return op.sum(data, mean.attrs.axis, mean.attrs.keepdims) / constant(count, dtype)
