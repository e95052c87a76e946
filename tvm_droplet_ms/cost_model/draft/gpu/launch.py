# SPDX-License-Identifier: Apache-2.0
"""Threads and shared memory of GPU schedules, as functions of their decisions."""

from dataclasses import dataclass

import numpy as np

from ..extents import Node, Tape


@dataclass(frozen=True)
class Launch:
    """The launch of a sketch's schedules, as nodes of a tape.

    ``tape``: evaluates the nodes for points of the sketch. ``threads``, ``shared_bytes``: the
    threads and the bytes of shared memory of a block. ``least``, ``most``: the bounds on the
    threads that the schedule rule sets. ``refused``: positive for vectors and pipelines that TVM
    refuses.
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
        GPU's limits for a block.
        """
        nodes = [self.threads, self.shared_bytes, self.refused]
        asked, shared, refused = self.tape.evaluate(points, nodes)
        fits = (asked >= self.least) & (asked <= min(self.most, threads)) & (shared <= shared_bytes)
        possible: np.ndarray = fits & (refused == 0)
        return possible
