# SPDX-License-Identifier: Apache-2.0
"""Few schedules that differ, of many that are ranked. Imports no TVM.

The best predicted schedules are often near-twins. To measure three of them tells no more than one.
"""

from collections.abc import Sequence

LEAST_DIFFERENCE = 0.25
"""The share of their numbers in which two schedules of one design space differ at least."""

Point = tuple[int, tuple[int, ...]]
"""The index of a design space, and the values of its decisions."""


def difference(one: Point, other: Point) -> float:
    """The share of the numbers in which two points differ; 1 where their design spaces do."""
    if one[0] != other[0] or len(one[1]) != len(other[1]):
        return 1.0
    if not one[1]:
        return 0.0
    return sum(a != b for a, b in zip(one[1], other[1], strict=True)) / len(one[1])


def choose_different(points: Sequence[Point | None], count: int) -> list[int]:
    """Choose the best points that are no near-twins.

    ``points``: the best first. None is a point that differs from all others. ``count``: the most to
    choose. Returns their places, ascending, the first always among them. Where too few differ, the
    best of the near-twins fill up.
    """
    chosen: list[int] = []
    for place, point in enumerate(points):
        if len(chosen) == count:
            break
        others = [points[other] for other in chosen]
        if all(_differ(point, other) for other in others):
            chosen.append(place)
    rest = [place for place in range(len(points)) if place not in chosen]
    return sorted(chosen + rest[: count - len(chosen)])


def _differ(one: Point | None, other: Point | None) -> bool:
    return one is None or other is None or difference(one, other) >= LEAST_DIFFERENCE
