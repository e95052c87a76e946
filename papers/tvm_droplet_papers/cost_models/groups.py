# SPDX-License-Identifier: Apache-2.0

"""Groups of programs for the training steps of a network. Imports no TVM."""

from collections.abc import Iterator, Sequence

import numpy as np

PER_EPOCH = 1024
"""Maximum number of programs per workload in an epoch."""

GROUP, GROUPS = 64, 4
"""Number of programs in a group, which share a workload, and number of groups in a step."""

PROGRAMS = GROUP * GROUPS
"""Maximum number of programs in a step."""


def members_of(workloads: np.ndarray) -> list[np.ndarray]:
    """The programs of each workload. ``workloads``: the workload index of each program."""
    return [np.flatnonzero(workloads == workload) for workload in np.unique(workloads)]


def groups_per_workload(members: Sequence[np.ndarray]) -> int:
    """The number of groups per workload and epoch. ``members``: the programs of each workload."""
    return -(-min(max(map(len, members)), PER_EPOCH) // GROUP)


def epochs(members: Sequence[np.ndarray], least: int, min_steps: int) -> int:
    """The number of passes over the programs.

    ``members``: the programs of each workload. ``least``: minimum number of passes. ``min_steps``:
    minimum number of steps, for small training sets.
    """
    steps = -(-groups_per_workload(members) * len(members) // GROUPS)
    return max(least, -(-min_steps // steps))


def steps(
    members: Sequence[np.ndarray], epochs: int, generator: np.random.Generator
) -> Iterator[list[np.ndarray]]:
    """Yield the groups of each step, with programs of small workloads repeated.

    ``epochs``: passes over the programs. ``generator``: draws the order. Each step has up to
    ``GROUPS`` arrays of up to ``GROUP`` programs of one workload.
    """
    count = groups_per_workload(members)
    for _ in range(epochs):
        groups = []
        for programs in members:
            size = min(GROUP, len(programs))
            groups += list(np.resize(generator.permutation(programs), (count, size)))
        order = generator.permutation(len(groups))
        for start in range(0, len(order), GROUPS):
            yield [groups[index] for index in order[start : start + GROUPS]]


def targets(
    throughput: np.ndarray, groups: Sequence[np.ndarray]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Training targets of a step.

    Returns ``expected``: the throughputs of each group, of shape ``(GROUPS, GROUP)``; ``places``:
    the row of each program in the step's inputs, of the same shape; ``present``: 1 for a program, 0
    for padding, of the same shape.
    """
    expected, present = np.zeros((2, GROUPS, GROUP), dtype=np.float32)
    places = np.zeros((GROUPS, GROUP), dtype=np.int32)
    start = 0
    for row, programs in enumerate(groups):
        expected[row, : len(programs)] = throughput[programs]
        places[row, : len(programs)] = start + np.arange(len(programs))
        present[row, : len(programs)] = 1.0
        start += len(programs)
    return expected, places, present
