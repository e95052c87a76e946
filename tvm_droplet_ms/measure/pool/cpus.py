# SPDX-License-Identifier: Apache-2.0
"""The CPUs that this process may use."""

import os

import psutil


def available_cpus() -> frozenset[int]:
    """The CPUs that any thread of this process may use.

    TVM binds the thread that first runs a parallel kernel, often the main thread, to some of the
    CPUs, so the affinity of one thread is too small a set. Returns the numbers of the logical CPUs;
    all of them on a system without CPU affinity.
    """
    if not hasattr(os, "sched_getaffinity"):
        return frozenset(range(os.cpu_count() or 1))
    cpus: set[int] = set()
    for thread in psutil.Process().threads():
        try:
            cpus |= os.sched_getaffinity(thread.id)
        except ProcessLookupError:
            pass  # The thread has ended in the meantime.
    return frozenset(cpus)


def check_cpus(cpus: frozenset[int] | None) -> frozenset[int]:
    """Return the given CPUs; None for all. Raises ``ValueError`` if empty or not available."""
    available = available_cpus()
    if cpus is None:
        return available
    if not cpus or not cpus <= available:
        raise ValueError(f"cpus = {cpus}, expected some of {set(available)}")
    return cpus
