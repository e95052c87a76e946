# SPDX-License-Identifier: Apache-2.0
"""Trials of a batch, by the time that there is for each kernel."""

SECS_PER_TRIAL = 0.35
"""The seconds of wall clock that a trial takes, seen on two CPUs: proposal, build, measurement."""

LARGEST, SMALLEST = 8, 2
"""A batch of fewer than 2 leaves a builder's second process idle; in one of more than 8 the last
candidates know little of the first."""


def batch_size(secs: float, kernels: int) -> int:
    """Trials of a batch.

    The first schedules of a kernel gain the most: where there is time for a few trials of each,
    small batches reach more kernels. ``secs``: seconds for all kernels; infinity for no limit.
    ``kernels``: their number. At least 1. Returns half of the trials that there is time for, for
    each kernel, as a power of 2 within the limits.
    """
    size = LARGEST
    while size > SMALLEST and 2 * size * kernels * SECS_PER_TRIAL > secs:
        size //= 2
    return size
