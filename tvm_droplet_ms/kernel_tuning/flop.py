# SPDX-License-Identifier: Apache-2.0
"""The arithmetic of a kernel."""

import math

from tvm.ir import IRModule
from tvm.s_tir.analysis import estimate_tir_flops


def flop_of(mod: IRModule) -> float:
    """Floating-point operations of one call; NaN where TVM cannot count them."""
    try:
        return float(estimate_tir_flops(mod))
    except Exception:  # TVM raises errors of many types for what it cannot count.
        return math.nan
