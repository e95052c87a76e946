# SPDX-License-Identifier: Apache-2.0
"""Tables in Markdown and HTML: data in, text out."""

from collections.abc import Mapping, Sequence
from html import escape


def format_profile(parts: Mapping[str, float]) -> str:
    """Format the parts of a run's time as a Markdown table.

    ``parts``: seconds of each part. Returns one line per part, with its seconds and its share, and
    a line for the sum. All lines have the same width. There is no final newline.
    """
    total = sum(parts.values())
    lines = [("part", "seconds", "share")]
    for name, secs in [*parts.items(), ("total", total)]:
        share = 100 * secs / total if total else 0.0
        lines.append((name, f"{secs:.1f}", f"{share:.0f}%"))
    return align(lines)


def shown_share(share: float) -> str:
    """Format a share of the machine's peak rate, such as "62%"; ">=100%" for 1 and more.

    The peak rates are measured, but not with the fastest possible program. A share above 100% only
    means that the rate was reached.
    """
    return ">=100%" if share >= 1.0 else f"{100 * share:.0f}%"


def shown_deviation(deviation: float) -> str:
    """Format a deviation of outputs relative to their scale, such as "1.2e-06"; "0" for none."""
    return f"{deviation:.1e}" if deviation else "0"


def align(lines: Sequence[Sequence[str]]) -> str:
    """Align the cells of a Markdown table.

    ``lines``: header and lines, each with the same number of cells: a name, then numbers. Returns
    lines of equal width, without a final newline. Names are left-aligned, numbers right.
    """
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    padded = [[line[0].ljust(widths[0]), *(map(str.rjust, line[1:], widths[1:]))] for line in lines]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    return "\n".join(f"| {' | '.join(line)} |" for line in [padded[0], rule, *padded[1:]])


def html_table(lines: Sequence[Sequence[str]]) -> str:
    """Format lines of cells as a table in HTML, for notebooks; all text is escaped."""
    cells = ("".join(f"<td>{escape(cell)}</td>" for cell in line) for line in lines)
    rows = "".join(f'<tr style="text-align: left">{line}</tr>' for line in cells)
    return f"<table>{rows}</table>"
