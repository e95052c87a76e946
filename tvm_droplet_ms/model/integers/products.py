# SPDX-License-Identifier: Apache-2.0
"""Convolutions and matrix products of dequantised tensors, computed in integers."""

from dataclasses import dataclass
from typing import Any

import numpy as np

import tvm
from tvm import relax

from ..bindings import Bindings, Expr, Var, constant, operator_name, static_shape
from ..rewriting import Emit, Rewrite, binding_pass
from .quantized_values import Quantized, known, quantized, quantized_constant
from .requantization import Requantization, unsigned

Array = np.ndarray[Any, Any]

CONVOLUTIONS = ("relax.nn.conv1d", "relax.nn.conv2d")
PRODUCTS = (*CONVOLUTIONS, "relax.matmul")

_BYTE, _LARGEST = 255, 2**31 - 1


@dataclass(frozen=True)
class _Product:
    """A product of bytes with constant signed bytes.

    ``weight``: of int8. ``output_axis``: the axis of the weight with the outputs. ``scale``: of
    each output, or one; None for what is not scaled.
    """

    call: relax.Call
    data: Quantized
    weight: Array
    output_axis: int
    scale: Array | None

    def sums(self) -> Array:
        """The sum of the weights of each output, in int64."""
        axes = tuple(n for n in range(self.weight.ndim) if n != self.output_axis)
        return self.weight.sum(axis=axes, dtype=np.int64)

    def along_outputs(self, values: Array) -> Expr:
        """A constant that broadcasts with the product, of a number for each output."""
        rank = len(self.call.ty.shape)
        behind = rank - 2 if operator_name(self.call) in CONVOLUTIONS else 0
        return constant(values.reshape([1] * (rank - 1 - behind) + [-1] + [1] * behind))


def product_of(bindings: Bindings, value: Expr) -> _Product | None:
    """Return the product of bytes that a value stands for. None if it stands for none.

    The left operand is dequantised by one scale, and the right one is a constant whose integers are
    signed bytes, of one scale or one for each output. Sums must fit into int32.
    """
    name = operator_name(value)
    if name not in PRODUCTS or str(value.ty.dtype) not in ("int32", "float32"):
        return None
    data, weight = quantized(bindings, value.args[0]), quantized_constant(bindings, value.args[1])
    if data is None or weight is None or not _is_plain(name, value):
        return None
    values, axis = weight.values, 0 if name in CONVOLUTIONS else 1
    if values.ndim < 2 or values.min(initial=0) < -128 or values.max(initial=0) > 127:
        return None
    if name == "relax.matmul" and values.ndim != 2:
        return None
    scales = np.moveaxis(np.broadcast_to(weight.scale, values.shape), axis, 0)
    scales = scales.reshape(values.shape[axis], -1)
    if (scales != scales[:, :1]).any():
        return None
    total = np.abs(np.moveaxis(values, axis, 0).astype(np.int64)).reshape(len(scales), -1).sum(1)
    if 2 * _BYTE * int(total.max(initial=0)) > _LARGEST:
        return None
    scale = scales[:, 0]
    if data.scale is not None:
        scale = scale * data.scale
    is_scaled = bool((scale != 1).any())
    if is_scaled and str(value.ty.dtype) == "int32":
        return None
    return _Product(value, data, values.astype(np.int8), axis, scale if is_scaled else None)


def _is_plain(name: str, value: Expr) -> bool:
    """True if a product has operands of known extents in ONNX's layout, and one group."""
    shapes = [static_shape(each) for each in (value, *value.args)]
    if None in shapes or any(0 in shape for shape in shapes if shape):
        return False
    if name == "relax.matmul":
        return all(len(shape or ()) >= 2 for shape in shapes)
    attrs = value.attrs
    layouts = {str(attrs.data_layout), str(attrs.kernel_layout), str(attrs.out_layout)}
    return int(attrs.groups) == 1 and layouts <= {"NCHW", "OIHW", "NCW", "OIW"}


def compute_in_integers() -> tvm.transform.Pass:
    """Make a pass that computes products of dequantised tensors in integers.

    A convolution or matrix product of ``(x - zero) * scale``, where x are bytes, with constant
    weights that are signed bytes times a scale becomes the product of the bytes in int32, less
    ``zero`` times the sums of the weights, which is exact, and then times both scales in float32.
    Padding is with the zero point. Signed bytes are moved by 128 where they are made. What follows
    stays as it is: a bias, an activation, the rounding to bytes are elementwise, and are fused.

    Reshapes, transposes and maxima of pools are of bytes where they were of what is dequantised,
    and what is quantised as it was dequantised is left out. Products of several groups or of two
    activations, and weights that are no signed bytes, stay as they are: dequantised. Returns the
    pass. It is for a graph in ONNX's layout whose constants are not folded yet.
    """
    return binding_pass("ComputeInIntegers", _rewrite, ["relax.astype"])


def _rewrite(bindings: Bindings) -> Rewrite:
    requantization = Requantization(bindings)

    def rewrite(var: Var, value: Expr, emit: Emit) -> Expr | None:
        product = product_of(bindings, value)
        if product is not None:
            return _in_integers(bindings, product, emit)
        return requantization.rewrite(var, value, emit)

    return rewrite


def _in_integers(bindings: Bindings, product: _Product, emit: Emit) -> Expr:
    data = unsigned(bindings, product.data, emit)
    name = operator_name(product.call)
    if name == "relax.matmul":
        total = relax.op.matmul(data.data, constant(product.weight), out_dtype="int32")
        sums = product.along_outputs(product.sums().astype(np.int32))
    else:
        total, sums = _convolution(product, data, emit)
    total = emit(total)
    if not isinstance(data.zero, int):
        total = emit(relax.op.subtract(total, emit(relax.op.multiply(data.zero, sums))))
    elif data.zero:
        shift = constant(-data.zero * known(bindings, sums))
        total = emit(relax.op.add(total, shift))
    if str(product.call.ty.dtype) == "int32":
        return total
    if product.scale is None:
        return relax.op.astype(total, "float32")
    return relax.op.multiply(
        emit(relax.op.astype(total, "float32")),
        product.along_outputs(product.scale.astype(np.float32)),
    )


def _convolution(product: _Product, data: Quantized, emit: Emit) -> tuple[Expr, Expr]:
    """The convolution of the bytes, and of ones with the weights: what a zero point adds."""
    attrs, source = product.call.attrs, data.data
    padding = [int(extent) for extent in attrs.padding]
    is_2d = operator_name(product.call) == "relax.nn.conv2d"
    convolution = relax.op.nn.conv2d if is_2d else relax.op.nn.conv1d
    sums = product.along_outputs(product.sums().astype(np.int32))
    if any(padding) and not isinstance(data.zero, int):
        sums = _sums_at_borders(product, padding)
    elif any(padding) and data.zero:
        half = len(padding) // 2
        widths = [0, 0, 0, 0]
        for before, after in zip(padding[:half], padding[half:], strict=True):
            widths += [before, after]
        source = emit(relax.op.nn.pad(source, widths, "constant", data.zero))
        padding = [0] * len(padding)
    total = convolution(
        source,
        constant(product.weight),
        strides=attrs.strides,
        padding=padding,
        dilation=attrs.dilation,
        data_layout=attrs.data_layout,
        kernel_layout=attrs.kernel_layout,
        out_layout=attrs.out_layout,
        out_dtype="int32",
    )
    return total, sums


def _sums_at_borders(product: _Product, padding: list[int]) -> Expr:
    """The sum of the weights that each output reads of what is no padding."""
    attrs = product.call.attrs
    shape, weight = static_shape(product.data.data), product.weight
    outputs = static_shape(product.call)
    assert shape is not None and outputs is not None
    half = len(padding) // 2
    ones = np.pad(
        np.ones(shape[2:], np.int32), list(zip(padding[:half], padding[half:], strict=True))
    )
    by_place = weight.sum(axis=1, dtype=np.int64)
    sums = np.zeros((1, *outputs[1:]), np.int64)
    for place in np.ndindex(*weight.shape[2:]):
        windows = tuple(
            slice(n * int(dilation), n * int(dilation) + (extent - 1) * int(stride) + 1, int(stride))
            for n, dilation, stride, extent in zip(
                place, attrs.dilation, attrs.strides, outputs[2:], strict=True
            )
        )
        weights = by_place[(slice(None), *place)].reshape([1, -1] + [1] * half)
        sums += weights * ones[windows]
    return constant(sums.astype(np.int32))
