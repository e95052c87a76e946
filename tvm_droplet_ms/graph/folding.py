# SPDX-License-Identifier: Apache-2.0
"""Arithmetic on weights that is done before a model runs, with NumPy. Imports no TVM."""

from collections.abc import Sequence

import numpy as np

from .equality.language import Operator, Tensor, Type
from .interpreter import OPERATORS, Array, evaluate

_MOVES = frozenset(
    {"concat", "stack", "strided_slice", "reshape", "permute_dims", "expand_dims", "squeeze"}
    | {"broadcast_to", "eye", "full"}
)
_INTEGERS = frozenset(
    {"add", "subtract", "multiply", "maximum", "minimum", "negative", "relu", "matmul", "sum"}
    | {"pad"}
)
"""Operators that NumPy computes on integers as TVM does. A quotient or a power is not among them:
TVM rounds towards zero where NumPy turns to floats."""

_CANNOT = NotImplementedError, ValueError, TypeError, IndexError, OverflowError
"""Errors of NumPy and the interpreter for what they do not know."""


def folded(operator: Operator, operands: Sequence[Array], type_: Type) -> Array | None:
    """Evaluate a call of weights as TVM would.

    ``operands``: the values of its operands. ``type_``: the type of the call, by TVM's inference.
    Returns the value, of that shape and type. None where NumPy does not know it, or has arithmetic
    of its own for it: the call has to stay.
    """
    if operator.name not in OPERATORS or not isinstance(type_, Tensor):
        return None
    with np.errstate(all="ignore"):
        try:
            dtypes = {operand.dtype for operand in operands} | {np.dtype(type_.dtype)}
            if not all(_is_known(operator.name, dtype) for dtype in dtypes):
                return None
            value = evaluate(operator, operands)
        except _CANNOT:
            return None
    if not isinstance(value, np.ndarray):
        return None
    return value if Tensor(value.shape, str(value.dtype)) == type_ else None


def _is_known(name: str, dtype: "np.dtype[np.generic]") -> bool:
    """True if NumPy and TVM agree on an operator of a type."""
    if dtype.kind == "f" or name in _MOVES:
        return True
    return dtype.kind in "iu" and name in _INTEGERS
