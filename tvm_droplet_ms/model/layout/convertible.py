# SPDX-License-Identifier: Apache-2.0
"""Operations in forms that ``ConvertLayout`` converts without an error or a transpose."""

import numpy as np

import tvm
from tvm import relax

from ..bindings import (
    Bindings,
    Expr,
    Var,
    array_of,
    constant,
    is_float32,
    operator_name,
    static_shape,
)
from ..rewriting import Emit, binding_pass, stateless

CLIP = "relax.clip"


def _bound(expr: Expr) -> float | None:
    """Return the value of a bound, or None if it is not constant."""
    if isinstance(expr, tvm.tirx.IntImm | tvm.tirx.FloatImm):
        return float(expr.value)
    return None


def _expand(_bindings: Bindings, _var: Var, value: Expr, emit: Emit) -> Expr | None:
    if operator_name(value) != CLIP or not is_float32(value):
        return None
    result = value.args[0]
    low, high = _bound(value.args[1]), _bound(value.args[2])
    # With low > high, TVM's clip returns low, but a maximum and a minimum return high. With NaN,
    # the comparison is false.
    if low is None or high is None or not low <= high:
        return None
    if low != -np.inf:
        result = relax.op.maximum(result, relax.const(np.float32(low)))
        result = emit(result) if high != np.inf else result
    if high != np.inf:
        result = relax.op.minimum(result, relax.const(np.float32(high)))
    return result


def expand_clips() -> tvm.transform.Pass:
    """Make a pass that replaces each ``relax.clip`` with constant bounds.

    ``ConvertLayout`` has no rule for ``relax.clip`` (``src/relax/op/tensor/unary.cc``): a ReLU6
    between two convolutions would cost two transposes. It converts minimum and maximum with
    constants of rank 0, and they fuse with the convolution before them. An infinite bound is left
    out. Returns the pass. It replaces only float32 clips whose lower bound is not above the upper
    bound.
    """
    return binding_pass("ExpandClips", stateless(_expand), [CLIP])


def _drop(bindings: Bindings, _var: Var, value: Expr, _emit: Emit) -> Expr | None:
    if isinstance(value, relax.TupleGetItem) and value.index == 0:
        dropout = bindings.call_of(value.tuple_value, "relax.nn.dropout")
        return None if dropout is None else dropout.args[0]
    return None


def drop_dropouts() -> tvm.transform.Pass:
    """Make a pass that replaces the output of each ``relax.nn.dropout`` by its input.

    ``relax.nn.dropout`` returns the output and the mask. ``ConvertLayout`` stops at it with
    "Expected nested to match tuple" (``src/relax/op/nn/nn.cc`` registers it as a unary operation).
    A dropout whose mask is used stays, and so does its output if the two are used together. Returns
    the pass. It leaves the dropouts themselves as dead code.
    """
    return binding_pass("DropDropouts", stateless(_drop), ["relax.nn.dropout"])


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
    """Prepend extents of 1 to the shape of a constant, so that its rank is `rank`.

    A constant of rank 0 stays unchanged, because it has no layout.
    """
    values = array_of(expr)
    if values is None or not 0 < values.ndim < rank:
        return expr
    return constant(values.reshape((1,) * (rank - values.ndim) + values.shape))


def _has_negatives(expr: Expr) -> bool:
    """True for floats and signed integers, the only types that TVM negates."""
    return str(expr.ty.dtype).startswith(("float", "bfloat", "int"))


def _place(_bindings: Bindings, _var: Var, value: Expr, emit: Emit) -> Expr | None:
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


def place_constants() -> tvm.transform.Pass:
    """Make a pass that moves constant operands to the right and gives them full rank.

    ``ConvertLayout`` converts an activation back to NCHW if the left operand of an elementwise
    operation is a constant, or if the constant has a lower rank than the activation
    (``src/relax/op/tensor/binary.cc``, ``InferLayoutBinaryEwise``). So ``c + x`` becomes ``x + c``,
    ``c - x`` becomes ``-x + c``, and a scale of shape (C, 1, 1) gets the shape (1, C, 1, 1). The
    pass does not change constants of rank 0, ``c / x``, or ``c - x`` of unsigned integers. Returns
    the pass. The results are bitwise equal.
    """
    return binding_pass("PlaceConstants", stateless(_place), [*COMMUTATIVE, *OTHERS])


_WITH_AXES = {"relax.squeeze": "axis", "relax.permute_dims": "axes"}


def _count_from_front(_bindings: Bindings, _var: Var, value: Expr, _emit: Emit) -> Expr | None:
    name = operator_name(value)
    axes = getattr(value.attrs, _WITH_AXES[name]) if name in _WITH_AXES else None
    if axes is None or min((int(axis) for axis in axes), default=0) >= 0:
        return None
    source = value.args[0]
    positive = [int(axis) % source.ty.ndim for axis in axes]
    if name == "relax.squeeze":
        return relax.op.squeeze(source, positive)
    return relax.op.permute_dims(source, positive)


def make_axes_positive() -> tvm.transform.Pass:
    """Make a pass that replaces negative axes of squeezes and transposes.

    At a negative axis of ``relax.squeeze``, ``ConvertLayout`` writes out of bounds and stops with
    "std::bad_alloc". At a negative axis of ``relax.permute_dims``, it stops with "Invalid layout"
    (``src/relax/op/tensor/manipulate.cc``). PyTorch's attention has such a squeeze. Returns the
    pass. TVM rejects negative axes for tensors of unknown rank.
    """
    return binding_pass("MakeAxesPositive", stateless(_count_from_front), list(_WITH_AXES))
