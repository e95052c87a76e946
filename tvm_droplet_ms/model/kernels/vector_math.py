# SPDX-License-Identifier: Apache-2.0
"""Functions and reductions in a form that vectorizes.

LLVM calls the C library for each element of ``exp``, ``erf``, ``tanh``, ``log`` and ``x ** 3``.
TOPI's ``fast_exp``, ``fast_erf`` and ``fast_tanh`` (``topi/math.py``) are polynomials and quotients
of polynomials, which vectorize. Their relative errors are within 2e-6 for arguments from -20 to 20
(``tests/model/kernels/test_vector_math.py``). They clamp their arguments, which loses a NaN until
``keep_nan`` puts the limit first.

In a reduction over several axes, MetaSchedule's innermost loop runs along a reduced axis, so
contiguous numbers are not read together. One axis at a time, each reduction is a short loop over
vectors. Reductions over the innermost axis do not benefit.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

from tvm import relax, te, tirx, topi

from ..bindings import array_of, is_float32, static_shape
from .kernel_pass import legalize_as_tvm

Function = Callable[[te.Tensor], te.Tensor]


def fast_gelu(x: te.Tensor) -> te.Tensor:
    """``x / 2 * (1 + erf(x / sqrt(2)))``."""
    half = tirx.const(0.5, x.dtype)
    erf = topi.fast_erf(topi.multiply(x, tirx.const(0.5**0.5, x.dtype)))
    return topi.multiply(x, topi.add(half, topi.multiply(erf, half)))


def fast_gelu_tanh(x: te.Tensor) -> te.Tensor:
    """``x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x ** 3)))``."""
    half = tirx.const(0.5, x.dtype)
    cube = topi.multiply(topi.multiply(x, x), topi.multiply(x, tirx.const(0.044715, x.dtype)))
    inner = topi.multiply(topi.add(x, cube), tirx.const((2 / 3.141592653589793) ** 0.5, x.dtype))
    return topi.multiply(x, topi.add(half, topi.multiply(topi.fast_tanh(inner), half)))


def fast_sigmoid(x: te.Tensor) -> te.Tensor:
    """``1 / (1 + exp(-x))``."""
    one = tirx.const(1.0, x.dtype)
    return topi.divide(one, topi.add(one, topi.fast_exp(topi.negative(x))))


def fast_silu(x: te.Tensor) -> te.Tensor:
    """``x / (1 + exp(-x))``."""
    return topi.divide(x, topi.add(tirx.const(1.0, x.dtype), topi.fast_exp(topi.negative(x))))


_FOR_LOGARITHMS = (
    *(7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1),
    *(-1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1),
)
"""Cephes' coefficients of a polynomial for ``(log(1 + x) - x + x ** 2 / 2) / x ** 3``, the highest
power first, with ``1 + x`` from the square root of 1/2 to that of 2."""


def fast_log(x: te.Tensor) -> te.Tensor:
    """Compute the natural logarithm of float32 numbers, within 1e-7 of it; Cephes' ``logf``."""

    def number(value: float) -> Any:
        return tirx.const(value, "float32")

    def log(*at: Any) -> Any:
        # Kernels are inlined into each other: without a variable, all of ``x`` is repeated.
        value = tirx.Var("value", "float32")
        is_subnormal = value < number(2.0**-126)
        scaled = tirx.Select(is_subnormal, value * number(2.0**23), value)
        bits, width = tirx.reinterpret("int32", scaled), tirx.const(23, "int32")
        whole = tirx.shift_right(bits - tirx.const(0x3F3504F3, "int32"), width)
        rest = tirx.reinterpret("float32", bits - tirx.shift_left(whole, width)) - number(1)
        power = whole.astype("float32") - tirx.Select(is_subnormal, number(23), number(0))
        found, square = number(_FOR_LOGARITHMS[0]), rest * rest
        for factor in _FOR_LOGARITHMS[1:]:
            found = found * rest + number(factor)
        # The two parts of log(2) add up to more digits than one float32 has.
        found = found * rest * square - power * number(2.12194440e-4) - number(0.5) * square
        found = rest + found + power * number(0.693359375)
        found = tirx.Select(value < number(math.inf), found, value)
        found = tirx.Select(value < number(0), number(math.nan), found)
        found = tirx.Select(value.equal(number(0)), number(-math.inf), found)
        return tirx.Let(value, x(*at), found)

    return te.compute(x.shape, log, name="compute")


def fast_log_softmax(x: te.Tensor, axis: int) -> te.Tensor:
    """``x - max(x) - log(sum(exp(x - max(x))))`` over one axis, with one logarithm per sum."""
    shifted = topi.subtract(x, topi.max(x, axis=axis, keepdims=True))
    total = topi.sum(topi.fast_exp(shifted), axis=axis, keepdims=True)
    return topi.subtract(shifted, fast_log(total))


def vector_round(x: te.Tensor) -> te.Tensor:
    """Round to the nearest integer, ties to even.

    TOPI's ``nearbyint`` is the same instruction, but ``VectorizeLoop`` cannot vectorize it (no
    ``TVectorizable``): a requantization then runs number by number.
    """
    return te.compute(x.shape, lambda *at: te.round(x(*at)), name="compute")


_UNARY: dict[str, Function] = {
    "relax.erf": topi.fast_erf,
    "relax.exp": topi.fast_exp,
    "relax.log": fast_log,
    "relax.nn.gelu": fast_gelu,
    "relax.nn.gelu_tanh": fast_gelu_tanh,
    "relax.nn.silu": fast_silu,
    "relax.round": vector_round,
    "relax.sigmoid": fast_sigmoid,
    "relax.tanh": topi.fast_tanh,
}


def vector_math() -> dict[str, Callable[..., Any]]:
    """Return the legalizations by operator, for ``LegalizeOps(customize_legalize_map=...)``."""
    found = {name: _legalization(name, function) for name, function in _UNARY.items()}
    return {
        **found,
        "relax.nn.log_softmax": _legalize_over_axis("log_softmax", fast_log_softmax),
        "relax.power": _legalize_power,
        "relax.nn.softmax": _legalize_over_axis("softmax", topi.nn.fast_softmax),
    }


def _legalization(name: str, function: Function) -> Callable[..., Any]:
    def legalize(builder: relax.BlockBuilder, call: Any) -> Any:
        if not is_float32(call.args[0]):
            return legalize_as_tvm(builder, call)
        return builder.call_te(function, call.args[0], primfunc_name_hint=name.split(".")[-1])

    return legalize


def _legalize_over_axis(name: str, function: Callable[..., te.Tensor]) -> Callable[..., Any]:
    def legalize(builder: relax.BlockBuilder, call: Any) -> Any:
        if not is_float32(call.args[0]):
            return legalize_as_tvm(builder, call)
        axis = int(call.attrs.axis)
        return builder.call_te(function, call.args[0], axis, primfunc_name_hint=name)

    return legalize


def _legalize_power(builder: relax.BlockBuilder, call: Any) -> Any:
    """Legalize cubes as products; LLVM itself does so with squares and square roots."""
    data, exponent = call.args
    number = array_of(exponent)
    if not is_float32(data) or number is None or number.size != 1 or number.item() != 3.0:
        return legalize_as_tvm(builder, call)

    def cube(x: te.Tensor) -> te.Tensor:
        return topi.multiply(topi.multiply(x, x), x)

    return builder.call_te(cube, data, primfunc_name_hint="power")


REDUCTIONS: dict[str, Callable[..., te.Tensor]] = {
    "relax.sum": topi.sum,
    "relax.mean": topi.sum,
    "relax.max": topi.max,
    "relax.min": topi.min,
}

_LONG = 256
"""Minimum extent of an axis that is reduced in two stages."""


def legalize_reduction(builder: relax.BlockBuilder, call: Any) -> Any:
    """Legalize a call of ``REDUCTIONS``; TVM legalizes calls without a better form."""
    name = call.op.name
    axes = _reduced_axes(call)
    if not axes:
        return legalize_as_tvm(builder, call)

    def reduced(data: te.Tensor) -> te.Tensor:
        result = reduce_in_stages(data, axes, REDUCTIONS[name])
        if not call.attrs.keepdims:
            result = topi.squeeze(result, axis=axes)
        if name != "relax.mean":
            return result
        count = math.prod(int(data.shape[axis]) for axis in axes)
        return topi.divide(result, tirx.const(float(count), data.dtype))

    return builder.call_te(reduced, call.args[0], primfunc_name_hint=name.removeprefix("relax."))


def reduce_in_stages(
    data: te.Tensor, axes: Sequence[int], reduce: Callable[..., te.Tensor]
) -> te.Tensor:
    """Reduce one axis at a time, the last one first; each axis remains with an extent of 1.

    An axis of at least ``_LONG`` elements is reduced in two stages if its extent is composite.
    """
    for axis in sorted(axes, reverse=True):
        extent = int(data.shape[axis])
        # The largest divisor that is at most the square root.
        parts = next(n for n in range(math.isqrt(extent), 0, -1) if extent % n == 0)
        if extent >= _LONG and parts > 1:
            shape = [int(each) for each in data.shape]
            divided = [*shape[:axis], parts, extent // parts, *shape[axis + 1 :]]
            data = reduce(topi.reshape(data, divided), axis=axis + 1)
        data = reduce(data, axis=axis, keepdims=True)
    return data


def _reduced_axes(call: Any) -> list[int]:
    """Return the reduced axes of a float32 call; empty if stages do not help."""
    shape = static_shape(call.args[0])
    if not is_float32(call.args[0]) or not shape or call.attrs.axis is None or 0 in shape:
        return []
    axes = sorted(int(axis) % len(shape) for axis in call.attrs.axis)
    if not axes or axes[-1] == len(shape) - 1:
        return []
    lengths = [shape[axis] for axis in axes if shape[axis] > 1]
    return axes if len(lengths) > 1 or max(lengths, default=1) >= _LONG else []
