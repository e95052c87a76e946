# SPDX-License-Identifier: Apache-2.0
"""Places where two operators become two kernels, so that what is between them is stored."""

import tvm
from tvm import relax

from .bindings import Bindings, Expr, Var, operator_name
from .rewriting import Emit, binding_pass, stateless

_STOP = "relax.builtin.stop_lift_params"
"""An operator of TVM's that hands on its operand, and that ``FuseOps`` fuses with nothing."""


def stop_fusion(expr: Expr) -> Expr:
    """An expression that is stored: its kernel ends with it."""
    return relax.op.builtin.stop_lift_params(expr)


def drop_fusion_stops() -> tvm.transform.Pass:
    """Make a pass that removes what ``stop_fusion`` made, after ``FuseTIR``."""

    def drop(_bindings: Bindings, _var: Var, value: Expr, _emit: Emit) -> Expr | None:
        return value.args[0] if operator_name(value) == _STOP else None

    passes = [
        binding_pass("DropFusionStops", stateless(drop), [_STOP]),
        relax.transform.CanonicalizeBindings(),
    ]
    return tvm.transform.Sequential(passes)
