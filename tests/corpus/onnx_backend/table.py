# SPDX-License-Identifier: Apache-2.0
"""The outcomes of the backend tests as a table by operator."""

from collections import Counter, defaultdict
from collections.abc import Sequence

from .running import CRASHED, FAILED, PASSED, REFUSED, WRONG, Outcome

COLUMNS = (PASSED, REFUSED, WRONG, FAILED, CRASHED)


def table(outcomes: Sequence[Outcome]) -> str:
    """Write the outcomes that count by operator, those that failed by name, and the other groups.

    Returns Markdown.
    """
    counted = [each for each in outcomes if each.counts]
    right = sum(each.status == PASSED for each in counted)
    constant = sum(each.status == PASSED and each.constants for each in counted)
    operators = _grouped(counted, "operator")
    whole = [
        name
        for name, found in sorted(operators.items())
        if all(each.status == PASSED for each in found)
    ]
    share = 100 * right / max(len(counted), 1)
    lines = [
        f"{right} of {len(counted)} cases of float operators that ONNX Runtime passes are right "
        f"({share:.1f}%), {constant} of them with what shapes the operator as a constant.",
        "",
        *_rows("operator", {name: found for name, found in operators.items() if name not in whole}),
        "",
        f"All cases are right of {len(whole)} operators: {', '.join(whole)}.",
        "",
        "What is not right, by name:",
        "",
        *(
            f"- `{each.name}` ({each.operator}): {each.status}: {each.detail}"
            for each in sorted(counted, key=lambda each: (each.operator, each.name))
            if each.status != PASSED
        ),
        "",
        "The cases that do not count:",
        "",
        *_rows("group", _grouped([each for each in outcomes if not each.counts], "reason")),
        "",
    ]
    return "\n".join(lines)


def _grouped(outcomes: Sequence[Outcome], key: str) -> dict[str, list[Outcome]]:
    found: dict[str, list[Outcome]] = defaultdict(list)
    for each in outcomes:
        group = each.operator
        if key == "reason":
            group = each.group if each.runtime else f"{each.group}, not in ONNX Runtime"
        found[group].append(each)
    return found


def _rows(title: str, groups: dict[str, list[Outcome]]) -> list[str]:
    """The rows of a table, those with the most that is not right first."""
    counts = {name: Counter(each.status for each in found) for name, found in groups.items()}
    lines = [f"| {title} | cases | {' | '.join(COLUMNS)} |", f"|---|{'---|' * (len(COLUMNS) + 1)}"]
    order = sorted(counts, key=lambda name: (counts[name][PASSED] - counts[name].total(), name))
    for name in order:
        found = counts[name]
        cells = " | ".join(str(found[column]) for column in COLUMNS)
        lines.append(f"| {name} | {found.total()} | {cells} |")
    return lines
