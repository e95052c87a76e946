# SPDX-License-Identifier: Apache-2.0
"""Kernels that round float32 to bfloat16."""

from typing import Any

import tvm
from tvm import relax, te

from ...design_space.dot_products.dot_intrinsics import HALF
from ...design_space.dot_products.rounded_vectors import rounded


def legalize_cast(builder: relax.BlockBuilder, call: Any) -> Any:
    """Legalize ``relax.astype``; for ``LegalizeOps(customize_legalize_map=...)``.

    ``builder``: the builder that emits the kernel. ``call``: a call of ``relax.astype``. Returns a
    ``call_tir``. TVM legalizes all casts except float32 to bfloat16.
    """
    data = call.args[0]
    if (str(data.ty.dtype), str(call.ty.dtype)) != ("float32", HALF):
        return tvm.ir.Op.get("relax.astype").get_attr("FLegalize")(builder, call)
    return builder.call_te(round_tensor, data, primfunc_name_hint="cast")


def round_tensor(data: te.Tensor) -> te.Tensor:
    """Round a float32 tensor to bfloat16."""
    return te.compute(data.shape, lambda *at: rounded(data(*at)), name="compute")
