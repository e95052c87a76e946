# SPDX-License-Identifier: Apache-2.0
"""Arguments of kernels that are timed: large ones are kept for the next candidate.

The candidates of a batch have the same arguments. To allocate 400 MB and fill them with random
values takes a second, and to time a kernel that reads them 30 ms.
"""

from math import prod
from typing import Any

from tvm_ffi import dtype as element_type

from tvm.runtime import Device, Tensor
from tvm.s_tir.meta_schedule.runner.local_runner import default_alloc_argument

from ...measure.allocation import allocate_safely, is_integer

KEPT_BYTES = 32 << 20
"""Smaller arguments are allocated anew: some kernels are twice as fast at some addresses, which
matters little where a call reads so many pages."""

_kept: dict[tuple[int, str, tuple[int, ...]], Tensor] = {}
"""Those of the last candidate, by their place among the arguments, type and shape."""


def allocate_or_keep(device: Device, args_info: Any, alloc_repeat: int) -> list[list[Any]]:
    """Allocate random arguments, and integers of 0; ``f_alloc_argument`` of a ``PromptRunner``.

    ``args_info``: the shapes and types of the arguments, as ``ArgInfo.as_json`` gives them.
    ``alloc_repeat``: the number of sets. Returns the sets. Large arguments are the same in all of
    them, and those of the call before, whose values a kernel may have changed.
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
