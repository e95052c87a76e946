# SPDX-License-Identifier: Apache-2.0
"""The README's programs run as copied, with few trials."""

import re
from pathlib import Path

import pytest
from doc_programs import blocks, run_program

README = Path(__file__).parents[1] / "README.md"
MAX_BYTES = 8_000


def programs() -> list[str]:
    return [block.text for block in blocks(README, "python")]


@pytest.mark.parametrize("number", range(3))
def test_readme_program_runs_as_copied(number: int, tmp_path: Path):
    program = programs()[number]
    assert re.search(r"^TRIALS = \d+$", program, re.MULTILINE)
    run_program(program, tmp_path)
    logs = [path for path in tmp_path.iterdir() if path.name.endswith("_logs")]
    (records,) = [log / "database_tuning_record.json" for log in logs]
    assert len(records.read_text().splitlines()) >= 4


def test_readme_has_a_program_for_each_door():
    assert len(programs()) == 3


def test_readme_is_short():
    assert len(README.read_bytes()) <= MAX_BYTES


def test_readme_links_resolve():
    prose = re.sub(r"```.*?```", "", README.read_text(), flags=re.DOTALL)
    links = re.findall(r"\]\(([^)#]+)\)", prose)
    assert links
    for link in links:
        if not link.startswith("http"):
            assert (README.parent / link).exists(), link
