# SPDX-License-Identifier: Apache-2.0
"""Finds kernels whose weights are still in the caches at the next call. Imports no TVM.

The steps of a recurrent network share their weights. A kernel of such a step finds them in the
caches, while a convolution reads its weights from memory. Another schedule may then be the fastest.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

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
