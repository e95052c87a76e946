# SPDX-License-Identifier: Apache-2.0
"""A pass that makes ``max`` and ``min`` with a constant propagate NaN, at no cost.

TVM and CPUs compute ``max(a, b)`` as ``a if a > b else b``: if an operand is NaN, the result is the
second operand. TOPI writes the constant second in ``relu``, in ``clip``, and around the arguments
of its ``fast_exp`` and ``fast_erf``. ONNX Runtime and PyTorch propagate NaN in all of these.
Quantized types have no NaN: there a NaN becomes the limit, as in ONNX Runtime.
"""

from typing import Any

from tvm_ffi.structural import structural_map, structural_walk

import tvm
from tvm.ir import IRModule
from tvm.ir.expr import Call
from tvm.tirx import Cast, FloatImm, Max, Min, PrimFunc

_BYTES = ("int8", "uint8")
_ROUNDINGS = ("tirx.round", "tirx.nearbyint")


def keep_nan() -> tvm.transform.Pass:
    """Return a pass that puts a constant operand first in each maximum and minimum.

    Apply it to scheduled kernels, since it changes structural hashes.
    """

    def run(mod: IRModule, _context: tvm.transform.PassContext) -> IRModule:
        changed = IRModule(dict(mod.functions_items()), attrs=mod.attrs)
        for variable, function in mod.functions_items():
            if isinstance(function, PrimFunc) and not _quantizes(function):
                body = structural_map(function.body, ((Max, Min), _number_first))
                if not body.same_as(function.body):
                    changed.update_func(variable, function.with_body(body))
        return changed

    return tvm.transform.module_pass(run, opt_level=0, name="KeepNan")


def _number_first(limit: Any) -> Any:
    is_number = isinstance(limit.b, FloatImm) and not isinstance(limit.a, FloatImm)
    return type(limit)(limit.b, limit.a) if is_number else limit


def _quantizes(function: PrimFunc) -> bool:
    """Return whether a kernel computes 8-bit integers, or rounds.

    8-bit integers that the same kernel consumes stay rounded floats.
    """
    found: list[Any] = []
    structural_walk(function.body, (Cast, found.append))
    if any(str(cast.ty.dtype) in _BYTES for cast in found):
        return True
    calls: list[Any] = []
    structural_walk(function.body, (Call, calls.append))
    return any(str(getattr(call.op, "name", "")) in _ROUNDINGS for call in calls)
