# SPDX-License-Identifier: Apache-2.0
"""Times a kernel as it runs inside a model: its input is in the caches, its weights mostly are not.

Between two calls of a kernel the model runs all others, so that its weights come from the memory
again. Repeated calls of the kernel alone find them in the caches. That is as it should be for a
kernel that the model calls again and again with the same weights, as the steps of a recurrent
network do. Large arguments are kept for the next candidate of a batch, which has the same ones: to
allocate 400 MB and fill them with random values takes a second, and to time such a kernel 30 ms.
"""

import time
from collections.abc import Sequence
from math import prod
from statistics import median
from typing import Any

from tvm_ffi import dtype as element_type
from tvm_ffi import get_global_func

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
from ..model.kernels.weights.weight_reuse import reuses_weights

KEPT_BYTES = 32 << 20
"""Smaller arguments are allocated anew: some kernels are twice as fast at some addresses, which
matters little where a call reads so many pages."""

_kept: dict[tuple[int, str, tuple[int, ...]], Tensor] = {}
"""Those of the last candidate, by their place among the arguments, type and shape."""

MOST_CALLS, FEWEST_CALLS = 15, 3
"""Calls of a repeat; each is timed alone."""

FLUSHED_BYTES = 256 << 20
"""Bytes to flush in a repeat, beyond the fewest calls: a flush takes half a nanosecond a byte, also
of what is in no cache."""

EVICTING_BYTES = 128 << 20
"""An argument of as many bytes evicts itself and all others from the caches, and is not flushed."""

_FLUSH = "cache_flush_cpu_non_first_arg"
"""TVM's function that flushes all arguments but the first (``rpc_session.cc``)."""


class InsideTiming:
    """Times kernels as they run inside a model; ``f_run_evaluator`` of a ``PromptRunner``.

    A runner hands this object to its worker with every candidate, so that it may be changed.
    """

    def __init__(self) -> None:
        self._warm: frozenset[str] = frozenset()

    def set_tasks(self, mods: Sequence[IRModule]) -> None:
        """Set the workloads whose candidates are timed from now on.

        Those that find their weights in the caches (``mark_reused_weights``) are known by their
        arguments: a workload with the same ones is taken for another one of them.
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
    """The median seconds of the calls of each repeat with cold weights, on a CPU.

    ``config``: ``repeat`` repeats of ``number`` calls, at most ``MOST_CALLS``, and fewer of large
    arguments. A single call that takes ``min_repeat_ms`` by itself needs no other one before.
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
    """The seconds of one call. TVM's evaluator would make another one before."""
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
    """Allocate random arguments, and integers of 0; ``f_alloc_argument`` of a ``PromptRunner``.

    Large arguments are the same in all sets, and those of the call before, whose values a kernel
    may have changed.
    """
    large = {place: info for place, info in enumerate(args_info) if _is_large(info)}
    keys = {place: (place, str(info[1]), tuple(info[2])) for place, info in large.items()}
    for key in _kept.keys() - set(keys.values()):
        del _kept[key]
    for place, key in keys.items():
        if key not in _kept:
            ((_kept[key],),) = default_alloc_argument(device, [large[place]], 1)
    small = [info for place, info in enumerate(args_info) if place not in large]
    sets = []
    for arguments in allocate_safely(device, small, alloc_repeat):
        rest = iter(arguments)
        sets.append([_kept[keys[p]] if p in keys else next(rest) for p in range(len(args_info))])
    return sets


def bytes_of(tensor: Any) -> int:
    """The bytes of a tensor's elements; 0 for what is none."""
    if not isinstance(tensor, Tensor):
        return 0
    return _bytes(str(tensor.dtype), tensor.shape)


def _is_large(info: Any) -> bool:
    """True if an argument is kept. Integers are not: a kernel may have left no index in them."""
    if info[0] != "TENSOR" or is_integer(info):
        return False
    return _bytes(str(info[1]), info[2]) >= KEPT_BYTES


def _bytes(kind: str, shape: Any) -> int:
    return prod(int(extent) for extent in shape) * int(element_type(kind).bits) // 8
