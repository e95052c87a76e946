# SPDX-License-Identifier: Apache-2.0
"""Negative axes counted from the front."""

import tvm
from tvm import relax

from ..bindings import Bindings, Expr, Var, operator_name
from ..rewriting import Emit, Rewrite, binding_pass

OPERATORS = {"relax.squeeze": "axis", "relax.permute_dims": "axes"}


def _rewrite(_bindings: Bindings) -> Rewrite:
    def rewrite(_var: Var, value: Expr, _emit: Emit) -> Expr | None:
        name = operator_name(value)
        axes = getattr(value.attrs, OPERATORS[name]) if name in OPERATORS else None
        if axes is None or min((int(axis) for axis in axes), default=0) >= 0:
            return None
        source = value.args[0]
        positive = [int(axis) % source.ty.ndim for axis in axes]
        if name == "relax.squeeze":
            return relax.op.squeeze(source, positive)
        return relax.op.permute_dims(source, positive)

    return rewrite


def make_axes_positive() -> tvm.transform.Pass:
    """Make a pass that replaces negative axes of squeezes and transposes.

    ``ConvertLayout`` writes out of bounds at a negative axis of ``relax.squeeze`` and stops with
    "std::bad_alloc"; at one of ``relax.permute_dims`` it stops with "Invalid layout"
    (``src/relax/op/tensor/manipulate.cc``). PyTorch's attention has the former. Returns the pass.
    Tensors of unknown rank do not have negative axes: TVM refuses them.
    """
    return binding_pass("MakeAxesPositive", _rewrite, list(OPERATORS))
