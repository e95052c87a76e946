# SPDX-License-Identifier: Apache-2.0
"""Stores terms of sums between two kernels in narrow types.

When two products are added, one of them is computed first and stored. ``FuseOps`` fuses the
conversion to float32 into its kernel, so four bytes are written and read for each number.
"""

import tvm
from tvm import relax

from ...design_space.dot_products.dot_intrinsics import HALF
from ..bindings import Bindings, Expr, Var, operator_name
from ..half_products import computes_in_bfloat16, is_half_layer
from ..integers.quantized_values import BYTES
from ..integers.whole_floats import is_stored
from ..layers import CONVOLUTIONS
from ..rewriting import Emit, Rewrite, binding_pass, operator_pass

_ADD, _CAST = "relax.add", "relax.astype"

_STOP = "relax.builtin.stop_lift_params"
"""A TVM operator that returns its operand, and that ``FuseOps`` does not fuse."""


def store_terms() -> tvm.transform.Pass:
    """Make a pass that stores terms of sums as bytes if they were quantized, or in bfloat16.

    Terms are stored in bfloat16 if both are bfloat16 convolutions, as in the first block of a
    residual network. This rounds the term once more. Run ``drop_fusion_stops`` after ``FuseTIR``.
    """

    def transform(mod: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
        halves = any(
            isinstance(each, relax.Function) and computes_in_bfloat16(each)
            for each in mod.functions.values()
        )

        def make_rewrite(bindings: Bindings) -> Rewrite:
            def rewrite(var: Var, value: Expr, emit: Emit) -> Expr | None:
                if operator_name(value) == _CAST:
                    return _bytes_widened(bindings, var, value, emit)
                return _sum_of_halves(bindings, value, emit) if halves else None

            return rewrite

        return binding_pass("StoreTerms", make_rewrite, [_ADD])(mod)

    return tvm.transform.module_pass(transform, opt_level=0, name="StoreTerms")


def drop_fusion_stops() -> tvm.transform.Pass:
    """Make a pass that removes the markers of ``store_terms``, to be run after ``FuseTIR``."""
    return tvm.transform.Sequential([_drop_stops(), relax.transform.CanonicalizeBindings()])


@operator_pass("DropFusionStops", [_STOP])
def _drop_stops(_bindings: Bindings, value: Expr, _emit: Emit) -> Expr | None:
    return value.args[0]


def _bytes_widened(bindings: Bindings, var: Var, value: Expr, emit: Emit) -> Expr | None:
    """Stop fusion before a cast of bytes whose only user is that cast; None for other values."""
    (data,) = value.args
    is_made = bindings.call_of(data, _CAST) is not None and str(data.ty.dtype) in BYTES
    user = bindings.only_user(data) if is_made else None
    if user is None or not user.same_as(var) or not is_stored(bindings, var):
        return None
    return relax.op.astype(emit(relax.op.builtin.stop_lift_params(data)), str(value.ty.dtype))


def _sum_of_halves(bindings: Bindings, value: Expr, emit: Emit) -> Expr | None:
    """Round the stored term of a sum of two bfloat16 convolutions; None for other values."""
    terms = list(value.args) if operator_name(value) == _ADD else []
    if not terms or not all(_is_of_half_convolution(bindings, each) for each in terms):
        return None

    def stored(term: Var) -> Var:
        half = emit(relax.op.builtin.stop_lift_params(emit(relax.op.astype(term, HALF))))
        return emit(relax.op.astype(half, "float32"))

    return relax.op.add(*(stored(each) if is_stored(bindings, each) else each for each in terms))


def _is_of_half_convolution(bindings: Bindings, expr: Expr) -> bool:
    """Return whether a value is a bfloat16 convolution, possibly with a bias and the like."""
    while isinstance(expr, relax.Var) and str(expr.ty.dtype) == "float32":
        value = bindings.values.get(expr)
        if operator_name(value) in CONVOLUTIONS:
            return is_half_layer(value)
        if value is None or operator_name(value) not in (_ADD, "relax.multiply", "relax.nn.relu"):
            return False
        operands = [each for each in value.args if isinstance(each, relax.Var)]
        if len(operands) != 1:
            return False
        (expr,) = operands
    return False
