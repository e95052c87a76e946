# SPDX-License-Identifier: Apache-2.0
"""The values and the users of the variables of a Relax function."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any

import numpy as np

import tvm
from tvm import relax
from tvm.ir import GenericConst

Expr = Any
Var = Any

NUMPY_TYPES = {
    "bool",
    *(f"{kind}int{bits}" for kind in ("", "u") for bits in (8, 16, 32, 64)),
    *(f"float{bits}" for bits in (16, 32, 64)),
}


def values_of(func: relax.Function) -> Iterator[Expr]:
    """List the values that are bound at the top level of a function."""
    for block in func.body.blocks:
        for binding in block.bindings:
            yield binding.value


def bound_values(func: relax.Function) -> dict[Var, Expr]:
    """Map each variable of a function to its value, in order, without ``MatchCast`` bindings."""
    return {
        binding.var: binding.value
        for block in func.body.blocks
        for binding in block.bindings
        if isinstance(binding, relax.VarBinding)
    }


def users_of(func: relax.Function) -> dict[Var, list[Var]]:
    """List the users of each variable of a function.

    Returns, for each variable, the variables whose values mention it, in order. The variable of an
    ``If`` uses every variable that its branches mention. A variable in the result of the function
    counts as a user of itself.
    """
    users: dict[Var, list[Var]] = {}
    for block in func.body.blocks:
        for binding in block.bindings:
            for var in relax.analysis.free_vars(binding.value):
                users.setdefault(var, []).append(binding.var)
    for var in relax.analysis.free_vars(func.body.body):
        users.setdefault(var, []).append(var)
    return users


class Bindings:
    """The bindings of a block of a Relax function.

    - Variables of other blocks are left out, because a dataflow block does not see them.
    - ``values``: the value of each variable. While the block is rewritten, the new value.
    - ``users``: the users of each variable of the whole function, as :func:`users_of` returns them.
      It does not contain new variables.
    """

    def __init__(self, block: relax.BindingBlock, users: Mapping[Var, Sequence[Var]]) -> None:
        self.users = users
        self.values: dict[Var, Expr] = {
            binding.var: binding.value
            for binding in block.bindings
            if isinstance(binding, relax.VarBinding)
        }

    def value_of(self, expr: Expr) -> Expr:
        """Follow variables to a value, or to a variable from outside the block (a parameter)."""
        while isinstance(expr, relax.Var) and expr in self.values:
            expr = self.values[expr]
        return expr

    def call_of(self, expr: Expr, *names: str) -> relax.Call | None:
        """Return the call that an expression is or is bound to, if its operator is in ``names``.

        ``names``: names of operators, such as "relax.add". None for any other expression.
        """
        value = self.value_of(expr)
        return value if operator_name(value) in names else None

    def array_of(self, expr: Expr) -> "np.ndarray[Any, Any] | None":
        """Return the values of a constant or of a variable bound to one; None for others."""
        return array_of(self.value_of(expr))

    def only_user(self, var: Var) -> Var | None:
        """Return the only user of a variable, or None if the result or several variables use it."""
        users = self.users.get(var, [])
        return users[0] if len(users) == 1 and not users[0].same_as(var) else None


def operator_name(value: Expr) -> str:
    """Return the name of the operator of a call, or an empty string for any other expression."""
    if isinstance(value, relax.Call) and isinstance(value.op, tvm.ir.Op):
        return str(value.op.name)
    return ""


def relax_operators(names: str) -> set[str]:
    """Return the full names of operators of Relax; ``names``: without "relax.", between spaces."""
    return {f"relax.{name}" for name in names.split()}


def relax_functions(names: str) -> dict[str, Callable[..., Expr]]:
    """Map operators of Relax to the functions that call them; ``names``: as above."""
    return {f"relax.{name}": attrgetter(name)(relax.op) for name in names.split()}


def static_shape(expr: Expr) -> tuple[int, ...] | None:
    """Return the shape of a tensor. None if it is symbolic or unknown, or for other expressions."""
    return shape_of_type(expr.ty)


def shape_of_type(kind: Any) -> tuple[int, ...] | None:
    """Return the shape of a tensor type. None if it is symbolic or unknown, or for other types."""
    shape = getattr(kind, "shape", None)
    if not isinstance(shape, relax.ShapeExpr):
        return None
    if not all(isinstance(extent, tvm.tirx.IntImm) for extent in shape):
        return None
    return tuple(int(extent) for extent in shape)


def is_float32(expr: Expr) -> bool:
    """True if an expression is a float32 tensor."""
    return isinstance(expr.ty, relax.TensorType) and str(expr.ty.dtype) == "float32"


def array_of(expr: Expr) -> "np.ndarray[Any, Any] | None":
    """Return a view of the values of a constant tensor.

    None if the expression is not constant, or has a type that NumPy lacks, such as bfloat16.
    """
    if not isinstance(expr, GenericConst) or not isinstance(expr.value, tvm.runtime.Tensor):
        return None
    known = str(expr.value.dtype) in NUMPY_TYPES
    return np.from_dlpack(expr.value) if known else None


def bits_of(expr: Expr) -> "np.ndarray[Any, Any] | None":
    """Return a view of a constant tensor like `array_of`, and a bfloat16 tensor as uint16."""
    array = array_of(expr)
    if array is None and isinstance(expr, GenericConst):
        tensor = expr.value
        if isinstance(tensor, tvm.runtime.Tensor) and str(tensor.dtype) == "bfloat16":
            # TVM has no public method for a view; Tensor.numpy() makes a copy.
            return np.from_dlpack(tensor._create_view(tensor.shape, "uint16"))
    return array


def constant(values: "np.ndarray[Any, Any]") -> GenericConst:
    """Make a constant tensor that holds a copy of an array, with the same shape and type."""
    # ``relax.const`` copies an array twice, but does not copy a tensor.
    tensor = tvm.runtime.tensor(np.ascontiguousarray(values).reshape(values.shape))
    return relax.const(tensor, str(values.dtype))


def weight_bytes(function: relax.Function) -> int:
    """Return the size of a function's constants in bytes, counting each constant once."""
    sizes: dict[int, int] = {}

    def add(expr: Expr) -> None:
        array = array_of(expr)
        if array is not None:
            sizes[array.ctypes.data] = array.nbytes

    relax.analysis.post_order_visit(function.body, add)
    return sum(sizes.values())
