# SPDX-License-Identifier: Apache-2.0
"""Products with few rows whose heads share keys and values, without copies of these.

Grouped-query attention (Ainslie et al., 2023) has fewer key heads than query heads. Models repeat
the keys for each query head. At one row per step, this is most of their memory traffic.
"""

from math import prod

import numpy as np

import tvm
from tvm import relax

from ..bindings import Bindings, Expr, Var, array_of, operator_name, static_shape
from ..folding.numpy_folding import RESHAPES
from ..layout.transposes import axes_of
from ..rewriting import Emit, binding_pass, stateless

FEW_ROWS = 8
"""Number of rows from which on a product is compute-bound, so that copies cost little."""

_MATMUL = "relax.matmul"
_MOST_ELEMENTS = 1 << 27
"""Maximum number of elements of a factor whose places are traced one by one."""


def group_heads() -> tvm.transform.Pass:
    """Make a pass that multiplies all rows that share a repeated factor by the factor itself.

    It rewrites ``matmul(a, b)`` where ``b`` holds ``count`` adjacent copies of each head of a
    tensor, and ``a`` has fewer than ``FEW_ROWS`` rows. The rows of ``count`` heads become the rows
    of one head. Returns the pass.
    """
    return binding_pass("GroupHeads", stateless(_grouped), [_MATMUL])


def _grouped(bindings: Bindings, _var: Var, value: Expr, emit: Emit) -> Expr | None:
    if operator_name(value) != _MATMUL:
        return None
    left, right = (static_shape(each) for each in value.args)
    if left is None or right is None or len(left) != len(right) or len(left) < 3:
        return None
    if left[:-2] != right[:-2] or left[-2] >= FEW_ROWS or 0 in left + right:
        return None
    once = _once(bindings, value.args[1], right, emit)
    if once is None:
        return None
    heads = (static_shape(once) or ())[-3]
    rows = left[-2] * (left[-3] // heads)
    few = emit(relax.op.reshape(value.args[0], [*left[:-3], heads, rows, left[-1]]))
    product = emit(relax.op.matmul(few, once, value.attrs.out_dtype or None))
    return relax.op.reshape(product, [*left[:-1], right[-1]])


def _once(
    bindings: Bindings, factor: Expr, shape: tuple[int, ...], emit: Emit
) -> relax.Expr | None:
    """Return a factor without repeated heads, or None if it does not repeat adjacent heads."""
    steps: list[relax.Call] = []
    numbers: list[relax.Expr] = []
    source, own = factor, shape
    while prod(own) == prod(shape):
        value = bindings.value_of(source)
        number = _number_of(bindings, value)
        if number is not None:
            # PyTorch's ONNX exporter scales keys this way.
            numbers.append(number)
            source = value.args[0]
            continue
        if operator_name(value) not in _MOVES:
            return None
        steps.append(value)
        source = value.args[0]
        own = static_shape(source) or (0,)
    count = prod(shape) // max(1, prod(own))
    if prod(shape) > _MOST_ELEMENTS or count * prod(own) != prod(shape) or shape[-3] % count:
        return None
    start = np.arange(prod(own), dtype="int32")
    places = start.reshape(own)
    for step in reversed(steps):
        places = _moved(step, places)
    *batch, heads, rows, columns = shape
    grouped = places.reshape(*batch, heads // count, count, rows, columns)
    if not (grouped == grouped[..., :1, :, :]).all():
        return None
    first = grouped[..., 0, :, :]
    turned = first.swapaxes(-1, -2)
    if (first.reshape(-1) == start).all():
        once = emit(relax.op.reshape(source, first.shape))
    elif (turned.reshape(-1) == start).all():
        whole = emit(relax.op.reshape(source, turned.shape))
        axes = list(range(first.ndim))
        once = emit(relax.op.permute_dims(whole, [*axes[:-2], axes[-1], axes[-2]]))
    else:
        return None
    for number in numbers:
        once = emit(relax.op.multiply(once, number))
    return once


def _number_of(bindings: Bindings, value: Expr) -> relax.Expr | None:
    """Return the number by which a call multiplies its first operand, or None for other calls."""
    if operator_name(value) != "relax.multiply":
        return None
    array = array_of(bindings.value_of(value.args[1]))
    if array is None or array.size != 1 or static_shape(value) != static_shape(value.args[0]):
        return None
    return relax.const(array.reshape(()), str(array.dtype))


def _moved(call: relax.Call, array: np.ndarray) -> np.ndarray:
    """Apply a call that moves elements to an array."""
    name, shape = operator_name(call), static_shape(call) or ()
    if name == "relax.broadcast_to":
        return np.broadcast_to(array, shape)
    if name == "relax.permute_dims":
        return np.transpose(array, axes_of(call, array.ndim))
    if name == "relax.repeat":
        axis = None if call.attrs.axis is None else int(call.attrs.axis)
        return np.repeat(array, int(call.attrs.repeats), axis)
    return array.reshape(shape)


_MOVES = {*RESHAPES, "relax.broadcast_to", "relax.permute_dims", "relax.repeat"}
