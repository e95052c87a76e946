# SPDX-License-Identifier: Apache-2.0
"""A convolution of bfloat16 whose padded images are copied bit by bit.

TVM computes with bfloat16 in float32 (``BF16ComputeLegalize``), and so it converts each number that
it pads to float32 and back.
"""

from collections.abc import Sequence
from typing import Any

from tvm import relax, te, tirx, topi

from ....search_strategy.dot_products.dot_intrinsics import HALF
from ...bindings import Expr
from ...layers import layouts_of

_BITS = "uint16"


def is_half_convolution(call: Any) -> bool:
    """True if a convolution of bfloat16 to float32 has one group, in NHWC with HWIO weights."""
    return (
        {str(operand.ty.dtype) for operand in call.args} == {HALF}
        and str(call.ty.dtype) == "float32"
        and layouts_of(call.attrs) == ("NHWC", "HWIO", "NHWC")
        and int(call.attrs.groups) == 1
    )


def call_half_convolution(builder: relax.BlockBuilder, call: Any) -> Expr:
    """Call the kernel of a convolution, with sums in float32.

    ``builder``: the builder that emits the kernel. ``call``: a call of ``relax.nn.conv2d`` that
    ``is_half_convolution``. Returns a ``call_tir``.
    """
    attrs = call.attrs
    return builder.call_te(
        half_convolution,
        *call.args,
        *([int(n) for n in each] for each in (attrs.strides, attrs.padding, attrs.dilation)),
        primfunc_name_hint="conv2d",
    )


def half_convolution(
    data: te.Tensor,
    weights: te.Tensor,
    strides: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> te.Tensor:
    """Convolve images of shape (batch, height, width, inputs) with HWIO weights.

    ``padding``: zeros at the top, left, bottom and right. Returns float32.
    """
    return topi.nn.conv2d_nhwc(
        _padded(data, padding), weights, strides, 0, dilation, out_dtype="float32"
    )


def _padded(data: te.Tensor, padding: Sequence[int]) -> te.Tensor:
    if not any(padding):
        return data
    top, left, bottom, right = padding
    batch, height, width, channels = data.shape

    def copied(n: Any, y: Any, x: Any, c: Any) -> Any:
        is_inside = tirx.all(y >= top, y < top + height, x >= left, x < left + width)
        bits = tirx.reinterpret(_BITS, data[n, y - top, x - left, c])
        bits = tirx.if_then_else(is_inside, bits, tirx.const(0, _BITS))
        return tirx.reinterpret(HALF, bits)

    shape = (batch, height + top + bottom, width + left + right, channels)
    return te.compute(shape, copied, name="pad_temp")
