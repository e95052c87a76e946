# SPDX-License-Identifier: Apache-2.0
"""Marks for kernels that find their weights in the caches, and for kernels with 7-bit weights.

The steps of a recurrent network share their weights: a kernel of such a step finds them in the
caches, while a convolution reads its weights from memory. Another schedule may be the fastest, so
such kernels are timed with warm weights. CPUs without VNNI multiply 7-bit weights with fewer
instructions.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

from tvm_ffi import dtype as element_type

import tvm
from tvm import relax
from tvm.ir import GlobalVar, IRModule
from tvm.target import Target
from tvm.tirx import PrimFunc

from ....design_space.dot_products.dot_intrinsics import MOST_OF_SMALL, SMALL_WEIGHTS
from ....design_space.dot_products.find_dot import dot_unit
from ....design_space.trees import nodes_in
from ...bindings import array_of, operator_name, static_shape

REUSES_WEIGHTS = "tvm_droplet_ms.reuses_weights"
"""The attribute of kernels that find their weights in the caches. It is part of a workload's hash:
times with cold and with warm weights are not comparable."""


CACHE_BYTES = 4 << 20
"""Assumed cache capacity in bytes: the L2 cache of a core and its part of the L3 cache. It is a
constant, because measurements differ from run to run and hashes must not."""


class KernelCall(NamedTuple):
    """A call of a kernel in a model.

    ``kernel``: the kernel's name. ``weights``: the tensor numbers of the weight arguments.
    ``bytes_of``: the bytes of each argument and of the result, by tensor number.
    """

    kernel: str
    weights: frozenset[int]
    bytes_of: Mapping[int, int]


def reusing_kernels(calls: Sequence[KernelCall], cache_bytes: int) -> set[str]:
    """Return the names of kernels that find their weights in the caches in most of their calls.

    ``calls``: the calls of a model, in order. ``cache_bytes``: the capacity of the caches. A weight
    stays cached from one call of the kernel to the next if the caches hold all tensors that the
    first call and the calls in between touch. A call finds its weights in the caches if most of
    their bytes stay cached. Other kernels with the same weight do not count: each may have its own
    packed copy.
    """
    last: dict[tuple[str, int], int] = {}
    total, warm = Counter[str](), Counter[str]()
    for place, call in enumerate(calls):
        kept = 0
        for weight in call.weights:
            before = last.get((call.kernel, weight))
            if before is not None and _touched(calls[before:place]) <= cache_bytes:
                kept += call.bytes_of[weight]
            last[call.kernel, weight] = place
        total[call.kernel] += 1
        warm[call.kernel] += 2 * kept > sum(call.bytes_of[weight] for weight in call.weights)
    return {kernel for kernel, count in warm.items() if 2 * count > total[kernel]}


def _touched(calls: Sequence[KernelCall]) -> int:
    """Return the bytes of the tensors that some calls read and write, counting each tensor once."""
    return sum({n: size for call in calls for n, size in call.bytes_of.items()}.values())


def mark_reused_weights() -> tvm.transform.Pass:
    """Make a pass that marks the kernels that find their weights in the caches.

    The pass applies to lowered modules.
    """

    def run(mod: IRModule, _context: tvm.transform.PassContext) -> IRModule:
        names: set[str] = set()
        for _, function in mod.functions_items():
            if isinstance(function, relax.Function):
                names |= reusing_kernels(calls_of(function), CACHE_BYTES)
        return _marked(mod, REUSES_WEIGHTS, dict.fromkeys(names, 1))

    return tvm.transform.module_pass(run, opt_level=0, name="MarkReusedWeights")


def _marked(mod: IRModule, attribute: str, values: Mapping[str, Any]) -> IRModule:
    """Give some kernels an attribute; ``values``: its value for each kernel's name."""
    changed = IRModule(dict(mod.functions_items()), attrs=mod.attrs)
    for name, value in values.items():
        changed.update_func(mod.get_global_var(name), mod[name].with_attr(attribute, value))
    return changed


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


def mark_small_weights() -> tvm.transform.Pass:
    """Make a pass that marks signed byte weights with magnitudes of at most 64.

    Quantizers produce them with ``reduce_range``. A kernel that several layers share is marked only
    if all of these have such weights. The pass applies to lowered modules within the target, and
    has an effect only on targets that multiply bytes as words.
    """

    def run(mod: IRModule, _context: tvm.transform.PassContext) -> IRModule:
        target = Target.current(allow_none=True)
        unit = None if target is None else dot_unit(target)
        if unit is None or not unit.widens:
            return mod
        are_small: dict[tuple[str, int], bool] = {}
        for function in mod.functions.values():
            if isinstance(function, relax.Function):
                _look(function, are_small)
        small: dict[str, list[int]] = {}
        for (name, number), is_small in sorted(are_small.items()):
            if is_small:
                small.setdefault(name, []).append(number)
        return _marked(mod, SMALL_WEIGHTS, small)

    return tvm.transform.module_pass(run, opt_level=0, name="MarkSmallWeights")


def _look(function: relax.Function, are_small: dict[tuple[str, int], bool]) -> None:
    """Record for each signed byte operand whether it is a constant of small numbers.

    This includes calls in branches.
    """
    for call in nodes_in(function, relax.Call):
        if not is_kernel_call(call):
            continue
        for number, operand in enumerate(call.args[1]):
            if str(getattr(operand.ty, "dtype", "")) == "int8":
                key = str(call.args[0].name_hint), number
                values, most = array_of(operand), MOST_OF_SMALL
                is_small = values is not None and bool(((values >= -most) & (values <= most)).all())
                are_small[key] = is_small and are_small.get(key, True)
