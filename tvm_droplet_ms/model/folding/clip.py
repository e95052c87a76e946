# SPDX-License-Identifier: Apache-2.0
"""Clips between constants as a maximum and a minimum."""

import numpy as np

import tvm
from tvm import relax

from ..bindings import Bindings, Expr, Var, is_float32, operator_name
from ..rewriting import Emit, Rewrite, binding_pass

CLIP = "relax.clip"


def _bound(expr: Expr) -> float | None:
    """Return the value of a bound. None if it is no constant."""
    if isinstance(expr, tvm.tirx.IntImm | tvm.tirx.FloatImm):
        return float(expr.value)
    return None


def _rewrite(_bindings: Bindings) -> Rewrite:
    def rewrite(_var: Var, value: Expr, emit: Emit) -> Expr | None:
        if operator_name(value) != CLIP or not is_float32(value):
            return None
        result = value.args[0]
        low, high = _bound(value.args[1]), _bound(value.args[2])
        # With the bounds the wrong way round TVM gives the lower one, and a maximum and a minimum
        # the upper one. With NaN neither comparison holds.
        if low is None or high is None or not low <= high:
            return None
        if low != -np.inf:
            result = relax.op.maximum(result, relax.const(np.float32(low)))
            result = emit(result) if high != np.inf else result
        if high != np.inf:
            result = relax.op.minimum(result, relax.const(np.float32(high)))
        return result

    return rewrite


def expand_clips() -> tvm.transform.Pass:
    """Make a pass that replaces each ``relax.clip`` between constants.

    ``ConvertLayout`` has no rule for ``relax.clip`` (``src/relax/op/tensor/unary.cc``): a ReLU6
    between two convolutions would cost two transposes. Minimum and maximum with constants of rank 0
    pass through, and fuse with the convolution before them. An infinite bound is left out. Returns
    the pass. Only clips of float32 are replaced whose lower bound is not above the upper one.
    """
    return binding_pass("ExpandClips", _rewrite, [CLIP])
