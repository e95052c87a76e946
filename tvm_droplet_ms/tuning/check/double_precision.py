# SPDX-License-Identifier: Apache-2.0
"""A graph in double precision: what the model would compute if nothing were rounded."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tvm import relax
from tvm.ir import IRModule, load_json, save_json

from ...model.bindings import array_of, constant

_SINGLE, _DOUBLE = "float32", "float64"


def in_float64(mod: IRModule) -> IRModule:
    """Make a module compute in float64 what it computes in float32.

    ``mod``: a module as it is imported: Relax operators in one function ``main``. Returns the same
    with parameters, constants and results of float64 for those of float32. Raises ``ValueError`` if
    it is made of more than calls of operators, such as branches or kernels.
    """
    function = mod["main"]
    values: dict[Any, Any] = {
        parameter: relax.Var(parameter.name, _wide_type(parameter.ty))
        for parameter in function.params
    }
    builder = relax.BlockBuilder()
    with builder.function("main", [values[parameter] for parameter in function.params]):
        with builder.dataflow():
            for block in function.body.blocks:
                for binding in block.bindings:
                    if not isinstance(binding, relax.VarBinding):
                        raise ValueError(f"a {type(binding).__name__} has no form in float64")
                    values[binding.var] = builder.emit(_wide(binding.value, values))
            result = builder.emit_output(_wide(function.body.body, values))
        builder.emit_func_output(result)
    made: IRModule = builder.get()
    return made.with_attrs(mod.attrs) if mod.attrs else made


def with_wide_inputs(
    run: Callable[[Sequence[np.ndarray]], list[np.ndarray]],
) -> Callable[[Sequence[np.ndarray]], list[np.ndarray]]:
    """Let a module of ``in_float64`` take the inputs of the module that it was made of."""

    def run_wide(inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        return run([a.astype(_DOUBLE) if a.dtype == _SINGLE else a for a in inputs])

    return run_wide


def _wide(expr: Any, values: dict[Any, Any]) -> Any:
    if isinstance(expr, relax.Var):
        return values[expr]
    if isinstance(expr, relax.Tuple):
        return relax.Tuple([_wide(each, values) for each in expr.fields])
    if isinstance(expr, relax.TupleGetItem):
        return relax.TupleGetItem(_wide(expr.tuple_value, values), expr.index)
    array = array_of(expr)
    if array is not None:
        return constant(array.astype(_DOUBLE)) if array.dtype == _SINGLE else expr
    if isinstance(expr, relax.Call):
        if not hasattr(expr.op, "name") or len(expr.ty_args):
            raise ValueError(f"a call of {expr.op} has no form in float64")
        arguments = [_wide(each, values) for each in expr.args]
        return relax.Call(expr.op, arguments, _wide_attributes(expr.attrs))
    if isinstance(expr, relax.If | relax.SeqExpr | relax.Function):
        raise ValueError(f"a {type(expr).__name__} has no form in float64")
    return expr


def _wide_attributes(attributes: Any) -> Any:
    """Attributes with float64 for float32, such as the type of a cast."""
    if attributes is None:
        return None
    text = save_json(attributes)
    wide = text.replace(f':"{_SINGLE}"', f':"{_DOUBLE}"')
    return attributes if wide == text else load_json(wide)


def _wide_type(kind: Any) -> Any:
    if isinstance(kind, relax.TensorType) and str(kind.dtype) == _SINGLE:
        return relax.TensorType(kind.shape, _DOUBLE)
    return kind
