# SPDX-License-Identifier: Apache-2.0
"""Conversion of convolutions to channels last: NHWC with HWIO weights, NWC and NDHWC."""

import tvm
from tvm import relax
from tvm.ir import IRModule

from ..bindings import Expr, operator_name, values_of
from ..folding.numpy_folding import fold_constants
from ..layers import CONVOLUTIONS
from .convertible import make_axes_positive
from .transposes import merge_transposes, sink_transposes

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


def _values(mod: IRModule) -> list[Expr]:
    return [
        value
        for func in mod.functions.values()
        if isinstance(func, relax.Function) and isinstance(func.body, relax.SeqExpr)
        for value in values_of(func)
    ]


def _can_convert(mod: IRModule) -> bool:
    """True if a module has a convolution, and no operation forbids the conversion."""
    values = _values(mod)
    has_convolutions = any(operator_name(value) in CONVOLUTIONS for value in values)
    return has_convolutions and not any(_forbids_conversion(value) for value in values)


def _has_unknown_shapes(mod: IRModule) -> bool:
    """True if the shape of some tensor is known only at run time, as for a NonZero."""
    return any(
        isinstance(value.ty, relax.TensorType) and value.ty.shape is None for value in _values(mod)
    )


def _converted(mod: IRModule) -> IRModule | None:
    """Convert a module to NHWC; None if ``ConvertLayout`` stops at a tensor of unknown shape."""
    conversion = tvm.transform.Sequential(
        [make_axes_positive(), relax.transform.ConvertLayout(LAYOUTS)]
    )
    try:
        return conversion(mod)
    except tvm.error.InternalError:
        if not _has_unknown_shapes(mod):
            raise
        return None


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
    folding = tvm.transform.Sequential(
        [canonicalize(), fold_constants(), canonicalize(), sink_transposes()]
    )
    clean_up = tvm.transform.Sequential([merge_transposes(), canonicalize()])

    def convert(mod: IRModule, _ctx: tvm.transform.PassContext) -> IRModule:
        converted = _converted(mod) if _can_convert(mod) else None
        return clean_up(mod if converted is None else folding(converted))

    return tvm.transform.module_pass(convert, opt_level=0, name="ConvertToNHWC")
