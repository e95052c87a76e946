# SPDX-License-Identifier: Apache-2.0
"""Rounding of float32 to bfloat16 by an addition and a shift.

TVM rounds ties to even, which takes three instructions more for each vector
(``BF16StorageLegalize``); a tie goes away from zero here. Infinities and the NaNs that CPUs make
stay what they are.
"""

from typing import Any

import tvm
from tvm import relax, te, tirx

from ...search_strategy.dot_products.dot_intrinsics import HALF

_BITS, _HALF_BITS, _SHIFT = "uint32", "uint16", 16


def rounded(value: Any) -> Any:
    """An expression of float32 in bfloat16."""
    bits = tirx.reinterpret(_BITS, value) + tirx.const(1 << (_SHIFT - 1), _BITS)
    shifted = tirx.shift_right(bits, tirx.const(_SHIFT, _BITS))
    return tirx.reinterpret(HALF, shifted.astype(_HALF_BITS))


def legalize_cast(builder: relax.BlockBuilder, call: Any) -> Any:
    """Legalise ``relax.astype``; for ``LegalizeOps(customize_legalize_map=...)``.

    ``builder``: the builder that emits the kernel. ``call``: a call of ``relax.astype``. Returns a
    ``call_tir``. All but casts of float32 to bfloat16 are left to TVM.
    """
    data = call.args[0]
    if (str(data.ty.dtype), str(call.ty.dtype)) != ("float32", HALF):
        return tvm.ir.Op.get("relax.astype").get_attr("FLegalize")(builder, call)
    return builder.call_te(round_tensor, data, primfunc_name_hint="cast")


def round_tensor(data: te.Tensor) -> te.Tensor:
    """A tensor of float32 in bfloat16."""
    return te.compute(data.shape, lambda *at: rounded(data(*at)), name="compute")
