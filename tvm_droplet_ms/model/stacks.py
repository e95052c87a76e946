# SPDX-License-Identifier: Apache-2.0
"""Stacks of tensors as concatenations, and their reductions as pairwise operations."""

import tvm_ffi

import tvm
from tvm import relax

from .bindings import Bindings, Expr, operator_name
from .rewriting import Emit, operator_pass

STACK = "relax.stack"

PAIRWISE = {"relax.sum": relax.op.add, "relax.max": relax.op.maximum, "relax.min": relax.op.minimum}


def _operands(bindings: Bindings, stack: relax.Call) -> list[Expr] | None:
    """Return the stacked tensors, or None if they are not an explicit tuple."""
    tensors = bindings.value_of(stack.args[0])
    return list(tensors.fields) if isinstance(tensors, relax.Tuple) else None


def _stacked(bindings: Bindings, call: relax.Call) -> list[Expr] | None:
    """Return the stacked tensors that a call reduces over axis 0, or None for other calls."""
    attrs = call.attrs
    if attrs.axis is None or [int(axis) for axis in attrs.axis] != [0] or attrs.keepdims:
        return None
    stack = bindings.call_of(call.args[0], STACK)
    if stack is None or int(stack.attrs.axis or 0) != 0:
        return None
    return _operands(bindings, stack)


def _unbroadcast(bindings: Bindings, expr: Expr) -> Expr:
    """Return the source of a broadcast tensor, or the tensor itself if it is not broadcast."""
    call = bindings.call_of(expr, "relax.broadcast_to")
    return expr if call is None else call.args[0]


def _as_number(expr: Expr) -> Expr:
    """Convert a constant of one element to a scalar, which becomes part of the kernel."""
    if not isinstance(expr, tvm.ir.GenericConst) or expr.value.numpy().size != 1:
        return expr
    return relax.const(expr.value.numpy().reshape(()), str(expr.ty.dtype))


@operator_pass("UnstackReductions", PAIRWISE, [STACK])
def unstack_reductions(bindings: Bindings, value: Expr, emit: Emit) -> Expr | None:
    """Make a pass that computes the sum, maximum or minimum of stacked tensors pairwise.

    TVM's ONNX importer broadcasts the inputs of ``Sum``, ``Max`` and ``Min``, stacks them, and
    reduces the stack over its new axis. ``ConvertLayout`` stops with an error at the stack, which
    fuses with nothing. Pairwise operations fuse with the convolution before them. The results are
    bitwise equal, because the tensors are added up in the same order. The stacks are left as dead
    code.
    """
    operator, tensors = PAIRWISE[operator_name(value)], _stacked(bindings, value)
    if tensors is None:
        return None
    sources = [_unbroadcast(bindings, tensor) for tensor in tensors]
    # If no source has the shape of the result, keep the broadcast of the first tensor.
    shapes = [source.ty.shape for source in sources]
    if not any(tvm_ffi.structural_equal(shape, value.ty.shape) for shape in shapes):
        sources = [tensors[0], *sources[1:]]
    else:
        sources = [_as_number(source) for source in sources]
    result = sources[0]
    for source in sources[1:-1]:
        result = emit(operator(result, source))
    return operator(result, sources[-1]) if len(sources) > 1 else result


@operator_pass("ConcatenateStacks", [STACK])
def concatenate_stacks(bindings: Bindings, value: Expr, emit: Emit) -> Expr | None:
    """Make a pass that replaces each stack by a concatenation of expanded tensors.

    ``ConvertLayout`` stops at a stack of activations: "Invalid SLayout: can't find S".
    """
    tensors = _operands(bindings, value)
    if tensors is None:
        return None
    axis = int(value.attrs.axis or 0)
    expanded = [emit(relax.op.expand_dims(tensor, axis)) for tensor in tensors]
    return relax.op.concat(expanded, axis=axis)
