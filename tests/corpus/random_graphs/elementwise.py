# SPDX-License-Identifier: Apache-2.0
"""Random elementwise operators, reductions and activations."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from .maker import GraphMaker, Value


def broadcastable(make: GraphMaker, shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape that broadcasts to another."""
    kept = [extent if make.chance(50) else 1 for extent in shape]
    return tuple(kept[make.integer(0, len(kept)) :])


def activation(make: GraphMaker, x: Value) -> Value:
    kind, options = make.pick(
        [
            ("Relu", {}),
            ("Relu", {}),
            ("LeakyRelu", {"alpha": 0.1}),
            ("Sigmoid", {}),
            ("Tanh", {}),
            ("Elu", {}),
            ("Softplus", {}),
            ("HardSigmoid", {}),
            ("HardSwish", {}),
            ("Erf", {}),
            ("Neg", {}),
            ("Abs", {}),
            ("Softsign", {}),
        ]
    )
    return make.node(kind, [x.name], x.shape, **options)


def clip(make: GraphMaker, x: Value) -> Value:
    bounds = [make.constant(np.float32(bound)) for bound in (make.pick([0, -0.5, -1]), 1.5)]
    operands = make.pick([bounds, bounds[:1], ["", bounds[1]]])
    return make.node("Clip", [x.name, *operands], x.shape)


def parametric(make: GraphMaker, x: Value) -> Value:
    slope = [x.shape[1], *[1] * (x.rank - 2)] if x.rank > 1 else [1]
    return make.node("PRelu", [x.name, make.weight(slope)], x.shape)


def with_weight(make: GraphMaker, x: Value) -> Value:
    """Arithmetic by a weight that broadcasts, or that the value broadcasts to."""
    kind = make.pick(["Add", "Sub", "Mul", "Mul", "Div", "Max", "Min"])
    shape = broadcastable(make, x.shape)
    weight = make.positive(shape) if kind == "Div" else make.weight(shape)
    operands = [x.name, weight]
    if kind != "Div" and make.chance(30):
        operands.reverse()
    return make.node(kind, operands, x.shape)


def of_two(make: GraphMaker, x: Value) -> Value:
    """Arithmetic of two values, one of which may broadcast."""
    others = [
        y
        for y in make.values
        if y.rank <= x.rank
        and all(b in (1, a) for a, b in zip(x.shape[::-1], y.shape[::-1], strict=False))
    ]
    y = make.pick(others)
    operands = [x.name, y.name]
    if make.chance(50):
        operands.reverse()
    return make.node(make.pick(["Add", "Add", "Sub", "Mul", "Max", "Min"]), operands, x.shape)


def tame_root(make: GraphMaker, x: Value) -> Value:
    """sqrt(|x| + 0.5), as in a hand-written norm."""
    size = make.node("Abs", [x.name], x.shape)
    half = make.constant(np.float32(0.5))
    shifted = make.node("Add", [size.name, half], x.shape)
    return make.node("Sqrt", [shifted.name], x.shape)


def power(make: GraphMaker, x: Value) -> Value:
    small = make.node("Tanh", [x.name], x.shape)
    kind = make.pick(["Exp", "Pow"])
    if kind == "Exp":
        return make.node("Exp", [small.name], x.shape)
    exponent = make.constant(np.float32(make.pick([2, 3])))
    return make.node("Pow", [small.name, exponent], x.shape)


def where(make: GraphMaker, x: Value) -> Value:
    """A choice by a constant, or by the sign of an input, which is exact."""
    source = [i for i in make.inputs if i.shape == x.shape]
    if source and make.chance(50):
        zero = make.constant(np.float32(0))
        operands = [make.pick(source).name, zero]
        condition = make.node("Greater", operands, x.shape, dtype=TensorProto.BOOL).name
    else:
        condition = make.booleans(broadcastable(make, x.shape))
    other = make.weight(broadcastable(make, x.shape))
    operands = [x.name, other] if make.chance(50) else [other, x.name]
    return make.node("Where", [condition, *operands], x.shape)


def softmax(make: GraphMaker, x: Value) -> Value:
    kind = make.pick(["Softmax", "Softmax", "LogSoftmax"])
    return make.node(kind, [x.name], x.shape, axis=make.integer(-x.rank, x.rank - 1))


def reduction(make: GraphMaker, x: Value) -> Value:
    """A reduction of some axes, with or without its axes of extent 1."""
    kind = make.pick(["ReduceMean", "ReduceMean", "ReduceSum", "ReduceMax", "ReduceL2"])
    axes = [axis for axis in range(x.rank) if make.chance(40)] or [x.rank - 1]
    keep = make.integer(0, 1) if len(axes) < x.rank - 1 else 1
    shape = [1 if axis in axes else extent for axis, extent in enumerate(x.shape)]
    if not keep:
        shape = [extent for axis, extent in enumerate(x.shape) if axis not in axes]
    return make.node(kind, [x.name, make.integers(axes)], shape, keepdims=keep)


ELEMENTWISE = (
    *[activation] * 4, clip, parametric, *[with_weight] * 3, *[of_two] * 4, tame_root, power,
    where, *[softmax] * 2, *[reduction] * 2,
)  # fmt: skip
"""Elementwise operators and reductions, by how often they are tried."""
