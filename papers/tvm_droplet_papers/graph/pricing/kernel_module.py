# SPDX-License-Identifier: Apache-2.0
"""Writes kernels as a Relax module, so that they are lowered and timed as `tune` would do it."""

from collections.abc import Sequence

from tvm_ffi import get_global_func, structural_hash

from tvm import relax
from tvm.ir import GlobalVar, IRModule
from tvm.tirx import PrimFunc

from ..relax.operators import write_call
from ..relax.types import relax_type
from .kernels import Kernel


def kernel_module(kernels: Sequence[Kernel]) -> IRModule:
    """Make a module with one function for each kernel.

    The functions are named ``kernel_0``, ``kernel_1`` and so on. Weights are their last parameters
    (``num_input``), so they are marked like the weights of a model. A kernel with cached weights is
    called several times with the same weights, so it is marked, too
    (``model/kernels/weights/weight_reuse.py``).
    """
    builder = relax.BlockBuilder()
    for index, kernel in enumerate(kernels):
        inputs, weights, calls = _calls_of(kernel)
        attrs = {"num_input": len(inputs)}
        with builder.function(f"kernel_{index}", [*inputs, *weights], attrs=attrs):
            with builder.dataflow():
                results = [builder.emit_output(write_call(kernel.operator, call)) for call in calls]
            builder.emit_func_output(results)
    return builder.get()


def _calls_of(kernel: Kernel) -> tuple[list[relax.Var], list[relax.Var], list[list[relax.Var]]]:
    """Return inputs, weights and the operands of each call. All calls share the weights."""
    weights = {
        index: _variable(kernel, index, "w")
        for index in range(len(kernel.operands))
        if kernel.weights[index]
    }
    inputs: list[relax.Var] = []
    calls = []
    for call in range(kernel.calls):
        operands = dict(weights)
        for index, is_weight in enumerate(kernel.weights):
            if not is_weight:
                operands[index] = _variable(kernel, index, f"call{call}_x")
                inputs.append(operands[index])
        calls.append([operands[index] for index in range(len(kernel.operands))])
    return inputs, list(weights.values()), calls


def _variable(kernel: Kernel, index: int, name: str) -> relax.Var:
    return relax.Var(f"{name}{index}", relax_type(kernel.operands[index]))


def workloads_of(lowered: IRModule, count: int) -> list[list[int] | None]:
    """The workloads of each function of a lowered ``kernel_module``.

    ``lowered``: the lowered module. ``count``: the number of functions. Returns, for each function,
    the structural hashes of the TIR functions that it calls, one per call. The list of a warm
    kernel therefore repeats each hash. The entry is None if the function calls anything else, which
    cannot be scheduled.
    """
    return [_calls(lowered, lowered[f"kernel_{index}"]) for index in range(count)]


def _calls(lowered: IRModule, function: relax.Function) -> list[int] | None:
    normalize = get_global_func("tvm.s_tir.meta_schedule.normalize_mod")
    hashes: list[int] = []
    for block in function.body.blocks:
        for binding in block.bindings:
            call = binding.value
            if not isinstance(call, relax.Call):
                continue
            callee = call.args[0] if call.args else None
            target = lowered[callee] if isinstance(callee, GlobalVar) else None
            if not isinstance(target, PrimFunc):
                return None
            hashes.append(structural_hash(normalize(target)))
    return hashes or None
