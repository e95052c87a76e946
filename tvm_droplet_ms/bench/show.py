# SPDX-License-Identifier: Apache-2.0
"""Tables of measured spaces: data in, text out."""

from collections.abc import Sequence
from statistics import median, quantiles

from ..display.tables import align
from .space import Space

_HEADER = ["space", "points", "modules", "failed", "optimum us", "best 1%", "median", "noise"]


def format_spaces(spaces: Sequence[Space]) -> str:
    """A Markdown table of spaces, a legend, and the machine and date of each measurement."""
    return "\n\n".join(
        [
            align([_HEADER, *map(_cells, spaces)]),
            "Best 1% and median are times over the optimum. Noise: the median over the modules of "
            "the interquartile range over the passes.",
            *map(_describe, spaces),
        ]
    )


def _cells(space: Space) -> list[str]:
    times = sorted(module.time for module in space.modules if module.secs)
    failed = sum(
        point.module is None or not space.modules[point.module].secs for point in space.points
    )
    return [
        space.name,
        str(len(space.points)),
        str(len(space.modules)),
        f"{failed / len(space.points):.1%}",
        f"{times[0] * 1e6:.1f}",
        f"{times[len(times) // 100] / times[0]:.2f}",
        f"{median(times) / times[0]:.2f}",
        f"{median(map(_spread, (m.secs for m in space.modules if m.secs))):.1%}",
    ]


def _spread(secs: Sequence[float]) -> float:
    """The interquartile range divided by the median; 0 for a single pass."""
    if len(secs) < 2:
        return 0.0
    low, middle, high = quantiles(secs, n=4, method="inclusive")
    return (high - low) / middle


def _describe(space: Space) -> str:
    machine = ", ".join(f"{name} {value}" for name, value in space.machine.items())
    versions = ", ".join(f"{name} {value}" for name, value in space.versions.items())
    passes = max((len(module.secs) for module in space.modules), default=0)
    return (
        f"{space.name}: {space.description}. {passes} passes on {space.date}; target "
        f"{dict(space.target)}; {machine}; {versions}."
    )
