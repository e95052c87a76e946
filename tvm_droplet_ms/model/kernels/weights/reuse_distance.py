# SPDX-License-Identifier: Apache-2.0
"""Kernels whose weights are still in the caches when they are called again. Imports no TVM.

The steps of a recurrent network share their weights. A kernel of such a step finds them in the
caches, where those of a convolution come from the memory. Another schedule may then be the fastest.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

CACHE_BYTES = 4 << 20
"""The bytes that caches are taken to keep: the second level of a core and its part of the third. A
constant, because what is measured differs from run to run and hashes must not."""


class KernelCall(NamedTuple):
    """A call of a kernel in a model.

    ``kernel``: the kernel's name. ``weights``: the numbers of those arguments that are weights.
    ``bytes_of``: the bytes of each argument and of the result, by their numbers.
    """

    kernel: str
    weights: frozenset[int]
    bytes_of: Mapping[int, int]


def reusing_kernels(calls: Sequence[KernelCall], cache_bytes: int) -> set[str]:
    """The kernels that find their weights in the caches in most of their calls.

    ``calls``: the calls of a model, in their order. ``cache_bytes``: the bytes that the caches
    keep. Returns their names. A weight is kept from one call of the kernel to the next where all
    that is touched in between, and by the first of both, fits the caches. A call finds its weights
    there where most of their bytes are kept. Another kernel with the same weight does not count: it
    may have a packed copy of its own.
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
    """The bytes of the tensors that some calls read and write, each once."""
    return sum({n: size for call in calls for n, size in call.bytes_of.items()}.values())
