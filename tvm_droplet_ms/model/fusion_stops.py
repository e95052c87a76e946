# SPDX-License-Identifier: Apache-2.0
"""Markers that keep two operators in separate kernels, so that the value between is stored."""

import tvm
from tvm import relax

from .bindings import Bindings, Expr, Var, operator_name
from .rewriting import Emit, binding_pass, stateless

_STOP = "relax.builtin.stop_lift_params"
"""A TVM operator that returns its operand, and that ``FuseOps`` does not fuse."""


def stop_fusion(expr: Expr) -> Expr:
    """Mark an expression as the end of its kernel, so that its value is stored."""
    return relax.op.builtin.stop_lift_params(expr)


def drop_fusion_stops() -> tvm.transform.Pass:
    """Make a pass that removes the markers of ``stop_fusion``, to be run after ``FuseTIR``."""

    def drop(_bindings: Bindings, _var: Var, value: Expr, _emit: Emit) -> Expr | None:
        return value.args[0] if operator_name(value) == _STOP else None

    passes = [
        binding_pass("DropFusionStops", stateless(drop), [_STOP]),
        relax.transform.CanonicalizeBindings(),
    ]
    return tvm.transform.Sequential(passes)
