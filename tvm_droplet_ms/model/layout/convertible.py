# SPDX-License-Identifier: Apache-2.0
"""Operations in forms that ``ConvertLayout`` passes through, where it would stop or transpose."""

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
    """Return the value of a bound. None if it is no constant."""
    if isinstance(expr, tvm.tirx.IntImm | tvm.tirx.FloatImm):
        return float(expr.value)
    return None


def _expand(_bindings: Bindings, _var: Var, value: Expr, emit: Emit) -> Expr | None:
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


def expand_clips() -> tvm.transform.Pass:
    """Make a pass that replaces each ``relax.clip`` between constants.

    ``ConvertLayout`` has no rule for ``relax.clip`` (``src/relax/op/tensor/unary.cc``): a ReLU6
    between two convolutions would cost two transposes. Minimum and maximum with constants of rank 0
    pass through, and fuse with the convolution before them. An infinite bound is left out. Returns
    the pass. Only clips of float32 are replaced whose lower bound is not above the upper one.
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
    A dropout whose mask is used stays as it is, and so does its output, where the two are used
    together. Returns the pass. It leaves the dropouts themselves as dead code.
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
    """Make a pass that puts constant operands to the right and gives them full rank.

    ``ConvertLayout`` turns an activation back to NCHW where the left operand of an elementwise
    operation is a constant, or where the constant has a lower rank than the activation
    (``src/relax/op/tensor/binary.cc``, ``InferLayoutBinaryEwise``). So ``c + x`` becomes ``x + c``,
    ``c - x`` becomes ``-x + c``, and a scale of shape (C, 1, 1) gets the shape (1, C, 1, 1).
    Constants of rank 0 stay. ``c / x`` stays, and so does ``c - x`` of unsigned integers. Returns
    the pass. The results are the same to the last bit.
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

    ``ConvertLayout`` writes out of bounds at a negative axis of ``relax.squeeze`` and stops with
    "std::bad_alloc"; at one of ``relax.permute_dims`` it stops with "Invalid layout"
    (``src/relax/op/tensor/manipulate.cc``). PyTorch's attention has the former. Returns the pass.
    Tensors of unknown rank do not have negative axes: TVM refuses them.
    """
    return binding_pass("MakeAxesPositive", stateless(_count_from_front), list(_WITH_AXES))
