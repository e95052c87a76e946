# SPDX-License-Identifier: Apache-2.0
"""Runs the programs in Markdown as a reader would who copies them, with few trials."""

import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

NOT_RUN = re.compile(r"<!-- not run: (\S.*) -->\n\Z")

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A block of code of a page.

    - ``page``: the name of the page.
    - ``line``: the line where it begins, from 1.
    - ``language``: the word after its backticks.
    - ``why_not_run``: why it is not run, as the comment above it says; empty where it is.
    """

    page: str
    line: int
    language: str
    text: str
    why_not_run: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks(path: Path, language: str) -> list[Block]:
    """The blocks of a page in a language."""
    page = path.read_text(encoding="utf-8")
    found = []
    for match in _BLOCK.finditer(page):
        if match[1] == language:
            marked = NOT_RUN.search(page[: match.start()])
            line = page.count("\n", 0, match.start()) + 1
            found.append(Block(path.name, line, match[1], match[2], marked[1] if marked else ""))
    return found


def run_program(text: str, folder: Path) -> None:
    """Run a program as copied, but for the value of ``TRIALS``, in a folder of its own."""
    text = re.sub(r"^TRIALS = \d+$", "TRIALS = 4", text, flags=re.MULTILINE)
    file = folder / "program.py"
    file.write_text(text, encoding="utf-8")
    ran = subprocess.run(
        [sys.executable, str(file)], cwd=folder, capture_output=True, text=True, timeout=300
    )
    assert ran.returncode == 0, ran.stderr
