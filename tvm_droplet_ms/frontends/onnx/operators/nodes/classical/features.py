# SPDX-License-Identifier: Apache-2.0
"""Converters that scale, impute, select and join features."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tvm import relax
from tvm.relax.frontend.onnx.onnx_frontend import OnnxOpConverter

from ...operands import UnsupportedNode, dtype_of, shape_of, text


def as_floats(bb: Any, data: Any) -> Any:
    """Cast features to float32, as ONNX Runtime compares integers with floats. float64 stays."""
    if dtype_of(data) in ("float32", "float64"):
        return data
    return bb.emit(relax.op.astype(data, "float32"))


class Scaler(OnnxOpConverter):  # type: ignore[misc, unused-ignore]
    """Converts ``Scaler``, which subtracts an offset and multiplies by a scale."""

    @classmethod
    def _impl_v1(cls, bb: Any, inputs: Sequence[Any], attr: dict[str, Any], params: Any) -> Any:
        data = as_floats(bb, inputs[0])
        offset, scale = (
            _per_feature(data, attr.get(name, ()), name) for name in ("offset", "scale")
        )
        moved = bb.emit(relax.op.subtract(data, offset))
        return relax.op.astype(bb.emit(relax.op.multiply(moved, scale)), "float32")


class Normalizer(OnnxOpConverter):  # type: ignore[misc, unused-ignore]
    """Converts ``Normalizer``. Rows whose norm is 0 stay unchanged."""

    @classmethod
    def _impl_v1(cls, bb: Any, inputs: Sequence[Any], attr: dict[str, Any], params: Any) -> Any:
        norm = text(attr, "norm", "MAX")
        data, axis = as_floats(bb, inputs[0]), len(shape_of(inputs[0])) - 1
        if axis > 1:
            raise UnsupportedNode(f"its input has {axis + 1} axes: expected 2")
        whole = bb.emit(relax.op.astype(data, "float32"))
        if norm == "L2":
            squares = relax.op.astype(relax.op.multiply(data, data), "float32")
            squares = bb.emit(squares)
            total = bb.emit(relax.op.sum(squares, axis=axis, keepdims=True))
            size = bb.emit(relax.op.sqrt(bb.emit(relax.op.divide(squares, total))))
            is_low = relax.op.less(data, relax.const(0.0, dtype_of(data)))
            found = relax.op.where(is_low, relax.op.negative(size), size)
        elif norm in ("L1", "MAX"):
            total = bb.emit(
                relax.op.max(whole, axis=axis, keepdims=True)
                if norm == "MAX"
                else relax.op.sum(relax.op.abs(whole), axis=axis, keepdims=True)
            )
            found = relax.op.divide(whole, total)
        else:
            raise UnsupportedNode(f"its norm is {norm!r}: expected MAX, L1 or L2")
        is_zero = bb.emit(relax.op.equal(total, relax.const(0.0, "float32")))
        return relax.op.where(is_zero, whole, bb.emit(found))


class Binarizer(OnnxOpConverter):  # type: ignore[misc, unused-ignore]
    """Converts ``Binarizer``."""

    @classmethod
    def _impl_v1(cls, bb: Any, inputs: Sequence[Any], attr: dict[str, Any], params: Any) -> Any:
        data = as_floats(bb, inputs[0])
        threshold = relax.const(float(attr.get("threshold", 0.0)), dtype_of(data))
        return relax.op.astype(relax.op.greater(data, threshold), dtype_of(inputs[0]))


class Imputer(OnnxOpConverter):  # type: ignore[misc, unused-ignore]
    """Converts ``Imputer``, which replaces the value that marks missing features."""

    @classmethod
    def _impl_v1(cls, bb: Any, inputs: Sequence[Any], attr: dict[str, Any], params: Any) -> Any:
        data, dtype = inputs[0], dtype_of(inputs[0])
        is_float = dtype.startswith("float")
        values = attr.get("imputed_value_floats" if is_float else "imputed_value_int64s", ())
        if not values:
            raise UnsupportedNode(f"it has no value to put into its input of {dtype}")
        if len(values) != shape_of(data)[-1]:
            values = values[:1]
        filled = _per_feature(data, values, "imputed value")
        replaced = attr.get("replaced_value_float" if is_float else "replaced_value_int64", 0)
        if np.isnan(replaced):
            is_missing = relax.op.isnan(data)
        else:
            is_missing = relax.op.equal(data, relax.const(replaced, dtype))
        return relax.op.where(bb.emit(is_missing), filled, data)


class ArrayFeatureExtractor(OnnxOpConverter):  # type: ignore[misc, unused-ignore]
    """Converts ``ArrayFeatureExtractor``, which selects columns by index."""

    @classmethod
    def _impl_v1(cls, bb: Any, inputs: Sequence[Any], attr: dict[str, Any], params: Any) -> Any:
        data, rank = inputs[0], len(shape_of(inputs[0]))
        if rank == 1:
            data = bb.emit(relax.op.reshape(data, [1, *shape_of(data)]))
        numbers = bb.emit(relax.op.reshape(inputs[1], (-1,)))
        return relax.op.take(data, numbers, axis=max(rank, 2) - 1)


class FeatureVectorizer(OnnxOpConverter):  # type: ignore[misc, unused-ignore]
    """Converts ``FeatureVectorizer``, which joins features, truncated or padded with zeros."""

    @classmethod
    def _impl_v1(cls, bb: Any, inputs: Sequence[Any], attr: dict[str, Any], params: Any) -> Any:
        parts = [each for each in inputs if each is not None]
        widths = tuple(attr.get("inputdimensions", ()))
        if len(widths) != len(parts):
            raise UnsupportedNode(f"it has {len(widths)} inputdimensions for {len(parts)} inputs")
        joined = []
        for part, width in zip(parts, widths, strict=True):
            shape = shape_of(part)
            rows = 1 if len(shape) == 1 else shape[0]
            part = bb.emit(relax.op.astype(relax.op.reshape(part, (rows, -1)), "float32"))
            extent = shape_of(part)[1]
            if extent > width:
                part = bb.emit(relax.op.strided_slice(part, [1], [0], [width]))
            joined.append(part)
            if extent < width:
                joined.append(relax.const(np.zeros((rows, width - extent), "float32"), "float32"))
        return relax.op.concat(joined, axis=1)


def _per_feature(data: Any, values: Sequence[float], name: str) -> Any:
    """A constant with one number for all features, or one for each."""
    shape = shape_of(data)
    if len(values) != 1 and (len(values) != shape[-1] or len(shape) > 2):
        raise UnsupportedNode(
            f"it has {len(values)} numbers as its {name}, and an input of the shape {tuple(shape)}"
        )
    return relax.const(np.array(values).astype(dtype_of(data)), dtype_of(data))
