# SPDX-License-Identifier: Apache-2.0
"""The pass that computes products of dequantized tensors in integers."""

import numpy as np

import tvm
from tvm import relax

from ..bindings import Bindings, Expr, Var, constant
from ..rewriting import Emit, Rewrite, binding_pass
from .products import Product, product_of
from .quantized_values import Quantized
from .requantization import Requantization, unsigned


def compute_in_integers() -> tvm.transform.Pass:
    """Make a pass that computes products of dequantized tensors in integers.

    It rewrites convolutions and matrix products of ``(x - zero) * scale``, where x are bytes, with
    constant weights that are bytes times a scale. They become an int32 product of the bytes, from
    which ``zero`` times the sums of the weights is subtracted. This is exact. The difference is
    multiplied by both scales in float32. Padding counts as the zero point. Signed bytes are shifted
    by 128 where they are made. The operators that follow do not change: a bias, an activation and
    the rounding to bytes are elementwise, and are fused.

    Reshapes, transposes and max pools of dequantized tensors operate on the bytes instead. The
    pass removes a quantization that undoes a dequantization. Three kinds of products stay
    dequantized: grouped convolutions with several inputs per group, unless four divides the inputs
    and the outputs of a group; products of two activations; and products with weights that are not
    bytes. Returns the pass. Run it on a graph in ONNX's layout before constants are folded.
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
