# SPDX-License-Identifier: Apache-2.0
"""Batch norms and per-channel arithmetic, folded into the layer before or after them."""

from dataclasses import dataclass, field
from typing import Any

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
from ..layers import Layer, layer_of
from ..rewriting import Emit, Rewrite, binding_pass
from .channel_affine import (
    IDENTITY,
    ChannelAffine,
    absorb_input,
    batch_norm_affine,
    channel_vector,
    scale_outputs,
)

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


@dataclass(frozen=True)
class Chain:
    """Successive affine functions of the same channels, and the layer before them.

    - ``source``: the variable that the chain starts from: the layer's, if there is one.
    - ``layer``: the layer, if there is one. Only the chain uses its output.
    - ``axis``: axis of the channels. None if the function is the same for all channels.
    - ``affine``: the composition of all functions.
    - ``operations``: number of operations of the chain, without the layer.
    """

    source: Var
    layer: Layer | None
    axis: int | None
    affine: ChannelAffine
    operations: int

    def extended(self, step: Step) -> "Chain | None":
        """Return this chain with one more function, or None if the two cannot be composed."""
        if None not in (self.axis, step.axis) and self.axis != step.axis:
            return None
        affine = self.affine.then(step.affine)
        if not affine.is_finite() or affine.vanishes(self.affine, step.affine):
            return None
        axis = step.axis if self.axis is None else self.axis
        return Chain(self.source, self.layer, axis, affine, self.operations + step.operations)


@dataclass
class _Plan:
    """The chains of a function, by the variable at which they end.

    ``chains``: the chains. A layer that no function follows is a chain too. ``absorbed``: the ends
    of the chains that the layers after them absorb.
    """

    chains: dict[Var, Chain] = field(default_factory=dict)
    absorbed: set[Var] = field(default_factory=set)


def _make_plan(bindings: Bindings) -> _Plan:
    plan = _Plan()
    covered: set[Var] = set()
    for var, value in bindings.values.items():
        layer, step = layer_of(value), step_of(bindings, var)
        if layer is not None:
            chain = Chain(var, layer, layer.output_axis, IDENTITY, 0)
        elif step is not None and step.affine.is_finite():
            chain = Chain(step.source, None, step.axis, step.affine, step.operations)
        else:
            continue
        if var in covered:
            continue
        end = var
        while (following := next_step(bindings, end)) is not None:
            longer = chain.extended(following[1])
            if longer is None:
                break
            end, chain = following[0], longer
            covered.add(end)
        plan.chains[end] = chain
    for end, chain in plan.chains.items():
        users = [bindings.values.get(user) for user in bindings.users.get(end, [])]
        if chain.layer is None and users and all(_absorbs(each, end, chain) for each in users):
            plan.absorbed.add(end)
    return plan


def _absorbs(value: Expr | None, end: Var, chain: Chain) -> bool:
    """True if a value is a layer that can absorb the chain that ends at its input."""
    layer = None if value is None else layer_of(value)
    if layer is None or not layer.data.same_as(end):
        return False
    fits = chain.axis in (None, layer.input_axis)
    return fits and not (layer.padded and chain.affine.shifts())


def _along(values: "np.ndarray[Any, Any]", axis: int | None, rank: int) -> Expr:
    """Make a constant of full rank from one value per channel."""
    shape = [1] * rank
    if axis is not None:
        shape[axis] = -1
    return constant(values.astype(np.float32).reshape(shape))


def _shifted(expr: Expr, chain: Chain, affine: ChannelAffine) -> Expr:
    if not affine.shifts():
        return expr
    return relax.op.add(expr, _along(affine.shift, chain.axis, len(expr.ty.shape)))


def _rewrite_layer(plan: _Plan, chain: Chain, layer: Layer, emit: Emit) -> Expr | None:
    data, weight, affine = layer.data, layer.weight, chain.affine
    before = plan.chains[data] if data in plan.absorbed else None
    if before is not None:
        data = before.source
        axes = (layer.weight_output_axis, layer.weight_input_axis)
        weight, bias = absorb_input(weight, *axes, layer.groups, before.affine)
        affine = ChannelAffine(np.ones(1), bias).then(affine)
    elif chain.operations <= 1 and not affine.scales():
        return None
    if affine.scales():
        weight = scale_outputs(weight, layer.weight_output_axis, affine.scale)
    unchanged = weight is layer.weight
    output = chain.source if unchanged else emit(layer.rebuild(data, weight))
    return _shifted(output, chain, affine)


def _rewrite(bindings: Bindings) -> Rewrite:
    plan = _make_plan(bindings)

    def rewrite(var: Var, value: Expr, emit: Emit) -> Expr | None:
        chain = plan.chains.get(var)
        if chain is None or var in plan.absorbed:
            return None
        if chain.layer is not None:
            return _rewrite_layer(plan, chain, chain.layer, emit)
        # A vector division takes several times as long as a multiplication. A scalar keeps its
        # division: as the scale of a quantization, it decides to which byte a number is rounded.
        is_slow = operator_name(value) == "relax.divide" and len(value.ty.shape) > 0
        if chain.operations == 1 and not is_slow:
            return None
        result = chain.source
        if chain.affine.scales():
            scale = _along(chain.affine.scale, chain.axis, len(result.ty.shape))
            result = relax.op.multiply(result, scale)
            result = emit(result) if chain.affine.shifts() else result
        return _shifted(result, chain, chain.affine)

    return rewrite


def fold_affine() -> tvm.transform.Pass:
    """Make a pass that folds batch norms and per-channel arithmetic into layers.

    Successive inference batch norms, additions, subtractions, multiplications and divisions by
    per-channel constants become one function ``scale * x + shift``. If a convolution or dense layer
    with a constant weight comes before it, and nothing else uses the layer's output, the scale goes
    into the weight and the shift becomes the bias. Otherwise, if all its users are such layers,
    they absorb it. With a shift, they must have no padding, because the zeros of the padding are
    not shifted. Otherwise it becomes one multiplication and one addition; a single division becomes
    a multiplication.

    The weights are computed with NumPy. Each layer gets its own weight, so that layers that share a
    weight do not affect each other. Batch norms in training mode, batch norms whose running mean or
    variance is used, and chains with an infinite scale stay unchanged. A chain ends where its scale
    would be too small for float32. Unused values are left as dead code.
    """
    return binding_pass("FoldAffine", _rewrite)
