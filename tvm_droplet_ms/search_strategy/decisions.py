# SPDX-License-Identifier: Apache-2.0
"""Descriptions of decisions for the log."""

from .published.decisions import Decision, Sketch
from .published.neighborhood import Point


def describe(sketch: Sketch, point: Point) -> str:
    """The decisions of a point: ``"SamplePerfectTile#7 [1, 4], ..."``."""
    described = (f"{_name(one)} {list(one.value(point))}" for one in sketch.decisions)
    return ", ".join(described) or "no decision"


def describe_change(sketch: Sketch, before: Point, after: Point) -> str:
    """The decisions that differ: ``"SamplePerfectTile#7 [1, 4] -> [2, 2]"``."""
    changes = (
        f"{_name(one)} {list(one.value(before))} -> {list(one.value(after))}"
        for one in sketch.decisions
        if one.value(before) != one.value(after)
    )
    return ", ".join(changes) or "no decision"


def _name(decision: Decision) -> str:
    """The kind of a decision, and the position of its instruction."""
    return f"{decision.kind.name}#{decision.inst}"
