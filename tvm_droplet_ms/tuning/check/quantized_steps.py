# SPDX-License-Identifier: Apache-2.0
"""The steps of outputs that are quantised: the least that two of their values differ by."""

from typing import Any

from tvm import relax
from tvm.ir import IRModule

from ...model.bindings import Bindings, operator_name
from ...model.integers.quantized_values import BYTES, quantized
from .output_bounds import leaves

_MOVES = {
    f"relax.{name}"
    for name in "reshape permute_dims squeeze expand_dims flatten strided_slice".split()
}


def output_steps(mod: IRModule) -> tuple[float | None, ...]:
    """The step of each output of ``main``; None where it is not quantised.

    A byte that is the rounding of a number has a step of 1, and what such a byte is dequantised to
    that of its scale. ``mod``: a module as it is imported.
    """
    function = mod["main"]
    values: dict[Any, Any] = {}
    for block in function.body.blocks:
        bindings = Bindings(block, {})
        values.update(bindings.values)
    if not values:
        return ()
    bindings.values = values
    return tuple(_step(bindings, leaf) for leaf in leaves(function.body.body, bindings.value_of))


def _step(bindings: Bindings, expr: Any) -> float | None:
    value = bindings.value_of(expr)
    while operator_name(value) in _MOVES:
        value = bindings.value_of(value.args[0])
    tensor = quantized(bindings, value) if isinstance(value, relax.Call) else None
    if tensor is not None:
        scale = tensor.scale
        is_rounded = _is_rounded(bindings, tensor.data)
        return abs(float(scale)) if scale is not None and is_rounded else None
    return 1.0 if _is_rounded(bindings, value) else None


def _is_rounded(bindings: Bindings, expr: Any) -> bool:
    """True if bytes are numbers that were rounded and clipped to their range."""
    value = bindings.value_of(expr)
    while operator_name(value) in _MOVES:
        value = bindings.value_of(value.args[0])
    if operator_name(value) != "relax.astype" or str(value.ty.dtype) not in BYTES:
        return False
    clip = bindings.call_of(value.args[0], "relax.clip")
    if clip is None:
        return False
    added = bindings.call_of(clip.args[0], "relax.add")
    rounded = clip.args[0] if added is None else added.args[0]
    return bindings.call_of(rounded, "relax.round") is not None
