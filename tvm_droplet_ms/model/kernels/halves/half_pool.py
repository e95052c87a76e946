# SPDX-License-Identifier: Apache-2.0
"""Max pooling of bfloat16 on raw bits.

TVM compares bfloat16 in float32 (``BF16ComputeLegalize``): it converts each number of each window,
and converts the result back. Here the lower fifteen bits of negative numbers are flipped. As signed
words, the bits then have the order of the numbers.
"""

from typing import Any

import tvm
from tvm import relax, te, tirx, topi

from ....design_space.dot_products.dot_intrinsics import HALF

_WORD, _MAGNITUDE, _SIGN_BIT = "int16", 0x7FFF, 15

_KEY_OF_MINUS_INFINITY = (0xFF80 ^ _MAGNITUDE) - (1 << 16)


def legalize_max_pool(builder: relax.BlockBuilder, call: Any) -> Any:
    """Legalize ``relax.nn.max_pool2d``; for ``LegalizeOps(customize_legalize_map=...)``.

    ``builder``: the builder that emits the kernel. ``call``: a call of ``relax.nn.max_pool2d``.
    Returns a ``call_tir``. TVM legalizes all pools except bfloat16 ones.
    """
    attrs = call.attrs
    if str(call.ty.dtype) != HALF or attrs.out_layout != attrs.layout:
        return tvm.ir.Op.get("relax.nn.max_pool2d").get_attr("FLegalize")(builder, call)
    geometry = {
        "kernel": attrs.pool_size,
        "stride": attrs.strides,
        "dilation": attrs.dilation,
        "padding": attrs.padding,
    }
    return builder.call_te(
        half_max_pool,
        call.args[0],
        **geometry,
        ceil_mode=attrs.ceil_mode,
        layout=attrs.layout,
        primfunc_name_hint="max_pool2d",
    )


def half_max_pool(data: te.Tensor, **geometry: Any) -> te.Tensor:
    """Return the maximum of each window; ``geometry``: the arguments of ``topi.nn.pool2d``."""
    keys = te.compute(
        data.shape, lambda *at: _flipped(tirx.reinterpret(_WORD, data(*at))), name="keys"
    )
    largest = topi.nn.pool2d(keys, pool_type="max", **geometry)
    # Padding is the smallest word, which is the key of a NaN.
    lowest = tirx.const(_KEY_OF_MINUS_INFINITY, _WORD)
    return te.compute(
        largest.shape,
        lambda *at: tirx.reinterpret(HALF, _flipped(te.max(largest(*at), lowest))),
        name="largest",
    )


def _flipped(bits: Any) -> Any:
    """Convert bits to ordered keys, or ordered keys back to bits."""
    signs = tirx.shift_right(bits, tirx.const(_SIGN_BIT, _WORD))
    return bits ^ (signs & tirx.const(_MAGNITUDE, _WORD))
