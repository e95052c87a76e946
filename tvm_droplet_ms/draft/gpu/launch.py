# SPDX-License-Identifier: Apache-2.0
"""Threads and shared memory of GPU schedules, as functions of their decisions."""

from dataclasses import dataclass

import numpy as np

from ..extents import Node, Tape


@dataclass(frozen=True)
class Launch:
    """Threads and shared memory of the schedules of a sketch.

    ``tape``: evaluates the nodes for points of the sketch. ``threads``, ``shared_bytes``: of a
    block. ``least``, ``most``: threads that the schedule rule asks for. ``refused``: more than 0
    for vectors and pipelines that TVM refuses.
    """

    tape: Tape
    threads: Node
    shared_bytes: Node
    least: int
    most: int
    refused: Node

    def is_possible(self, points: np.ndarray, threads: int, shared_bytes: int) -> np.ndarray:
        """True for each point that ``VerifyGPUCode`` accepts.

        ``points``: decisions, of shape ``(points, entries)``. ``threads``, ``shared_bytes``: the
        most that a block of the GPU may have.
        """
        nodes = [self.threads, self.shared_bytes, self.refused]
        asked, shared, refused = self.tape.evaluate(points, nodes)
        fits = (asked >= self.least) & (asked <= min(self.most, threads)) & (shared <= shared_bytes)
        possible: np.ndarray = fits & (refused == 0)
        return possible
