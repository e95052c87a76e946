# SPDX-License-Identifier: Apache-2.0
"""Time a kernel as it runs inside a model: with its input in the caches and mostly cold weights.

Between two calls of a kernel, the model runs all other kernels and evicts its weights. Repeated
calls of the kernel alone would find the weights in the caches. Only a kernel that the model calls
repeatedly with the same weights is timed that way, such as the step of a recurrent network. Large
arguments are kept for the next candidate of a batch, which has the same ones: allocating 400 MB of
random values takes a second, and timing such a kernel takes 30 ms.
"""

import time
from collections.abc import Sequence
from math import prod
from statistics import median
from typing import Any

import ml_dtypes
import numpy as np
from tvm_ffi import dtype as element_type
from tvm_ffi import get_global_func

import tvm
from tvm.ir import IRModule
from tvm.runtime import Device, Module, Tensor
from tvm.s_tir.meta_schedule.arg_info import ArgInfo
from tvm.s_tir.meta_schedule.runner import EvaluatorConfig
from tvm.s_tir.meta_schedule.runner.local_runner import (
    default_alloc_argument,
    default_run_evaluator,
)

from ..measure.allocation import allocate_safely, is_integer
from ..measure.task_signature import arguments_signature
from ..model.kernels.weights.weight_marks import reuses_weights

KEPT_BYTES = 32 << 20
"""Smaller arguments are allocated anew: some kernels are twice as fast at some addresses. This
matters little for calls that read as many pages as this."""

_kept: dict[tuple[int, str, tuple[int, ...]], Tensor] = {}
"""The large arguments of the last candidate, by argument index, type and shape."""

MOST_CALLS, FEWEST_CALLS = 7, 3
"""Bounds on the calls of a repeat; each call is timed alone."""

FLUSHED_BYTES = 64 << 20
"""The bytes that a repeat may flush, unless ``FEWEST_CALLS`` need more: a flush takes half a
nanosecond a byte, even for uncached data."""

EVICTING_BYTES = 128 << 20
"""An argument of at least this size evicts all arguments from the caches without a flush."""

_FLUSH = "cache_flush_cpu_non_first_arg"
"""TVM's function that flushes all arguments but the first (``rpc_session.cc``)."""


class InsideTiming:
    """Times kernels as they run inside a model; ``f_run_evaluator`` of a ``PromptRunner``.

    A runner sends this object to its worker with every candidate, so it may change in between.
    """

    def __init__(self) -> None:
        self._warm: frozenset[str] = frozenset()

    def set_tasks(self, mods: Sequence[IRModule]) -> None:
        """Set the workloads whose candidates are timed from now on.

        Workloads that find their weights in the caches (``mark_reused_weights``) are recognized by
        their argument types and shapes. Any workload with the same arguments is treated alike.
        """
        self._warm = frozenset(
            arguments_signature(
                [info.as_json() for info in ArgInfo.from_entry_func(mod, remove_preproc=True)]
            )
            for mod in mods
            if reuses_weights(mod)
        )

    def __call__(
        self, module: Module, device: Device, config: EvaluatorConfig, repeated_args: list[Any]
    ) -> list[float]:
        """Time a kernel; see ``time_cold``."""
        if repeated_args and _signature(repeated_args[0]) in self._warm:
            return [float(s) for s in default_run_evaluator(module, device, config, repeated_args)]
        return time_cold(module, device, config, repeated_args)


def _signature(arguments: Any) -> str:
    return arguments_signature([("TENSOR", str(a.dtype), list(a.shape)) for a in arguments])


def time_cold(
    module: Module, device: Device, config: EvaluatorConfig, repeated_args: list[Any]
) -> list[float]:
    """Return the median seconds per call of each repeat with cold weights, on a CPU.

    ``config``: ``repeat`` repeats of ``number`` calls, at most ``MOST_CALLS``, and fewer for large
    arguments. A single call that takes at least ``min_repeat_ms`` runs without a warm-up call.
    ``repeated_args``: sets of arguments, the input first.
    """
    is_long = config.number == 1 and config.min_repeat_ms > 0
    secs: list[float] = []
    for arguments in repeated_args:
        if not is_long:
            module[module.entry_name](*arguments)
        for _ in range(config.repeat):
            timed = _time_long if is_long else _time_calls
            secs.append(timed(module, device, config.number, arguments))
    return secs


def _time_calls(module: Module, device: Device, number: int, arguments: Any) -> float:
    sizes = [bytes_of(argument) for argument in arguments[1:]]
    affordable = max(FEWEST_CALLS, FLUSHED_BYTES // max(1, sum(sizes)))
    evaluate = module.time_evaluator(
        module.entry_name,
        dev=device,
        number=1,
        repeat=min(number, MOST_CALLS, affordable),
        min_repeat_ms=0,
        f_preproc="" if _evicts(arguments) else _FLUSH,
    )
    return float(median(evaluate(*arguments).results))


def _time_long(module: Module, device: Device, _number: int, arguments: Any) -> float:
    """Return the seconds of one call. TVM's evaluator would add a warm-up call."""
    kernel = module[module.entry_name]
    if not _evicts(arguments):
        get_global_func(_FLUSH)(*arguments)
    device.sync()
    start = time.perf_counter()
    kernel(*arguments)
    device.sync()
    return time.perf_counter() - start


def _evicts(arguments: Any) -> bool:
    return any(bytes_of(argument) >= EVICTING_BYTES for argument in arguments[1:])


def allocate_or_keep(device: Device, args_info: Any, alloc_repeat: int) -> list[list[Any]]:
    """Allocate random arguments, with zeros as integers; ``f_alloc_argument`` of ``PromptRunner``.

    Large arguments are shared by all sets and reused from the previous call. A kernel may have
    changed their values.
    """
    large = {place: info for place, info in enumerate(args_info) if _is_large(info)}
    keys = {place: (place, str(info[1]), tuple(info[2])) for place, info in large.items()}
    for key in _kept.keys() - set(keys.values()):
        del _kept[key]
    for place, key in keys.items():
        if key not in _kept:
            ((_kept[key],),) = _fill(device, [large[place]], 1)
    small = [info for place, info in enumerate(args_info) if place not in large]
    sets = []
    for arguments in allocate_safely(device, small, alloc_repeat, _fill):
        rest = iter(arguments)
        sets.append([_kept[keys[p]] if p in keys else next(rest) for p in range(len(args_info))])
    return sets


_FAST_FILLED = frozenset({"float16", "float32", "float64", "bfloat16"})

_BLOCK = np.random.default_rng(0).uniform(1.0, 10.0, 1 << 14)
"""Numbers that fill floating-point arguments, over and over. TVM's are in the same range: products
of smaller numbers may be subnormal, which slows some CPUs down."""


def _fill(device: Device, args_info: Any, alloc_repeat: int) -> list[list[Any]]:
    """Allocate arguments like ``default_alloc_argument``, but floats of a CPU without drawing each.

    TVM draws each number, which takes longer than timing a kernel with large weights.
    """

    def allocate(info: Any) -> Any:
        is_fast = info[0] == "TENSOR" and str(info[1]) in _FAST_FILLED
        if is_fast and device.type == "cpu":
            return _filled(info)
        ((argument,),) = default_alloc_argument(device, [info], 1)
        return argument

    return [[allocate(info) for info in args_info] for _ in range(alloc_repeat)]


def _filled(info: Any) -> Tensor:
    """Allocate an argument and fill it in place: a copy may not fit in the memory."""
    dtype, shape = str(info[1]), tuple(int(extent) for extent in info[2])
    tensor = tvm.runtime.empty(shape, dtype)
    if prod(shape) == 0:
        return tensor
    block = _BLOCK.astype(getattr(ml_dtypes, dtype, dtype))
    # NumPy reads no bfloat16 from DLPack.
    bits = f"uint{8 * block.itemsize}"
    flat = np.from_dlpack(tensor._create_view((prod(shape),), bits))
    whole = len(flat) // len(block) * len(block)
    flat[:whole].reshape(-1, len(block))[:] = block.view(bits)
    flat[whole:] = block.view(bits)[: len(flat) - whole]
    return tensor


def bytes_of(tensor: Any) -> int:
    """Return the bytes of a tensor's elements; 0 for any other object."""
    if not isinstance(tensor, Tensor):
        return 0
    return _bytes(str(tensor.dtype), tensor.shape)


def _is_large(info: Any) -> bool:
    """Return whether to keep an argument. Integers are not kept: a kernel may overwrite indices."""
    if info[0] != "TENSOR" or is_integer(info):
        return False
    return _bytes(str(info[1]), info[2]) >= KEPT_BYTES


def _bytes(kind: str, shape: Any) -> int:
    return prod(int(extent) for extent in shape) * int(element_type(kind).bits) // 8
