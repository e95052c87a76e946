# SPDX-License-Identifier: Apache-2.0
"""Random kernels of a few operators, and what they compute, by NumPy."""

import random
from dataclasses import dataclass
from typing import Any

import numpy as np

import tvm
from tvm import te, tirx, topi


@dataclass(frozen=True)
class Value:
    """A tensor and its numbers."""

    tensor: Any
    array: Any


def _padded(draw, x):
    axis = draw.randrange(x.array.ndim)
    before = [draw.randint(0, 2) if n == axis else 0 for n in range(x.array.ndim)]
    after = [draw.randint(0, 3) if n == axis else 0 for n in range(x.array.ndim)]
    fill = draw.choice([0.0, -1.0, 2.5])
    padded = topi.nn.pad(x.tensor, before, after, pad_value=tirx.const(fill, x.tensor.dtype))
    widths = list(zip(before, after))
    return Value(padded, np.pad(x.array, widths, constant_values=x.array.dtype.type(fill)))


def _chosen(draw, x):
    """Another number where a condition on one of the places holds."""
    axis, period = draw.randrange(x.array.ndim), draw.choice([2, 3, 5])
    number = x.array.dtype.type(draw.choice([-1.0, 0.0, 3.0]))
    choose = draw.choice([tirx.if_then_else, tirx.Select])

    def element(*at):
        other = tirx.const(number.item(), x.tensor.dtype)
        return choose(at[axis] % period == 0, other, x.tensor[at])

    places = np.arange(x.array.shape[axis]).reshape(
        [-1 if n == axis else 1 for n in range(x.array.ndim)]
    )
    chosen = te.compute(x.tensor.shape, element, name="chosen")
    return Value(chosen, np.where(places % period == 0, number, x.array))


def _joined(draw, x):
    axis = draw.randrange(x.array.ndim)
    twice = topi.multiply(x.tensor, tirx.const(2, x.tensor.dtype))
    joined = topi.concatenate([x.tensor, twice], axis=axis)
    return Value(joined, np.concatenate([x.array, 2 * x.array], axis))


def _elementwise(draw, x):
    name = draw.choice(["abs", "negative", "round", "clip", "shift"])
    if name == "abs":
        return Value(topi.abs(x.tensor), np.abs(x.array))
    if name == "negative":
        return Value(topi.negative(x.tensor), -x.array)
    if name == "round":
        return Value(topi.round(x.tensor), np.rint(x.array))
    if name == "clip":
        return Value(topi.clip(x.tensor, -1.0, 1.5), np.clip(x.array, -1.0, 1.5))
    added = topi.add(x.tensor, tirx.const(0.5, x.tensor.dtype))
    return Value(added, x.array + x.array.dtype.type(0.5))


def _cast(draw, x):
    """To a narrower type and back."""
    narrow = draw.choice(["int32", "int8", "float16"])
    bounded = topi.clip(x.tensor, -100.0, 100.0)
    there = topi.cast(topi.cast(bounded, narrow), "float32")
    return Value(there, np.clip(x.array, -100, 100).astype(narrow).astype("float32"))


def _turned(draw, x):
    order = list(range(x.array.ndim))
    draw.shuffle(order)
    return Value(topi.transpose(x.tensor, order), x.array.transpose(order))


def _sliced(draw, x):
    axis, step = draw.randrange(x.array.ndim), draw.choice([1, 2, 3])
    begin = draw.randrange(x.array.shape[axis])
    index = tuple(
        slice(begin, None, step) if n == axis else slice(None) for n in range(x.array.ndim)
    )
    shape = x.array[index].shape

    def element(*at):
        return x.tensor[tuple(e * step + begin if n == axis else e for n, e in enumerate(at))]

    return Value(te.compute(shape, element, name="sliced"), x.array[index])


def _reduced(draw, x):
    axis, keeps = draw.randrange(x.array.ndim), x.array.ndim < 2 or draw.random() < 0.5
    name = draw.choice(["sum", "max", "min"])
    reduce = {"sum": topi.sum, "max": topi.max, "min": topi.min}[name]
    found = getattr(np, name)(x.array, axis=axis, keepdims=keeps)
    return Value(reduce(x.tensor, axis=axis, keepdims=keeps), found)


def _place(draw, x):
    """The place of an extreme, as a number."""
    axis, keeps = draw.randrange(x.array.ndim), x.array.ndim < 2 or draw.random() < 0.5
    name = draw.choice(["argmax", "argmin"])
    place = {"argmax": topi.argmax, "argmin": topi.argmin}[name](x.tensor, axis, keeps)
    found = getattr(np, name)(x.array, axis=axis, keepdims=keeps)
    return Value(topi.cast(place, "float32"), found.astype("float32"))


def _normalized(draw, x):
    """What is left without the mean, which is computed first."""
    axis = draw.randrange(x.array.ndim)
    count = x.array.shape[axis]
    mean = topi.divide(topi.sum(x.tensor, axis, True), tirx.const(count, x.tensor.dtype))
    array = x.array - (x.array.sum(axis, keepdims=True) / x.array.dtype.type(count))
    return Value(topi.subtract(x.tensor, mean), array)


_STEPS = (
    *(_padded, _chosen, _chosen, _joined, _elementwise, _cast, _turned, _sliced),
    *(_reduced, _reduced, _place, _place, _normalized),
)


def random_kernel(seed: int) -> tuple[Any, Any, Any]:
    """A module of one kernel, its input and its result.

    The numbers are multiples of a quarter, so that sums are exact and extremes have equals.
    """
    draw, numbers = random.Random(seed), np.random.default_rng(seed)
    shape = [draw.choice([1, 3, 4, 7, 16, 33, 64, 100]) for _ in range(draw.choice([1, 2, 2, 3]))]
    data = (numbers.integers(-40, 41, shape) / 4).astype("float32")
    first = te.placeholder(shape, "float32", "x")
    value = Value(first, data)
    for _ in range(draw.randint(2, 5)):
        value = draw.choice(_STEPS)(draw, value)
    result = topi.add(value.tensor, tirx.const(1, "float32"))
    function = te.create_prim_func([first, result])
    return tvm.IRModule({"main": function}), data, value.array + np.float32(1)
