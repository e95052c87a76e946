# SPDX-License-Identifier: Apache-2.0
"""The values and the users of the variables of a Relax function."""

from collections.abc import Iterator, Mapping, Sequence
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
    """The value of each variable of a function, in order; those of matched shapes are left out."""
    return {
        binding.var: binding.value
        for block in func.body.blocks
        for binding in block.bindings
        if isinstance(binding, relax.VarBinding)
    }


def users_of(func: relax.Function) -> dict[Var, list[Var]]:
    """List who uses each variable of a function.

    Returns the variables whose values mention a variable, in order. What is mentioned inside a
    branch of an ``If`` is used by the variable of the ``If``. A mention by the result of the
    function counts as a user too: the variable itself.
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

    - Variables of other blocks are left out: a dataflow block does not see theirs.
    - ``values``: the value of each variable. While the block is rewritten, the new value.
    - ``users``: who uses each variable of the whole function (:func:`users_of`), as given. New
      variables are not in it.
    """

    def __init__(self, block: relax.BindingBlock, users: Mapping[Var, Sequence[Var]]) -> None:
        self.users = users
        self.values: dict[Var, Expr] = {
            binding.var: binding.value
            for binding in block.bindings
            if isinstance(binding, relax.VarBinding)
        }

    def value_of(self, expr: Expr) -> Expr:
        """Return what an expression is bound to, through copies: a parameter, or no variable."""
        while isinstance(expr, relax.Var) and expr in self.values:
            expr = self.values[expr]
        return expr

    def call_of(self, expr: Expr, *names: str) -> relax.Call | None:
        """Return the call of one of some operators that an expression is or is bound to.

        ``expr``: a call, or a variable. ``names``: names of operators, such as "relax.add". Returns
        the call. None if the expression is anything else.
        """
        value = self.value_of(expr)
        return value if operator_name(value) in names else None

    def only_user(self, var: Var) -> Var | None:
        """Return the variable that alone uses a variable. None if the result does, or several."""
        users = self.users.get(var, [])
        return users[0] if len(users) == 1 and not users[0].same_as(var) else None


def operator_name(value: Expr) -> str:
    """Return the name of the operator that a call calls. Empty for anything else."""
    if isinstance(value, relax.Call) and isinstance(value.op, tvm.ir.Op):
        return str(value.op.name)
    return ""


def static_shape(expr: Expr) -> tuple[int, ...] | None:
    """Return the shape of a tensor. None if it is symbolic, unknown, or no tensor's."""
    return shape_of_type(expr.ty)


def shape_of_type(kind: Any) -> tuple[int, ...] | None:
    """Return the shape of tensors of a type. None if it is symbolic, unknown, or no tensor's."""
    shape = getattr(kind, "shape", None)
    if not isinstance(shape, relax.ShapeExpr):
        return None
    if not all(isinstance(extent, tvm.tirx.IntImm) for extent in shape):
        return None
    return tuple(int(extent) for extent in shape)


def is_float32(expr: Expr) -> bool:
    """True if an expression is a tensor of float32."""
    return isinstance(expr.ty, relax.TensorType) and str(expr.ty.dtype) == "float32"


def array_of(expr: Expr) -> "np.ndarray[Any, Any] | None":
    """Return a view of the values of a constant tensor.

    None if the expression is no constant, or of a type that NumPy lacks, such as bfloat16.
    """
    if not isinstance(expr, GenericConst) or not isinstance(expr.value, tvm.runtime.Tensor):
        return None
    known = str(expr.value.dtype) in NUMPY_TYPES
    return np.from_dlpack(expr.value) if known else None


def bits_of(expr: Expr) -> "np.ndarray[Any, Any] | None":
    """Return a view of the bits of a constant tensor: as `array_of`, and bfloat16 as uint16."""
    array = array_of(expr)
    if array is None and isinstance(expr, GenericConst):
        tensor = expr.value
        if isinstance(tensor, tvm.runtime.Tensor) and str(tensor.dtype) == "bfloat16":
            # TVM has no public name for it; Tensor.numpy() makes a copy.
            return np.from_dlpack(tensor._create_view(tensor.shape, "uint16"))
    return array


def constant(values: "np.ndarray[Any, Any]") -> GenericConst:
    """Make a constant tensor with a copy of some values, of the same shape and type."""
    # ``relax.const`` copies an array twice, and a tensor not at all.
    tensor = tvm.runtime.tensor(np.ascontiguousarray(values).reshape(values.shape))
    return relax.const(tensor, str(values.dtype))


def weight_bytes(function: relax.Function) -> int:
    """The bytes of the constants of a function, each counted once."""
    sizes: dict[int, int] = {}

    def add(expr: Expr) -> None:
        array = array_of(expr)
        if array is not None:
            sizes[array.ctypes.data] = array.nbytes

    relax.analysis.post_order_visit(function.body, add)
    return sum(sizes.values())
