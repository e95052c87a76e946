# SPDX-License-Identifier: Apache-2.0
"""The outcomes of the backend tests as a table by operator."""

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from fnmatch import fnmatch

from .running import CRASHED, FAILED, PASSED, REFUSED, WRONG, Outcome

COLUMNS = (PASSED, REFUSED, WRONG, FAILED, CRASHED)

AS_RUNTIME = "the outputs are those of ONNX Runtime, whose definition is another one"
DEFINED_OTHERWISE = {
    "test_attention_*_bf16*": "ONNX's reference rounds to bfloat16 after each step; here all is "
    "computed in float32, and rounded once",
    "test_dft_inverse*": "the sums are 0, of which rounding leaves 3e-15 here and 2e-7 in ONNX's",
    "test_maxunpool_export_with_output_shape": AS_RUNTIME,
    "test_resize_downsample_scales_*_align_corners": AS_RUNTIME,
}
"""The cases whose outputs are others than ONNX's for a reason, by their names."""

_NODE = re.compile(r"(the node that computes|node) '[^']*' \((\w+)\) (cannot be imported: )?")
_ADVICE = re.compile(r"; (export the model|its extents depend|the input '|it is decided).*")
_NARROW = re.compile(r"it has a tensor of type \w+,")


def table(outcomes: Sequence[Outcome]) -> str:
    """Write the outcomes that count by operator, the other groups, and why what is not right.

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
    others = [each for each in outcomes if not each.counts]
    lines = [
        f"{right} of {len(counted)} cases of float operators that ONNX Runtime passes are right "
        f"({share:.1f}%), {constant} of them with what shapes the operator as a constant.",
        "",
        *_rows("operator", {name: found for name, found in operators.items() if name not in whole}),
        "",
        *_reasons(counted),
        "",
        f"All cases are right of {len(whole)} operators: {', '.join(whole)}.",
        "",
        "The cases that do not count:",
        "",
        *_rows("group", _grouped(others, "reason")),
        "",
        *_reasons(others),
        "",
    ]
    return "\n".join(lines)


def _reasons(outcomes: Sequence[Outcome]) -> list[str]:
    """What is not right as a table by reason, the most frequent first."""
    found: dict[tuple[str, str], list[Outcome]] = defaultdict(list)
    for each in outcomes:
        if each.status != PASSED:
            found[each.status, _reason(each)].append(each)
    lines = ["| cases | | why | operators |", "|---|---|---|---|"]
    for (status, why), group in sorted(found.items(), key=lambda item: (-len(item[1]), item[0])):
        names = ", ".join(sorted({each.operator for each in group}))
        lines.append(f"| {len(group)} | {status} | {why} | {names} |")
    return lines


def _reason(outcome: Outcome) -> str:
    """Why a case is not right, without the names of its values."""
    for pattern, why in DEFINED_OTHERWISE.items():
        if outcome.status == WRONG and fnmatch(outcome.name, pattern):
            return why
    text = _ADVICE.sub("", _NODE.sub("", outcome.detail))
    text = _NARROW.sub("it has a tensor of less than 8 bits or of float8,", text)
    return re.sub(r"'\w+' (is a|has) ", r"\1 ", text).replace("|", " ")


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
