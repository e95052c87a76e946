# SPDX-License-Identifier: Apache-2.0
"""Converters for normalizations and reductions."""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from tvm import relax
from tvm.relax.frontend.onnx import onnx_frontend
from tvm.relax.frontend.onnx.onnx_frontend import OnnxOpConverter

from ..operands import UnsupportedNode, constant_input, dtype_of, shape_of


class BatchNormalization(onnx_frontend.BatchNormalization):  # type: ignore[misc, name-defined, unused-ignore]
    """Converts an ONNX ``BatchNormalization``.

    The momentum is the weight of the old running mean in ONNX, and of the new mean in TVM.
    """

    @classmethod
    def _impl_v15(cls, bb: Any, inputs: Sequence[Any], attr: dict[str, Any], params: Any) -> Any:
        attr = {**attr, "momentum": 1.0 - attr.get("momentum", 0.9)}
        return super()._impl_v15(bb, inputs, attr, params)


class GroupNormalization(OnnxOpConverter):  # type: ignore[misc, unused-ignore]
    """Converts an ONNX ``GroupNormalization``.

    TVM's kernel subtracts the squared mean from the mean of the squares, which cancels if the mean
    is large. Here the values are centered first.
    """

    @classmethod
    def _impl_v18(cls, bb: Any, inputs: Sequence[Any], attr: dict[str, Any], params: Any) -> Any:
        data, groups = inputs[0], int(attr["num_groups"])
        channels = shape_of(data)[1]
        repeats = channels // groups
        scale, bias = (bb.emit(relax.op.repeat(each, repeats, 0)) for each in inputs[1:3])
        return _by_groups(bb, data, scale, bias, attr)

    @classmethod
    def _impl_v21(cls, bb: Any, inputs: Sequence[Any], attr: dict[str, Any], params: Any) -> Any:
        if attr.get("stash_type", 1) != 1:
            raise UnsupportedNode(f"its stash_type is {attr['stash_type']}: expected 1")
        return _by_groups(bb, inputs[0], inputs[1], inputs[2], attr)


def _by_groups(bb: Any, data: Any, scale: Any, bias: Any, attr: dict[str, Any]) -> Any:
    """Normalize each group of channels in float32. Scale and bias have one number per channel."""
    shape, groups = shape_of(data), int(attr["num_groups"])
    if groups < 1 or shape[1] % groups:
        raise UnsupportedNode(f"it has {groups} groups of {shape[1]} channels")
    dtype = dtype_of(data)
    if dtype != "float32":
        data = bb.emit(relax.op.astype(data, "float32"))
    rows = [shape[0], groups, int(np.prod(shape[1:])) // groups]
    data = bb.emit(relax.op.reshape(data, rows))
    mean = bb.emit(relax.op.mean(data, -1, keepdims=True))
    centered = bb.emit(relax.op.subtract(data, mean))
    squares = bb.emit(relax.op.multiply(centered, centered))
    variance = bb.emit(relax.op.mean(squares, -1, keepdims=True))
    epsilon = relax.const(attr.get("epsilon", 1e-05), "float32")
    deviation = bb.emit(relax.op.sqrt(relax.op.add(variance, epsilon)))
    result = bb.emit(relax.op.divide(centered, deviation))
    result = bb.emit(relax.op.reshape(result, shape))
    if dtype != "float32":
        result = bb.emit(relax.op.astype(result, dtype))
    column = [shape[1]] + [1] * (len(shape) - 2)
    scale, bias = (bb.emit(relax.op.reshape(each, column)) for each in (scale, bias))
    return relax.op.add(relax.op.multiply(result, scale), bias)


class LpNormalization(OnnxOpConverter):  # type: ignore[misc, unused-ignore]
    """Converts an ONNX ``LpNormalization``. A norm of zero gives zeros."""

    @classmethod
    def _impl_v1(cls, bb: Any, inputs: Sequence[Any], attr: dict[str, Any], params: Any) -> Any:
        data, axis = inputs[0], attr.get("axis", -1)
        if attr.get("p", 2) == 1:
            norm = bb.emit(relax.op.sum(relax.op.abs(data), axis, keepdims=True))
        else:
            squares = bb.emit(relax.op.sum(relax.op.multiply(data, data), axis, keepdims=True))
            norm = bb.emit(relax.op.sqrt(squares))
        zero = relax.const(0, dtype_of(data))
        quotient = bb.emit(relax.op.divide(data, norm))
        return relax.op.where(relax.op.equal(norm, zero), zero, quotient)


class _Extremum:
    """A reduction whose value for no elements is infinite, and not the largest finite number."""

    of_nothing: ClassVar[float]

    @classmethod
    def get_converter(cls, opset: int) -> Callable[..., Any]:
        """The converter for a version of the operators."""
        convert: Callable[..., Any] = super().get_converter(opset)  # type: ignore[misc]

        def converted(bb: Any, inputs: Any, attr: dict[str, Any], params: Any) -> Any:
            shape = shape_of(inputs[0])
            if dtype_of(inputs[0]) == "bool":
                # The smallest uint8 is 0, and a maximum over nothing is thus False.
                inputs[0] = bb.emit(relax.op.astype(inputs[0], "uint8"))
                found = bb.emit(converted(bb, inputs, attr, params))
                return relax.op.astype(found, "bool")
            if 0 not in shape:
                return cls._converted(bb, convert, inputs, attr, params)
            given = constant_input(inputs, 1, "axes")
            axes = attr.get("axes", range(len(shape))) if given is None else given.tolist()
            axes = {int(axis) % len(shape) for axis in axes}
            kept = [1 if n in axes else extent for n, extent in enumerate(shape)]
            if not attr.get("keepdims", 1):
                kept = [extent for n, extent in enumerate(kept) if n not in axes]
            dtype = dtype_of(inputs[0])
            value = cls.of_nothing
            if not dtype.startswith("float"):
                limits = np.iinfo(dtype)
                value = limits.min if value < 0 else limits.max
            return relax.const(np.full(kept, value, dtype), dtype)

        return converted

    @classmethod
    def _converted(
        cls, bb: Any, convert: Callable[..., Any], inputs: Any, attr: dict[str, Any], params: Any
    ) -> Any:
        """Reduce with TVM's converter, and return infinity where all elements are infinite.

        TVM returns the finite number that its reduction starts with there. The elements are halved,
        so that no finite element equals this number. Halving is exact except for the last bit of
        numbers whose half is subnormal.
        """
        dtype = dtype_of(inputs[0])
        if not dtype.startswith("float"):
            return convert(bb, inputs, attr, params)
        inputs[0] = bb.emit(relax.op.multiply(inputs[0], relax.const(0.5, dtype)))
        found = bb.emit(convert(bb, inputs, attr, params))
        start = relax.const(np.copysign(np.finfo(dtype).max, cls.of_nothing), dtype)
        infinity = relax.const(cls.of_nothing, dtype)
        doubled = bb.emit(relax.op.multiply(found, relax.const(2.0, dtype)))
        return relax.op.where(relax.op.equal(found, start), infinity, doubled)


class ReduceMax(_Extremum, onnx_frontend.ReduceMax):  # type: ignore[misc, name-defined, unused-ignore]
    """Converts an ONNX ``ReduceMax``."""

    of_nothing = -np.inf


class ReduceMin(_Extremum, onnx_frontend.ReduceMin):  # type: ignore[misc, name-defined, unused-ignore]
    """Converts an ONNX ``ReduceMin``."""

    of_nothing = np.inf


class _Place:
    """The index of an extremum, kept within the axis.

    TVM starts with index -1 and the smallest or largest number, and keeps this index if no element
    is beyond the number. With ``select_last_index``, this index counts from the end.
    """

    @classmethod
    def get_converter(cls, opset: int) -> Callable[..., Any]:
        """The converter for a version of the operators."""
        convert: Callable[..., Any] = super().get_converter(opset)  # type: ignore[misc]

        def converted(bb: Any, inputs: Any, attr: dict[str, Any], params: Any) -> Any:
            place = bb.emit(convert(bb, inputs, attr, params))
            if not attr.get("select_last_index", 0):
                return relax.op.maximum(place, relax.const(0, "int64"))
            extent = shape_of(inputs[0])[attr.get("axis", 0)]
            return relax.op.minimum(place, relax.const(extent - 1, "int64"))

        return converted


class ArgMax(_Place, onnx_frontend.ArgMax):  # type: ignore[misc, name-defined, unused-ignore]
    """Converts an ONNX ``ArgMax``."""


class ArgMin(_Place, onnx_frontend.ArgMin):  # type: ignore[misc, name-defined, unused-ignore]
    """Converts an ONNX ``ArgMin``."""


class ReduceMean(onnx_frontend.ReduceMean):  # type: ignore[misc, name-defined, unused-ignore]
    """Converts an ONNX ``ReduceMean``. TVM's integer kernel has a wider type than it declares."""

    @classmethod
    def _impl_v13(cls, bb: Any, inputs: Sequence[Any], attr: dict[str, Any], params: Any) -> Any:
        return _integer_mean(bb, super()._impl_v13(bb, inputs, attr, params))

    @classmethod
    def _impl_v18(cls, bb: Any, inputs: Sequence[Any], attr: dict[str, Any], params: Any) -> Any:
        return _integer_mean(bb, super()._impl_v18(bb, inputs, attr, params))


def _integer_mean(bb: Any, mean: Any) -> Any:
    """Rewrite an integer mean as a sum and a quotient rounded toward 0. Other means stay."""
    if not isinstance(mean, relax.Call):
        return mean
    data, dtype = mean.args[0], dtype_of(mean.args[0])
    if not dtype.startswith(("int", "uint")):
        return mean
    shape = shape_of(data)
    axes = range(len(shape)) if mean.attrs.axis is None else mean.attrs.axis
    count = int(np.prod([shape[int(axis)] for axis in axes]))
    total = bb.emit(relax.op.sum(data, mean.attrs.axis, mean.attrs.keepdims))
    return relax.op.divide(total, relax.const(count, dtype))
