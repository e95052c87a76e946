# SPDX-License-Identifier: Apache-2.0
"""Writes the tables of options in models.md and kernels.md from their declarations."""

import re
from pathlib import Path

from tvm_droplet_ms.cli.options import OPTIONS, Option, parameters

PAGES = {"tune": "models.md", "tune_kernel": "kernels.md"}

TABLE = re.compile(r"(?<=<!-- written by docs/option_tables.py -->\n)(?:\|.*\n)*")


def table(function: str) -> str:
    """The options of ``tune`` or ``tune_kernel`` as a Markdown table."""
    flags = {option.parameter: option for option in OPTIONS if function in option.applies_to}
    rows = [
        (f"`{name}`", _command(flags[name]) if name in flags else "", one.default, one.meaning)
        for name, one in parameters(function).items()
    ]
    rows += [
        ("", f"`{option.flag}`", "", option.about)
        for option in OPTIONS
        if not option.parameter and function in option.applies_to
    ]
    header = [(f"`{function}(...)`", "Command", "Default", "Meaning"), ("---",) * 4]
    lines = [f"| {' | '.join(row)} |" for row in [*header, *(map(_escaped, row) for row in rows)]]
    return "\n".join(lines).replace("``", "`") + "\n"


def _command(option: Option) -> str:
    """The flag of an option, with its unit, or the value of the parameter that it stands for."""
    unit = f" in {option.unit}" if option.unit else ""
    return f"`{option.flag}`{unit}" + (f" sets `{option.sets}`" if option.sets else "")


def _escaped(cell: str) -> str:
    return cell.replace("|", r"\|")


def written(page: Path, function: str) -> str:
    """The text of a page with its table as declared."""
    (text, count) = TABLE.subn(lambda _: table(function), page.read_text(encoding="utf-8"))
    assert count == 1, f"{page} has {count} places for a table, expected 1"
    return text


if __name__ == "__main__":
    for name, file in PAGES.items():
        place = Path(__file__).with_name(file)
        place.write_text(written(place, name), encoding="utf-8")
