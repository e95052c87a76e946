# SPDX-License-Identifier: Apache-2.0
"""Format a result as text."""

import json
from collections.abc import Mapping, Sequence
from statistics import median

from ..display.tables import align, format_profile, shown_share
from .compile.description import entry_name
from .result import Latency, TuneResult

MOST_ROWS = 12


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
        f"{entry_name(number)}: {_shown(shape)}\n{_summary(shape, each)}"
        for number, (shape, each) in enumerate(zip(shapes, beside, strict=True))
    ]
    return "\n\n".join([*parts, *(f"note       {note}" for note in result.notes[-1:])])


def _shown(result: TuneResult) -> str:
    return ", ".join(f"{spec.name} {spec.shape}" for spec in result.inputs)


def _summary(result: TuneResult, beside: Mapping[str, Latency]) -> str:
    reference = result.check.reference.name
    lines = [
        f"latency    {result.latency} on {result.threads} thread(s)",
        *_beside(beside),
        f"deviation  {result.deviation:.1e} of the scale of its row, from {reference}",
        f"trials     {result.trials}{_ending(result)}",
        f"outlook    {result.outlook}",
        f"work_dir   {result.work_dir}",
        *(f"note       {note}" for note in result.notes),
        "",
        _kernels(result),
        "",
        format_profile(dict(result.secs_of)),
    ]
    return "\n".join(lines)


def _ending(result: TuneResult) -> str:
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(result.failures.items()))
    return f", ended by {result.why_ended}" + (f"; failed: {kinds}" if kinds else "")


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


def _kernels(result: TuneResult) -> str:
    header = ("kernel", "calls", "ms", "GFLOP/s", "of roofline", "trials", "schedule")
    rows = [
        (
            row.name,
            str(row.weight),
            f"{1e3 * row.secs:.3f}",
            f"{row.gflops:.1f}",
            shown_share(row.roofline_share),
            str(row.trials),
            row.schedule,
        )
        for row in result.kernels[:MOST_ROWS]
    ]
    rest = result.kernels[MOST_ROWS:]
    if rest:
        others = (f"{len(rest)} others", str(sum(row.weight for row in rest)))
        secs = f"{1e3 * sum(row.secs for row in rest):.3f}"
        rows.append((*others, secs, "", "", str(sum(row.trials for row in rest)), ""))
    return align([header, *rows])


def as_json(result: TuneResult, beside: Sequence[Mapping[str, Latency]]) -> str:
    """Return the result as JSON, with each shape's times from ``TuneResult.beside_reference``."""
    content = json.loads(result.as_json())
    for shown, latencies in zip(content.get("of_shapes", [content]), beside, strict=True):
        if latencies:
            shown["beside"] = {name: each.milliseconds for name, each in latencies.items()}
    return json.dumps(content, indent=1)
