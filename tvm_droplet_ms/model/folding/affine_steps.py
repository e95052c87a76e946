# SPDX-License-Identifier: Apache-2.0
"""The operations of a Relax function that are affine functions of each channel."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from tvm import relax

from ..bindings import Bindings, Expr, Var, array_of, is_float32, operator_name, static_shape
from .channel_affine import ChannelAffine, batch_norm_affine, channel_vector

BATCH_NORM = "relax.nn.batch_norm"


@dataclass(frozen=True)
class Step:
    """An operation that is an affine function of each channel.

    ``source``: the input of the operation. ``axis``: axis of the channels. None if the function is
    the same for all channels. ``operations``: number of arithmetic operations: 1, or 2 for a batch
    norm.
    """

    source: Var
    axis: int | None
    affine: ChannelAffine
    operations: int = 1


def _arithmetic(
    name: str, values: "np.ndarray[Any, Any]", constant_is_left: bool
) -> ChannelAffine | None:
    """Return the affine function that an operation with a constant computes, or None."""
    one, zero = np.ones(1), np.zeros(1)
    if name == "relax.add":
        return ChannelAffine(one, values)
    if name == "relax.multiply":
        return ChannelAffine(values, zero)
    if name == "relax.subtract":
        return ChannelAffine(-one, values) if constant_is_left else ChannelAffine(one, -values)
    if name == "relax.divide" and not constant_is_left:
        with np.errstate(all="ignore"):
            return ChannelAffine(1 / values, zero)
    return None


def _binary_step(call: relax.Call) -> Step | None:
    if len(call.args) != 2:
        return None
    left, right = call.args
    constant_is_left = array_of(left) is not None
    source, operand = (right, left) if constant_is_left else (left, right)
    values, shape = array_of(operand), static_shape(source)
    if values is None or shape is None or not isinstance(source, relax.Var):
        return None
    vector = channel_vector(values, shape)
    affine = vector and _arithmetic(operator_name(call), vector[1], constant_is_left)
    return Step(source, vector[0], affine) if vector and affine else None


def _batch_norm_step(call: relax.Call) -> Step | None:
    source, attrs = call.args[0], call.attrs
    shape = static_shape(source)
    arrays = [array_of(argument) for argument in call.args[1:]]
    known = [array for array in arrays if array is not None]
    if attrs.training or shape is None or len(known) < 4 or not isinstance(source, relax.Var):
        return None
    gamma, beta, mean, variance = known
    if not attrs.scale:
        gamma = np.ones_like(gamma)
    if not attrs.center:
        beta = np.zeros_like(beta)
    affine = batch_norm_affine(gamma, beta, mean, variance, float(attrs.epsilon))
    return Step(source, int(attrs.axis) % len(shape), affine, operations=2)


def step_of(bindings: Bindings, var: Var) -> Step | None:
    """Return the per-channel affine function that a variable is bound to.

    ``var``: the variable. For a batch norm, this is the variable that takes the output from the
    tuple. Returns the operation. None if it is of another kind, not float32, or has operands that
    are not per-channel constants.
    """
    value: Expr = bindings.values[var]
    if isinstance(value, relax.TupleGetItem) and value.index == 0:
        call = bindings.call_of(value.tuple_value, BATCH_NORM)
        if call is None or not is_float32(call.args[0]):
            return None
        statistics_used = bindings.only_user(value.tuple_value) is None
        return None if statistics_used else _batch_norm_step(call)
    if operator_name(value) == "relax.negative" and is_float32(value):
        return Step(value.args[0], None, ChannelAffine(-np.ones(1), np.zeros(1)))
    return _binary_step(value) if operator_name(value) and is_float32(value) else None


def next_step(bindings: Bindings, var: Var) -> tuple[Var, Step] | None:
    """Return the affine function that is the only user of a variable.

    Returns the variable of its result, and the operation. None if several operations, the
    function's result, or an operation of another kind use the variable.
    """
    user = bindings.only_user(var)
    if user is not None and bindings.call_of(user, BATCH_NORM) is not None:
        user = bindings.only_user(user)
    if user is None or user not in bindings.values:
        return None
    step = step_of(bindings, user)
    return (user, step) if step is not None and step.source.same_as(var) else None
