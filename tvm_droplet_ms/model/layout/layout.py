# SPDX-License-Identifier: Apache-2.0
"""Conversion of convolutions to channels last, and the forms of operations that it needs."""

import numpy as np

import tvm
from tvm import relax
from tvm.ir import IRModule

from ..bindings import (
    Bindings,
    Expr,
    array_of,
    constant,
    is_float32,
    operator_name,
    relax_functions,
    static_shape,
    values_of,
)
from ..folding.numpy_folding import fold_constants
from ..layers import CONVOLUTIONS
from ..rewriting import Emit, operator_pass
from .transposes import merge_transposes, sink_transposes

CLIP = "relax.clip"


def _bound(expr: Expr) -> float | None:
    """Return the value of a bound, or None if it is not constant."""
    if isinstance(expr, tvm.tirx.IntImm | tvm.tirx.FloatImm):
        return float(expr.value)
    return None


@operator_pass("ExpandClips", [CLIP])
def expand_clips(_bindings: Bindings, value: Expr, emit: Emit) -> Expr | None:
    """Make a pass that replaces each ``relax.clip`` with constant bounds.

    ``ConvertLayout`` has no rule for ``relax.clip`` (``src/relax/op/tensor/unary.cc``): a ReLU6
    between two convolutions would cost two transposes. It converts minimum and maximum with
    constants of rank 0, and they fuse with the convolution before them. An infinite bound is left
    out. It replaces only float32 clips whose lower bound is not above the upper bound.
    """
    if not is_float32(value):
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


@operator_pass("DropDropouts", [], ["relax.nn.dropout"])
def drop_dropouts(bindings: Bindings, value: Expr, _emit: Emit) -> Expr | None:
    """Make a pass that replaces the output of each ``relax.nn.dropout`` by its input.

    ``relax.nn.dropout`` returns the output and the mask. ``ConvertLayout`` stops at it with
    "Expected nested to match tuple" (``src/relax/op/nn/nn.cc`` registers it as a unary operation).
    A dropout whose mask is used stays, and so does its output if the two are used together. It
    leaves the dropouts themselves as dead code.
    """
    if isinstance(value, relax.TupleGetItem) and value.index == 0:
        dropout = bindings.call_of(value.tuple_value, "relax.nn.dropout")
        return None if dropout is None else dropout.args[0]
    return None


COMMUTATIVE = relax_functions("add multiply maximum minimum")
OTHERS = relax_functions("subtract divide power")


def _full_rank(expr: Expr, rank: int) -> Expr:
    """Prepend extents of 1 to the shape of a constant, so that its rank is `rank`.

    A constant of rank 0 stays unchanged, because it has no layout.
    """
    values = array_of(expr)
    if values is None or not 0 < values.ndim < rank:
        return expr
    return constant(values.reshape((1,) * (rank - values.ndim) + values.shape))


@operator_pass("PlaceConstants", [*COMMUTATIVE, *OTHERS])
def place_constants(_bindings: Bindings, value: Expr, emit: Emit) -> Expr | None:
    """Make a pass that moves constant operands to the right and gives them full rank.

    ``ConvertLayout`` converts an activation back to NCHW if the left operand of an elementwise
    operation is a constant, or if the constant has a lower rank than the activation
    (``src/relax/op/tensor/binary.cc``, ``InferLayoutBinaryEwise``). So ``c + x`` becomes ``x + c``,
    ``c - x`` becomes ``-x + c``, and a scale of shape (C, 1, 1) gets the shape (1, C, 1, 1). The
    pass does not change constants of rank 0, ``c / x``, or ``c - x`` of unsigned integers. The
    results are bitwise equal.
    """
    name = operator_name(value)
    operator = COMMUTATIVE.get(name) or OTHERS[name]
    left, right = value.args
    if (array_of(left) is None) == (array_of(right) is None):
        return None
    if array_of(left) is not None:
        # TVM negates floats and signed integers only.
        has_negatives = str(left.ty.dtype).startswith(("float", "bfloat", "int"))
        if name == "relax.subtract" and has_negatives:
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


_WITH_AXES = {"relax.squeeze": "axis", "relax.permute_dims": "axes"}


@operator_pass("MakeAxesPositive", _WITH_AXES)
def make_axes_positive(_bindings: Bindings, value: Expr, _emit: Emit) -> Expr | None:
    """Make a pass that replaces negative axes of squeezes and transposes.

    At a negative axis of ``relax.squeeze``, ``ConvertLayout`` writes out of bounds and stops with
    "std::bad_alloc". At a negative axis of ``relax.permute_dims``, it stops with "Invalid layout"
    (``src/relax/op/tensor/manipulate.cc``). PyTorch's attention has such a squeeze. TVM rejects
    negative axes for tensors of unknown rank.
    """
    name = operator_name(value)
    axes = getattr(value.attrs, _WITH_AXES[name])
    if axes is None or min((int(axis) for axis in axes), default=0) >= 0:
        return None
    source = value.args[0]
    positive = [int(axis) % source.ty.ndim for axis in axes]
    if name == "relax.squeeze":
        return relax.op.squeeze(source, positive)
    return relax.op.permute_dims(source, positive)


# LegalizeOps supports transposed convolutions only in NCHW. Without these entries they would follow
# the layout of their input.
LAYOUTS = {
    "relax.nn.conv1d": ["NWC", "WIO"],
    "relax.nn.conv2d": ["NHWC", "HWIO"],
    "relax.nn.conv3d": ["NDHWC", "DHWIO"],
    "relax.nn.conv1d_transpose": ["NCW", "IOW"],
    "relax.nn.conv2d_transpose": ["NCHW", "IOHW"],
    "relax.nn.conv3d_transpose": ["NCDHW", "IODHW"],
}


def _forbids_conversion(value: Expr) -> bool:
    """True if ``ConvertLayout`` stops at an operation, or converts it to a wrong operation."""
    name = operator_name(value)
    if name == "relax.nn.layer_norm":
        # ConvertLayout permutes the axes, but not the scale and the shift of several axes.
        return len(value.attrs.axes) > 1
    # It does not permute the scale of an RMS norm either.
    return name in ("relax.nn.dropout", "relax.nn.rms_norm")


def convert_layout() -> tvm.transform.Pass:
    """Make a pass that computes convolutions in NWC, NHWC and NDHWC, with weights as HWIO.

    Output channels are innermost in all layouts, so that every kernel can vectorize over them.
    NumPy transposes the weights. Activations are transposed where the network enters and leaves
    its convolutional part, and at each operation for which ``ConvertLayout``
    (``src/relax/transform/convert_layout.cc``) has no rule. The function's parameters and results
    keep their layouts.

    The pass merges successive transposes and reshapes, even in a module without convolutions. Three
    kinds of modules keep their layout: modules with a dropout, at which ``ConvertLayout`` stops;
    modules with an RMS norm or a layer norm over several axes, which it converts incorrectly; and
    modules in which it stops at a tensor whose shape is known only at run time.
    """
    canonicalize = relax.transform.CanonicalizeBindings
    conversion = tvm.transform.Sequential(
        [make_axes_positive(), relax.transform.ConvertLayout(LAYOUTS)]
    )
    folding = tvm.transform.Sequential(
        [canonicalize(), fold_constants(), canonicalize(), sink_transposes()]
    )
    clean_up = tvm.transform.Sequential([merge_transposes(), canonicalize()])

    def convert(mod: IRModule, _ctx: tvm.transform.PassContext) -> IRModule:
        values = [
            value
            for func in mod.functions.values()
            if isinstance(func, relax.Function) and isinstance(func.body, relax.SeqExpr)
            for value in values_of(func)
        ]
        has_convolutions = any(operator_name(value) in CONVOLUTIONS for value in values)
        if not has_convolutions or any(map(_forbids_conversion, values)):
            return clean_up(mod)
        try:
            converted = conversion(mod)
        except tvm.error.InternalError:
            # The shape of some tensor is known only at run time, as for a NonZero.
            tensors = [each.ty for each in values if isinstance(each.ty, relax.TensorType)]
            if all(each.shape is not None for each in tensors):
                raise
            return clean_up(mod)
        return clean_up(folding(converted))

    return tvm.transform.module_pass(convert, opt_level=0, name="ConvertToNHWC")
