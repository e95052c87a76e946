# SPDX-License-Identifier: Apache-2.0
"""Exponentials, error functions and derived functions in a form that vectorizes.

LLVM calls the C library for each element of ``exp``, ``erf`` and ``tanh``. TOPI's ``fast_exp``,
``fast_erf`` and ``fast_tanh`` (``topi/math.py``) are polynomials and quotients of polynomials,
which vectorize. Their relative errors are within 2e-6 for arguments from -20 to 20
(``tests/model/kernels/test_vector_math.py``). They clamp their arguments, which loses a NaN until
``keep_nan`` puts the limit first.
"""

from collections.abc import Callable
from typing import Any

import tvm
from tvm import relax, te, tirx, topi

from ..bindings import is_float32

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


def vector_round(x: te.Tensor) -> te.Tensor:
    """Round to the nearest integer, ties to even.

    TOPI's ``nearbyint`` is the same instruction, but ``VectorizeLoop`` cannot vectorize it (no
    ``TVectorizable``): a requantization then runs number by number.
    """
    return te.compute(x.shape, lambda *at: te.round(x(*at)), name="compute")


_UNARY: dict[str, Function] = {
    "relax.erf": topi.fast_erf,
    "relax.exp": topi.fast_exp,
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
    return {**found, "relax.nn.softmax": _legalize_softmax}


def _legalization(name: str, function: Function) -> Callable[..., Any]:
    def legalize(builder: relax.BlockBuilder, call: Any) -> Any:
        if not is_float32(call.args[0]):
            return _legalize_as_tvm(builder, call)
        return builder.call_te(function, call.args[0], primfunc_name_hint=name.split(".")[-1])

    return legalize


def _legalize_softmax(builder: relax.BlockBuilder, call: Any) -> Any:
    if not is_float32(call.args[0]):
        return _legalize_as_tvm(builder, call)
    return builder.call_te(
        topi.nn.fast_softmax, call.args[0], int(call.attrs.axis), primfunc_name_hint="softmax"
    )


def _legalize_as_tvm(builder: relax.BlockBuilder, call: Any) -> Any:
    return tvm.ir.Op.get(call.op.name).get_attr("FLegalize")(builder, call)
