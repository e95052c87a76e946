# SPDX-License-Identifier: Apache-2.0
"""Format a result as text."""

import json
from collections.abc import Mapping, Sequence
from statistics import median

from ..display.tables import align, format_profile
from .compile.description import entry_name
from .result import Latency, TuneResult


def summary(
    result: TuneResult,
    beside: Mapping[str, Latency] | Sequence[Mapping[str, Latency]] | None = None,
) -> str:
    """Describe a result for a person.

    ``beside``: the return value of ``TuneResult.beside_reference``; a list for several shapes.
    """
    shapes = result.each_shape
    if isinstance(beside, Mapping):
        beside = [beside]
    beside = beside or [{}] * len(shapes)
    if len(shapes) == 1:
        return _summary(shapes[0], beside[0])
    parts = [
        f"{entry_name(number)}: {shape.shown_inputs}\n{_summary(shape, each)}"
        for number, (shape, each) in enumerate(zip(shapes, beside, strict=True))
    ]
    return "\n\n".join([*parts, *(f"note       {note}" for note in result.notes[-1:])])


def _summary(result: TuneResult, beside: Mapping[str, Latency]) -> str:
    latency, *others = (f"{name:<11}{text}" for name, text in result.facts())
    lines = [
        latency,
        *_beside(beside),
        *others,
        "",
        align(result.kernel_cells()),
        "",
        format_profile(dict(result.secs_of)),
    ]
    return "\n".join(lines)


def _beside(beside: Mapping[str, Latency]) -> list[str]:
    if not beside:
        return []
    tuned = beside["tuned"]
    (name, other), *_ = ((name, it) for name, it in beside.items() if name != "tuned")
    ratios = sorted(theirs / ours for ours, theirs in zip(tuned.secs, other.secs, strict=True))
    low, high = ratios[len(ratios) // 4], ratios[(3 * len(ratios)) // 4]
    return [
        f"in turns   {tuned}; {name} {other}",
        f"           that many times as fast: {median(ratios):.2f} ({low:.2f} to {high:.2f})",
    ]


def as_json(result: TuneResult, beside: Sequence[Mapping[str, Latency]]) -> str:
    """Return the result as JSON, with each shape's times from ``TuneResult.beside_reference``."""
    content = json.loads(result.as_json())
    for shown, latencies in zip(content.get("of_shapes", [content]), beside, strict=True):
        if latencies:
            shown["beside"] = {name: each.milliseconds for name, each in latencies.items()}
    return json.dumps(content, indent=1)
