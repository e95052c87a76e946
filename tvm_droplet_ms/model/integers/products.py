# SPDX-License-Identifier: Apache-2.0
"""Convolutions and matrix products of dequantized tensors with constants, computed in integers."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from tvm import relax
from tvm.ir import IRModule

from ..bindings import Bindings, Expr, constant, operator_name, static_shape
from ..layers import convolution_like, layouts_of
from ..rewriting import Emit, operator_pass
from .quantized_values import SHIFT, Quantized, quantized, quantized_constant
from .requantization import requantized, unsigned

Array = np.ndarray[Any, Any]

CONVOLUTIONS = ("relax.nn.conv1d", "relax.nn.conv2d")
PRODUCTS = (*CONVOLUTIONS, "relax.matmul")

_BYTE, _LARGEST = 255, 2**31 - 1

_FOUR = 4
"""Number of byte products that one lane of an instruction adds up; see ``dot_intrinsics.py``."""

_LEAST_PRODUCTS = 27
"""Least number of products per output to add channels for: a 3x3 convolution of images."""


@dataclass(frozen=True)
class Product:
    """A product of bytes with constant integers.

    ``weight``: the integers minus ``shift``, in int8. Groups of one input, which no byte
    instruction computes, may need int16. ``output_axis``: axis of the outputs in the weight.
    ``shift``: one number per output. ``scale``: one number per output, or None if the product is
    not scaled.
    """

    call: relax.Call
    data: Quantized
    weight: Array
    output_axis: int
    shift: Array
    scale: Array | None

    @property
    def is_convolution(self) -> bool:
        """True for convolutions, False for matrix products."""
        return operator_name(self.call) in CONVOLUTIONS

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """Padding before and after each spatial axis."""
        padding = [int(extent) for extent in self.call.attrs.padding] if self.is_convolution else []
        half = len(padding) // 2
        return list(zip(padding[:half], padding[half:], strict=True))

    @property
    def is_padded(self) -> bool:
        """True for a convolution with padding."""
        return any(map(any, self.pairs))

    @property
    def added_channels(self) -> int:
        """Number of zero channels that pad the input channels to a multiple of four.

        Images have three channels. The number is 0 if it would exceed a third of the channels, or
        if byte instructions cannot compute the convolution.
        """
        if not self.is_convolution or int(self.call.attrs.groups) > 1 or self.shift.any():
            return 0
        outputs, channels = self.weight.shape[:2]
        added = -channels % _FOUR
        is_large = self.weight.size >= _LEAST_PRODUCTS * outputs
        return added if 3 * added <= channels and outputs % _FOUR == 0 and is_large else 0

    @property
    def weight_of_fours(self) -> Array:
        """The weight, including the added channels."""
        widths = [(0, 0)] * self.weight.ndim
        widths[1] = (0, self.added_channels)
        return np.pad(self.weight, widths)

    def sums(self) -> Array:
        """Return the sum of the integers of each output."""
        axes = tuple(n for n in range(self.weight.ndim) if n != self.output_axis)
        sums = self.weight.sum(axis=axes, dtype=np.int64)
        return self.along_outputs(sums + self.shift * (self.weight.size // len(sums)))

    def sums_inside(self) -> Array:
        """Return the sum of the integers that read the image, for each element of a convolution."""
        attrs = self.call.attrs
        shape, outputs = static_shape(self.data.data), static_shape(self.call)
        assert shape is not None and outputs is not None
        ones = np.pad(np.ones(shape[2:], np.int64), self.pairs)
        weight = self.weight.reshape(*self.weight.shape[:2], -1)
        by_place = weight.sum(axis=1, dtype=np.int64)
        by_place += self.shift[:, None] * weight.shape[1]
        sums = np.zeros((1, *outputs[1:]), np.int64)
        for number, place in enumerate(np.ndindex(*self.weight.shape[2:])):
            windows = []
            for index, dilation, stride, extent in zip(
                place, attrs.dilation, attrs.strides, outputs[2:], strict=True
            ):
                first = index * int(dilation)
                windows.append(slice(first, first + (extent - 1) * int(stride) + 1, int(stride)))
            sums += self.along_outputs(by_place[:, number]) * ones[tuple(windows)]
        return sums

    def along_outputs(self, values: Array) -> Array:
        """Reshape one number per output so that it broadcasts with the product."""
        rank = len(self.call.ty.shape)
        behind = rank - 2 if self.is_convolution else 0
        return values.reshape([1] * (rank - 1 - behind) + [-1] + [1] * behind)

    def of(self, data: Expr, weight: Array, *, pads: bool) -> Expr:
        """Make the int32 product of other integers, which pads with zeros if ``pads``."""
        if not self.is_convolution:
            return relax.op.matmul(data, constant(weight), out_dtype="int32")
        padding = self.call.attrs.padding
        return convolution_like(
            self.call,
            data,
            constant(weight),
            padding=padding if pads else [0] * len(padding),
            out_dtype="int32",
        )


def product_of(bindings: Bindings, value: Expr) -> Product | None:
    """Return the product of bytes that a value computes, or None for other values.

    The left operand must be dequantized with one scale. The right operand must be a constant whose
    integers span less than 256 per output, with one scale or one scale per output. Sums must fit
    into int32.
    """
    name = operator_name(value)
    if name not in PRODUCTS or str(value.ty.dtype) not in ("int32", "float32"):
        return None
    data, weight = quantized(bindings, value.args[0]), quantized_constant(bindings, value.args[1])
    if data is None or weight is None or not _is_plain(name, value):
        return None
    if isinstance(data.zero, int) and abs(data.zero) > _BYTE:
        return None
    axis = 0 if name in CONVOLUTIONS else 1
    if name == "relax.matmul" and weight.values.ndim != 2:
        return None
    rows, scales = (
        np.moveaxis(np.broadcast_to(each, weight.values.shape), axis, 0)
        for each in (weight.values, weight.scale)
    )
    rows, scales = (each.reshape(len(rows), -1) for each in (rows, scales))
    low, high = rows.min(axis=1).astype(np.int64), rows.max(axis=1).astype(np.int64)
    if (scales != scales[:, :1]).any() or (high - low > _BYTE).any():
        return None
    is_grouped = name in CONVOLUTIONS and int(value.attrs.groups) > 1
    is_depthwise = is_grouped and weight.values.shape[1] == 1
    is_signed = is_depthwise | ((low >= -SHIFT) & (high < SHIFT))
    if is_grouped and not is_signed.all():
        return None  # A shift would need the sums of the bytes of each group.
    shift = np.where(is_signed, 0, low + SHIFT)
    magnitude = np.abs(rows - shift[:, None]).sum(axis=1) + np.abs(shift) * rows.shape[1]
    # This bounds the sums of the bytes plus the sums of a zero point that is shifted by 128.
    if 3 * _BYTE * int(magnitude.max()) > _LARGEST:
        return None
    scale = scales[:, 0] if data.scale is None else scales[:, 0] * data.scale
    if not (np.isfinite(scale) & (np.abs(scale) >= np.finfo(np.float32).tiny)).all():
        return None
    is_scaled = bool((scale != 1).any())
    if is_scaled and str(value.ty.dtype) == "int32":
        return None
    along = [-1 if n == axis else 1 for n in range(weight.values.ndim)]
    signed = weight.values - shift.reshape(along)
    dtype = next(
        (each for each in (np.int8, np.int16) if (signed.astype(each) == signed).all()), None
    )
    if dtype is None:
        return None
    signed = signed.astype(dtype)
    return Product(value, data, signed, axis, shift, scale if is_scaled else None)


def _is_plain(name: str, value: Expr) -> bool:
    """True if a product has nonempty operands of static shape in ONNX's layout.

    With several inputs per group, an instruction needs four inputs and four outputs of a group.
    """
    shapes = [static_shape(each) for each in (value, *value.args)]
    if None in shapes or any(0 in shape for shape in shapes if shape):
        return False
    if name == "relax.matmul":
        return all(len(shape or ()) >= 2 for shape in shapes)
    attrs = value.attrs
    groups, weight = int(attrs.groups), shapes[2]
    if groups > 1 and weight is not None and weight[1] > 1:
        if weight[1] % _FOUR or weight[0] // groups % _FOUR:
            return False
    return {*layouts_of(attrs)} <= {"NCHW", "OIHW", "NCW", "OIW"}


@dataclass(frozen=True)
class ProductCounts:
    """Number of products of a quantized model in integers, and of those that stay dequantized."""

    in_integers: int
    dequantized: int


def count_products(mod: IRModule) -> ProductCounts:
    """Count the products of quantized tensors in the function ``main`` of a prepared module.

    ``mod``: a module that ``compute_in_integers`` was run on. A product counts as dequantized if at
    least one operand is dequantized and not constant.
    """
    in_integers = dequantized = 0
    for block in mod["main"].body.blocks:
        bindings = Bindings(block, {})
        for value in bindings.values.values():
            if operator_name(value) not in PRODUCTS:
                continue
            if str(value.args[0].ty.dtype) == "uint8":
                in_integers += 1
            elif any(quantized(bindings, each) is not None for each in value.args):
                dequantized += 1
    return ProductCounts(in_integers, dequantized)


@operator_pass("ComputeInIntegers", required=["relax.astype"])
def compute_in_integers(bindings: Bindings, value: Expr, emit: Emit) -> Expr | None:
    """Make a pass that computes products of dequantized tensors in integers.

    It rewrites convolutions and matrix products of ``(x - zero) * scale``, where x are bytes, with
    constant weights that are bytes times a scale. They become an int32 product of the bytes, from
    which ``zero`` times the sums of the weights is subtracted. This is exact. The difference is
    multiplied by both scales in float32. Padding counts as the zero point. Signed bytes are shifted
    by 128 where they are made. The operators that follow do not change: a bias, an activation and
    the rounding to bytes are elementwise, and are fused.

    Reshapes, transposes and max pools of dequantized tensors operate on the bytes instead. The pass
    removes a quantization that undoes a dequantization. Three kinds of products stay dequantized:
    grouped convolutions with several inputs per group, unless four divides the inputs and the
    outputs of a group; products of two activations; and products with weights that are not bytes.
    Run it on a graph in ONNX's layout before constants are folded.
    """
    product = product_of(bindings, value)
    if product is None:
        return requantized(bindings, value, emit)
    return _in_integers(bindings, product, emit)


def _in_integers(bindings: Bindings, product: Product, emit: Emit) -> Expr:
    data = unsigned(bindings, product.data, emit)
    # If the zero point is a known nonzero byte, pad with it first. Otherwise the product pads.
    pads = not (isinstance(data.zero, int) and 0 < data.zero < 256)
    source = _padded(product, data, pads, emit)
    sums = product.sums_inside() if pads and product.is_padded else product.sums()
    total = emit(product.of(source, product.weight_of_fours, pads=pads))
    if product.shift.any():
        summed = _summed(product, source, pads, emit)
        shift = constant(product.along_outputs(product.shift).astype(np.int32))
        total = emit(relax.op.add(total, emit(relax.op.multiply(summed, shift))))
    if not isinstance(data.zero, int):
        shift = emit(relax.op.multiply(constant(sums.astype(np.int32)), data.zero))
        total = emit(relax.op.subtract(total, shift))
    elif data.zero:
        total = emit(relax.op.add(total, constant((-data.zero * sums).astype(np.int32))))
    if str(product.call.ty.dtype) == "int32":
        return total
    if product.scale is None:
        return relax.op.astype(total, "float32")
    scale = product.along_outputs(product.scale.astype(np.float32))
    return relax.op.multiply(emit(relax.op.astype(total, "float32")), constant(scale))


def _summed(product: Product, source: Expr, pads: bool, emit: Emit) -> Expr:
    """Return the sum of the bytes that each element of a product reads."""
    wide = emit(relax.op.astype(source, "int32"))
    axis = 1 if product.is_convolution else -1
    summed = emit(relax.op.sum(wide, [axis], keepdims=True))
    if not product.is_convolution:
        return summed
    ones = np.ones((1, 1, *product.weight.shape[2:]), np.int32)
    return emit(product.of(summed, ones, pads=pads))


def _padded(product: Product, data: Quantized, pads: bool, emit: Emit) -> Expr:
    """Return the bytes with added channels, padded with the zero point for a convolution.

    ``pads``: whether the product itself pads the images.
    """
    added = product.added_channels
    images = [0] * 2 * len(product.pairs) if pads else [n for pair in product.pairs for n in pair]
    if not any([added, *images]):
        return data.data
    # The added channels are multiplied by zeros.
    value = data.zero if isinstance(data.zero, int) and not pads else 0
    return emit(relax.op.nn.pad(data.data, [0, 0, 0, added, *images], "constant", value))
