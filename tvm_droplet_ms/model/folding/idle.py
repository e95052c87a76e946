# SPDX-License-Identifier: Apache-2.0
"""Operations whose result is one of their operands."""

import tvm_ffi

import tvm
from tvm import relax

from ..bindings import Bindings, Expr, Var, array_of, operator_name
from ..rewriting import Emit, binding_pass, stateless

CAST, WHERE, BROADCAST, CONCAT = (
    f"relax.{name}" for name in ("astype", "where", "broadcast_to", "concat")
)


def drop_idle() -> tvm.transform.Pass:
    """Make a pass that drops casts, broadcasts and choices whose result is one of their operands.

    ONNX's ``Attention`` comes with a cast around each step and a mask that hides nothing. The pass
    drops a cast or broadcast to the tensor's own type and shape, a choice whose condition is a
    constant that is true everywhere or nowhere, and a concatenation of one tensor.
    """
    return binding_pass("DropIdle", stateless(_rewrite), [CAST, WHERE, BROADCAST, CONCAT])


def _rewrite(bindings: Bindings, _var: Var, value: Expr, _emit: Emit) -> Expr | None:
    name = operator_name(value)
    if name in (CAST, BROADCAST):
        operand = value.args[0]
    elif name == CONCAT:
        parts = value.args[0]
        if not isinstance(parts, relax.Tuple) or len(parts.fields) != 1:
            return None
        operand = parts.fields[0]
    elif name == WHERE:
        condition = array_of(bindings.value_of(value.args[0]))
        if condition is None or condition.all() != condition.any():
            return None
        operand = value.args[1 if condition.all() else 2]
    else:
        return None
    return operand if tvm_ffi.structural_equal(operand.ty, value.ty) else None
