# SPDX-License-Identifier: Apache-2.0
"""The number of schedules of each task to sample before any trial. Imports no TVM."""

from collections.abc import Sequence

HEAVY_SHARE = 0.9
"""The heaviest tasks that hold this share of the model's time at stake get the most points."""


def sample_sizes(stakes: Sequence[float], most: int, least: int) -> list[int]:
    """Share out sampled schedules: sampling and asking cost the same for a light task.

    ``stakes``: the seconds at stake of each task: its weight times its roofline. ``most``,
    ``least``: schedules of a task among the heaviest ones, and of any other. Returns `most` for the
    heaviest tasks that hold ``HEAVY_SHARE`` of all stakes together, and `least` for the others; in
    the order of the stakes.
    """
    sizes = [least] * len(stakes)
    held, total = 0.0, sum(stakes)
    for task in sorted(range(len(stakes)), key=lambda task: -stakes[task]):
        if held >= HEAVY_SHARE * total:
            break
        sizes[task] = most
        held += stakes[task]
    return sizes
