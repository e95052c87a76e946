# SPDX-License-Identifier: Apache-2.0
"""Converters for elementwise operators, ``Einsum`` and determinants."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tvm import relax, te, tirx
from tvm.relax.frontend.onnx import onnx_frontend
from tvm.relax.frontend.onnx.onnx_frontend import OnnxOpConverter

from ..folding import as_array
from ..operands import UnsupportedNode, WrongExtent, dtype_of, shape_of, text

_MOST_ROWS = 4
"""Maximum number of rows of a determinant: the sum has a term for each permutation of rows."""


class IsInf(OnnxOpConverter):  # type: ignore[misc, unused-ignore]
    """Converts an ONNX ``IsInf``. TVM's converter ignores the sign."""

    @classmethod
    def _impl_v10(cls, bb: Any, inputs: Sequence[Any], attr: dict[str, Any], params: Any) -> Any:
        data, dtype = inputs[0], dtype_of(inputs[0])
        positive, negative = attr.get("detect_positive", 1), attr.get("detect_negative", 1)
        if positive and negative:
            return relax.op.isinf(data)
        if not positive and not negative:
            return relax.op.zeros(relax.ShapeExpr(shape_of(data)), "bool")
        return relax.op.equal(data, relax.const(np.inf if positive else -np.inf, dtype))


class Mod(onnx_frontend.Mod):  # type: ignore[misc, name-defined, unused-ignore]
    """Converts an ONNX ``Mod``. Floats have the sign of the divisor, or the dividend (``fmod``)."""

    @classmethod
    def _impl_v10(cls, bb: Any, inputs: Sequence[Any], attr: dict[str, Any], params: Any) -> Any:
        dtype = dtype_of(inputs[0])
        if attr.get("fmod", 0) or not dtype.startswith("float"):
            return super()._impl_v10(bb, inputs, attr, params)
        # As in Python and NumPy: fmod is exact, and a quotient that is rounded down is not.
        dividend, divisor = inputs
        zero = relax.const(0, dtype)
        rest = bb.emit(relax.op.mod(dividend, divisor))
        other_sign = relax.op.less(relax.op.multiply(rest, divisor), zero)
        return relax.op.where(other_sign, relax.op.add(rest, divisor), rest)


class Pow(onnx_frontend.Pow):  # type: ignore[misc, name-defined, unused-ignore]
    """Converts an ONNX ``Pow`` of any types. TVM has powers only of floats of one type."""

    @classmethod
    def _impl_v7(cls, bb: Any, inputs: Sequence[Any], attr: dict[str, Any], params: Any) -> Any:
        kinds = [dtype_of(each) for each in inputs[:2]]
        if kinds[0] == kinds[1] and kinds[0].startswith("float"):
            return super()._impl_v7(bb, inputs, attr, params)
        floats = [kind for kind in kinds if kind.startswith("float")]
        kind = max(floats, key=lambda name: int(name.removeprefix("float")), default="float64")
        base, exponent = (bb.emit(relax.op.astype(each, kind)) for each in inputs[:2])
        return relax.op.astype(relax.op.power(base, exponent), kinds[0])


class PRelu(onnx_frontend.PRelu):  # type: ignore[misc, name-defined, unused-ignore]
    """Converts an ONNX ``PRelu``. Before version 7, a list of slopes has one per channel."""

    @classmethod
    def _impl_v1(cls, bb: Any, inputs: Sequence[Any], attr: dict[str, Any], params: Any) -> Any:
        data, slope = inputs[:2]
        if shape_of(slope) != shape_of(data)[1:2]:
            return cls._impl_v7(bb, inputs, attr, params)
        return relax.op.nn.prelu(data, slope, 1)

    @classmethod
    def _impl_v7(cls, bb: Any, inputs: Sequence[Any], attr: dict[str, Any], params: Any) -> Any:
        data, slope = (tuple(shape_of(each)) for each in inputs[:2])
        # TVM checks a list of slopes against the last extent when it makes a kernel.
        if np.broadcast_shapes(data, slope) != data:
            raise WrongExtent(f"its slopes of shape {slope} do not broadcast to {data}")
        return super()._impl_v1(bb, inputs, attr, params)


class Einsum(OnnxOpConverter):  # type: ignore[misc, unused-ignore]
    """Converts an ONNX ``Einsum``. TVM's converter makes a kernel that no pass knows."""

    @classmethod
    def _impl_v12(cls, bb: Any, inputs: Sequence[Any], attr: dict[str, Any], params: Any) -> Any:
        return relax.op.einsum(tuple(inputs), text(attr, "equation", "").replace(" ", ""))


class BitShift(OnnxOpConverter):  # type: ignore[misc, unused-ignore]
    """Converts an ONNX ``BitShift``. A shift by the type's width or more leaves 0 or the sign."""

    @classmethod
    def _impl_v11(cls, bb: Any, inputs: Sequence[Any], attr: dict[str, Any], params: Any) -> Any:
        data, count = inputs[:2]
        dtype = dtype_of(data)
        width, zero = relax.const(np.iinfo(dtype).bits, dtype), relax.const(0, dtype)
        fits = bb.emit(relax.op.less(count, width))
        if not dtype.startswith("u"):
            fits = bb.emit(relax.op.logical_and(fits, relax.op.greater_equal(count, zero)))
        safe = bb.emit(relax.op.where(fits, count, zero))
        is_left = text(attr, "direction", "LEFT") == "LEFT"
        shift = relax.op.left_shift if is_left else relax.op.right_shift
        if not dtype.startswith("u") and not is_left:
            beyond = bb.emit(
                relax.op.where(relax.op.less(data, zero), relax.const(-1, dtype), zero)
            )
        else:
            beyond = zero
        return relax.op.where(fits, bb.emit(shift(data, safe)), beyond)


class Dropout(OnnxOpConverter):  # type: ignore[misc, unused-ignore]
    """Converts an ONNX ``Dropout`` for inference: it returns its input and a mask of ones."""

    @classmethod
    def _impl_v1(cls, bb: Any, inputs: Sequence[Any], attr: dict[str, Any], params: Any) -> Any:
        return cls._with_mask(inputs[0], dtype_of(inputs[0]))

    @classmethod
    def _impl_v10(cls, bb: Any, inputs: Sequence[Any], attr: dict[str, Any], params: Any) -> Any:
        return cls._with_mask(inputs[0], "bool")

    @classmethod
    def _impl_v12(cls, bb: Any, inputs: Sequence[Any], attr: dict[str, Any], params: Any) -> Any:
        if inputs[2] is not None and as_array(inputs[2]) is None:
            raise UnsupportedNode("its input 'training_mode' is not constant")
        ratio = 0.5 if inputs[1] is None else as_array(inputs[1])
        if inputs[2] is not None and np.any(as_array(inputs[2])) and (ratio is None or ratio != 0):
            raise UnsupportedNode("it drops at random: its input 'training_mode' is set")
        return cls._with_mask(inputs[0], "bool")

    @classmethod
    def _with_mask(cls, data: Any, dtype: str) -> Any:
        return relax.Tuple([data, relax.op.ones(relax.ShapeExpr(shape_of(data)), dtype)])


class Det(OnnxOpConverter):  # type: ignore[misc, unused-ignore]
    """Converts an ONNX ``Det`` of small matrices: the sum over all permutations."""

    @classmethod
    def _impl_v11(cls, bb: Any, inputs: Sequence[Any], attr: dict[str, Any], params: Any) -> Any:
        *batch, rows, columns = shape_of(inputs[0])
        if rows != columns or rows > _MOST_ROWS:
            raise UnsupportedNode(
                f"it is of {rows} by {columns}: expected as many rows as columns, "
                f"{_MOST_ROWS} at most"
            )

        def determinant(data: te.Tensor) -> te.Tensor:
            def minor(place: tuple[Any, ...], row: int, left: tuple[int, ...]) -> Any:
                if row == rows:
                    return tirx.const(1.0, data.dtype)
                total = tirx.const(0.0, data.dtype)
                for number, column in enumerate(left):
                    rest = minor(place, row + 1, left[:number] + left[number + 1 :])
                    product = data(*place, row, column) * rest
                    total = total - product if number % 2 else total + product
                return total

            shape = tuple(batch)
            return te.compute(shape, lambda *place: minor(place, 0, tuple(range(rows))), name="det")

        return bb.emit_te(determinant, inputs[0], primfunc_name_hint="det")
