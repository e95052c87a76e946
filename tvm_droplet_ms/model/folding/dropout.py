# SPDX-License-Identifier: Apache-2.0
"""Removal of dropouts, which do nothing at inference."""

import tvm
from tvm import relax

from ..bindings import Bindings, Expr, Var
from ..rewriting import Emit, Rewrite, binding_pass


def _rewrite(bindings: Bindings) -> Rewrite:
    def rewrite(_var: Var, value: Expr, _emit: Emit) -> Expr | None:
        if isinstance(value, relax.TupleGetItem) and value.index == 0:
            dropout = bindings.call_of(value.tuple_value, "relax.nn.dropout")
            return None if dropout is None else dropout.args[0]
        return None

    return rewrite


def drop_dropouts() -> tvm.transform.Pass:
    """Make a pass that replaces the output of each ``relax.nn.dropout`` by its input.

    ``relax.nn.dropout`` returns the output and the mask. ``ConvertLayout`` stops at it with
    "Expected nested to match tuple" (``src/relax/op/nn/nn.cc`` registers it as a unary operation).
    A dropout whose mask is used stays as it is, and so does its output, where the two are used
    together. Returns the pass. It leaves the dropouts themselves as dead code.
    """
    return binding_pass("DropDropouts", _rewrite, ["relax.nn.dropout"])
