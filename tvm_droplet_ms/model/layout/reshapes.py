# SPDX-License-Identifier: Apache-2.0
"""Reshapes between a product and operations that could be fused with it.

A frontend multiplies matrices of two axes, and adds and activates tensors of three axes. 3D
convolutions may be computed in 2D (``volumes``). ``FuseOps`` does not look through the reshape
between them: a GELU and a residual then become separate kernels, which read and write the whole
tensor again.
"""

import tvm
from tvm import relax

from ..bindings import Bindings, Expr, Var, array_of, constant, operator_name, static_shape
from ..rewriting import Emit, binding_pass
from .transposes import RESHAPE, merged_reshape

PRODUCTS = ("relax.matmul", "relax.nn.conv2d")

_UNARY = {
    f"relax.{name}"
    for name in ("nn.relu", "nn.gelu", "nn.gelu_tanh", "nn.silu", "sigmoid", "tanh", "erf", "exp")
}
_BINARY = {
    f"relax.{name}" for name in ("add", "subtract", "multiply", "divide", "maximum", "minimum")
}


def sink_reshapes() -> tvm.transform.Pass:
    """Make a pass that moves reshapes of products after the arithmetic that follows them.

    It reshapes the other operand instead, which moves no element. Returns the pass.
    """
    return binding_pass("SinkReshapes", lambda bindings: _Sinking(bindings).rewrite, PRODUCTS)


class _Sinking:
    """Moves the reshapes of a block."""

    def __init__(self, bindings: Bindings) -> None:
        self._bindings = bindings
        self._products: set[Var] = set()

    def rewrite(self, var: Var, value: Expr, emit: Emit) -> Expr | None:
        name = operator_name(value)
        if name in PRODUCTS:
            self._products.add(var)
        elif name == RESHAPE:
            return merged_reshape(self._bindings, value)
        elif name in _UNARY | _BINARY:
            if any(operand in self._products for operand in value.args):
                self._products.add(var)
            return self._computed_before(value, emit)
        return None

    def _computed_before(self, value: Expr, emit: Emit) -> Expr | None:
        """Apply an operation before the reshape of its operand, and return the reshape, or None."""
        shape = static_shape(value)
        for place, operand in enumerate(value.args):
            product = self._product(operand)
            if product is None or shape is None or static_shape(operand) != shape:
                continue
            others = [each for n, each in enumerate(value.args) if n != place]
            reshaped = [self._reshaped(each, shape, product, emit) for each in others]
            if None in reshaped:
                continue
            reshaped.insert(place, product)
            result = emit(relax.Call(value.op, reshaped, value.attrs))
            self._products.add(result)
            return relax.op.reshape(result, shape)
        return None

    def _product(self, operand: Expr) -> Var | None:
        """Return the source of an operand that reshapes a result of a product, or None."""
        reshape = self._bindings.call_of(operand, RESHAPE)
        return None if reshape is None or reshape.args[0] not in self._products else reshape.args[0]

    def _reshaped(self, operand: Expr, shape: tuple[int, ...], product: Var, emit: Emit) -> Expr:
        """Return the other operand in the shape of the product, or None if that is impossible."""
        wanted, own = static_shape(product), static_shape(operand)
        values = array_of(self._bindings.value_of(operand))
        if wanted is None or own is None:
            return None
        if own == shape:
            if values is not None:
                return constant(values.reshape(wanted))
            inner = self._bindings.call_of(operand, RESHAPE)
            source = operand if inner is None else inner.args[0]
            if static_shape(source) == wanted:
                return source
            return emit(relax.op.reshape(source, wanted))
        is_row = own[-1:] == wanted[-1:] == shape[-1:] and all(n == 1 for n in own[:-1])
        if values is not None and (values.size == 1 or is_row):
            return constant(values.reshape(values.shape[-1:] if is_row else ()))
        return None
