# SPDX-License-Identifier: Apache-2.0
"""Constant operands of elementwise operations in the form that ``ConvertLayout`` passes through."""

import tvm
from tvm import relax

from ..bindings import Bindings, Expr, Var, array_of, constant, operator_name, static_shape
from ..rewriting import Emit, Rewrite, binding_pass

COMMUTATIVE = {
    "relax.add": relax.op.add,
    "relax.multiply": relax.op.multiply,
    "relax.maximum": relax.op.maximum,
    "relax.minimum": relax.op.minimum,
}
OTHERS = {
    "relax.subtract": relax.op.subtract,
    "relax.divide": relax.op.divide,
    "relax.power": relax.op.power,
}


def _full_rank(expr: Expr, rank: int) -> Expr:
    """Put extents of 1 before those of a constant, so that its rank is `rank`.

    A constant of rank 0 stays as it is: it has no layout.
    """
    values = array_of(expr)
    if values is None or not 0 < values.ndim < rank:
        return expr
    return constant(values.reshape((1,) * (rank - values.ndim) + values.shape))


def _has_negatives(expr: Expr) -> bool:
    """True for floats and signed integers: TVM negates no others."""
    return str(expr.ty.dtype).startswith(("float", "bfloat", "int"))


def _rewrite(_bindings: Bindings) -> Rewrite:
    def rewrite(_var: Var, value: Expr, emit: Emit) -> Expr | None:
        name = operator_name(value)
        operator = COMMUTATIVE.get(name, OTHERS.get(name))
        if operator is None:
            return None
        left, right = value.args
        if (array_of(left) is None) == (array_of(right) is None):
            return None
        if array_of(left) is not None:
            if name == "relax.subtract" and _has_negatives(left):
                left, right, operator = emit(relax.op.negative(right)), left, relax.op.add
            elif name in COMMUTATIVE:
                left, right = right, left
            else:
                return None
        shape = static_shape(left)
        if shape is not None:
            right = _full_rank(right, len(shape))
        same = left.same_as(value.args[0]) and right.same_as(value.args[1])
        return None if same else operator(left, right)

    return rewrite


def place_constants() -> tvm.transform.Pass:
    """Make a pass that puts constant operands to the right and gives them full rank.

    ``ConvertLayout`` turns an activation back to NCHW where the left operand of an elementwise
    operation is a constant, or where the constant has a lower rank than the activation
    (``src/relax/op/tensor/binary.cc``, ``InferLayoutBinaryEwise``). So ``c + x`` becomes ``x + c``,
    ``c - x`` becomes ``-x + c``, and a scale of shape (C, 1, 1) gets the shape (1, C, 1, 1).
    Constants of rank 0 stay. ``c / x`` stays, and so does ``c - x`` of unsigned integers. Returns
    the pass. The results are the same to the last bit.
    """
    return binding_pass("PlaceConstants", _rewrite, [*COMMUTATIVE, *OTHERS])
