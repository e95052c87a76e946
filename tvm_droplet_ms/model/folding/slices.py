# SPDX-License-Identifier: Apache-2.0
"""The same operators on each slice of a tensor, merged into operators on the whole tensor.

Keras' ``TimeDistributed`` and unrolled loops are exported as one kernel for each step.
"""

from typing import Any, NamedTuple

import numpy as np

import tvm
from tvm import relax

from ..bindings import Bindings, Expr, array_of, operator_name, relax_functions, static_shape
from ..rewriting import Emit, operator_pass

_ALONE = relax_functions("nn.relu sigmoid tanh")
_WITH_CONSTANT = relax_functions("add matmul multiply")


class _Step(NamedTuple):
    """An operator on one operand, or on an operand and a constant, which comes second."""

    name: str
    constant: Expr | None

    def is_same(self, other: "_Step") -> bool:
        if self.name != other.name or self.constant is None or other.constant is None:
            return self == other
        if self.constant.same_as(other.constant):
            return True
        mine, theirs = array_of(self.constant), array_of(other.constant)
        return mine is not None and theirs is not None and np.array_equal(mine, theirs)


class _Branch(NamedTuple):
    """Steps on a slice: element ``place`` of the first axis of a tensor, without this axis."""

    source: Expr
    place: int
    steps: list[_Step]


@operator_pass("JoinSlices", ["relax.concat"])
def join_slices(bindings: Bindings, value: Expr, emit: Emit) -> Expr | None:
    """Make a pass that computes the same steps on consecutive slices at once, where these stack.

    Slices and stacks are along the first axis. The steps are products with a constant matrix, sums
    and products with a constant, and activations.
    """
    if int(value.attrs.axis or 0) != 0:
        return None
    parts = bindings.value_of(value.args[0])
    if not isinstance(parts, relax.Tuple) or len(parts.fields) < 2:
        return None
    first = _branch(bindings, parts.fields[0])
    if first is None or not first.steps:
        return None
    for number, part in enumerate(parts.fields[1:], 1):
        branch = _branch(bindings, part)
        if branch is None or len(branch.steps) != len(first.steps):
            return None
        is_next = branch.source.same_as(first.source) and branch.place == first.place + number
        pairs = zip(branch.steps, first.steps, strict=True)
        if not is_next or not all(one.is_same(other) for one, other in pairs):
            return None
    count, shape = len(parts.fields), static_shape(first.source)
    result = first.source
    if shape is None or shape[0] != count:
        ends = [first.place], [first.place + count]
        result = emit(relax.op.strided_slice(first.source, [0], *ends))
    for step in first.steps:
        made = _ALONE.get(step.name)
        call = _WITH_CONSTANT[step.name](result, step.constant) if made is None else made(result)
        result = emit(call)
    return result


def _branch(bindings: Bindings, part: Expr) -> _Branch | None:
    """Return the slice and the steps that compute a part of a stack, or None for other parts."""
    added = bindings.call_of(part, "relax.expand_dims")
    if added is None or [int(axis) for axis in added.attrs.axis] != [0]:
        return None
    steps: list[_Step] = []
    call = bindings.value_of(added.args[0])
    while (name := operator_name(call)) in _ALONE or name in _WITH_CONSTANT:
        constant = None
        if name in _WITH_CONSTANT:
            constant = call.args[1]
            shape, other = static_shape(constant), static_shape(call.args[0])
            if array_of(constant) is None or shape is None or other is None:
                return None
            if len(shape) != 2 if name == "relax.matmul" else len(shape) > len(other):
                return None
        steps.append(_Step(name, constant))
        call = bindings.value_of(call.args[0])
    if operator_name(call) != "relax.squeeze" or [int(n) for n in call.attrs.axis or ()] != [0]:
        return None
    slice_ = bindings.call_of(call.args[0], "relax.strided_slice")
    if slice_ is None:
        return None
    axes, begins, ends, *strides = ([_integer(each) for each in arg] for arg in slice_.args[1:])
    if axes != [0] or strides not in ([], [[1]]) or begins[0] is None or begins[0] < 0:
        return None
    if ends != [begins[0] + 1]:
        return None
    return _Branch(slice_.args[0], begins[0], steps[::-1])


def _integer(value: Any) -> int | None:
    value = getattr(value, "value", value)
    return int(value) if isinstance(value, int | tvm.tirx.IntImm) else None
