# SPDX-License-Identifier: Apache-2.0
"""Runtime indices, clamped to the bounds of the tensors that they index.

TVM's kernels do not check indices. ONNX Runtime and PyTorch raise an error for an index out of
bounds. A compiled kernel cannot, so it uses the nearest element and never touches foreign memory.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

import tvm
from tvm import relax

from .bindings import Bindings, Expr, Var, array_of, operator_name, static_shape
from .rewriting import Emit, binding_pass, stateless

_ALONG_AXIS = ("relax.gather_elements", "relax.scatter_elements")
_BOUNDED = ("relax.take", *_ALONG_AXIS, "relax.gather_nd", "relax.scatter_nd")


def bound_indices() -> tvm.transform.Pass:
    """Make a pass that clamps indices to the bounds of their tensors.

    Returns the pass. It does not change constant indices and tensors of open extents. Negative
    indices of ``scatter_elements`` count from the end, as in TVM's kernel.
    """
    return binding_pass("BoundIndices", stateless(_bounded), _BOUNDED)


def _bounded(bindings: Bindings, _var: Var, value: Expr, emit: Emit) -> Expr | None:
    name = operator_name(value)
    if name not in _BOUNDED:
        return None
    data, index, *rest = value.args
    shape = static_shape(data)
    if shape is None or array_of(bindings.value_of(index)) is not None or 0 in shape:
        return None
    attrs = value.attrs
    if name == "relax.take":
        if attrs.mode != "fast":
            return None
        axis = None if attrs.axis is None else int(attrs.axis)
        return relax.op.take(data, index, axis=axis, mode="clip")
    if name in _ALONG_AXIS:
        extents: Sequence[int] = [shape[int(attrs.axis)]]
    else:
        places = static_shape(index)
        if places is None:
            return None
        start = int(getattr(attrs, "batch_dims", 0))
        extents = shape[start : start + places[-1]]
    if max(extents) > np.iinfo(str(index.ty.dtype)).max:
        return None
    inside = _within(index, extents, name == "relax.scatter_elements", emit)
    if name == "relax.gather_elements":
        return relax.op.gather_elements(data, inside, axis=int(attrs.axis))
    if name == "relax.scatter_elements":
        return relax.op.scatter_elements(data, inside, *rest, int(attrs.axis), attrs.reduction)
    if name == "relax.gather_nd":
        return relax.op.gather_nd(data, inside, int(attrs.batch_dims))
    return relax.op.scatter_nd(data, inside, *rest, attrs.reduction)


def _within(index: Any, extents: Sequence[int], may_be_negative: bool, emit: Emit) -> Any:
    """Clamp indices to an extent, or to one extent for each position on their last axis."""
    dtype = str(index.ty.dtype)
    ends = np.array(extents if len(extents) > 1 else extents[0], dtype)
    starts = -ends if may_be_negative and not dtype.startswith("uint") else np.zeros_like(ends)
    above = emit(relax.op.maximum(index, relax.const(starts, dtype)))
    return emit(relax.op.minimum(above, relax.const(ends - 1, dtype)))
