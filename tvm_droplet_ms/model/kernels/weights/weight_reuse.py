# SPDX-License-Identifier: Apache-2.0
"""Marks kernels that find their weights in the caches, so that they are timed that way.

The steps of a recurrent network share their weights: a kernel of such a step finds them in the
caches, while a convolution reads its weights from memory. Another schedule may be the fastest. With
weights from memory, all good schedules of the product of an LSTM's step took 48 us. Inside the
network, whose steps share 1 MB, they took 10 to 26 us.
"""

from math import prod
from typing import Any

from tvm_ffi import dtype as element_type

import tvm
from tvm import relax
from tvm.ir import GlobalVar, IRModule
from tvm.tirx import PrimFunc

from ...bindings import operator_name, static_shape
from .reuse_distance import CACHE_BYTES, KernelCall, reusing_kernels

REUSES_WEIGHTS = "tvm_droplet_ms.reuses_weights"
"""The attribute of kernels that find their weights in the caches. It is part of a workload's hash:
times with cold and with warm weights are not comparable."""


def mark_reused_weights() -> tvm.transform.Pass:
    """Make a pass that marks the kernels that find their weights in the caches.

    The pass applies to lowered modules.
    """

    def run(mod: IRModule, _context: tvm.transform.PassContext) -> IRModule:
        names: set[str] = set()
        for _, function in mod.functions_items():
            if isinstance(function, relax.Function):
                names |= reusing_kernels(calls_of(function), CACHE_BYTES)
        changed = IRModule(dict(mod.functions_items()), attrs=mod.attrs)
        for name in names:
            changed.update_func(mod.get_global_var(name), mod[name].with_attr(REUSES_WEIGHTS, 1))
        return changed

    return tvm.transform.module_pass(run, opt_level=0, name="MarkReusedWeights")


def reuses_weights(mod: IRModule) -> bool:
    """Return whether a workload of one or several kernels has a marked kernel."""
    return any(
        isinstance(function, PrimFunc) and REUSES_WEIGHTS in (function.attrs or {})
        for _, function in mod.functions_items()
    )


def calls_of(function: relax.Function) -> list[KernelCall]:
    """Return the calls of kernels, in order.

    ``function``: a function of a lowered model. Its parameters after the first ``num_input`` are
    weights, and so are constants. The result has each ``call_tir`` whose tensors all have static
    shapes.
    """
    params = list(function.params)
    inputs = int((function.attrs or {}).get("num_input", len(params)))
    numbers: dict[Any, int] = {}
    weights = {numbers.setdefault(param, len(numbers)) for param in params[inputs:]}
    calls = []
    for block in function.body.blocks:
        for binding in block.bindings:
            call = binding.value
            if not is_kernel_call(call):
                continue
            tensors = [*call.args[1], binding.var]
            if any(static_shape(tensor) is None for tensor in tensors):
                continue
            sizes: dict[int, int] = {}
            constants: set[int] = set()
            for tensor in tensors:
                number = numbers.setdefault(tensor, len(numbers))
                sizes[number] = _bytes(tensor.ty)
                if number in weights or not isinstance(tensor, relax.Var):
                    constants.add(number)
            calls.append(KernelCall(str(call.args[0].name_hint), frozenset(constants), sizes))
    return calls


def is_kernel_call(value: Any) -> bool:
    """Return whether a value is the call of a kernel."""
    return (
        operator_name(value) == "relax.call_tir"
        and isinstance(value.args[0], GlobalVar)
        and isinstance(value.args[1], relax.Tuple)
    )


def _bytes(type_: relax.TensorType) -> int:
    bits = int(element_type(str(type_.dtype)).bits)
    return prod(int(extent) for extent in type_.shape) * bits // 8
